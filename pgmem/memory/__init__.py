"""What users hold: a Memory of one database, its Sessions, and the Namespaces of a session."""

from pgmem.memory.memory import Memory, open  # noqa: A004 - the name is the interface: pgmem.open()
from pgmem.memory.namespace import Namespace
from pgmem.memory.session import MAIN, Session

__all__ = ["MAIN", "Memory", "Namespace", "Session", "open"]
