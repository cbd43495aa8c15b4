"""``pgmem demo``: a conversation that ships with pgmem, lived on a real Postgres and shown in the terminal."""

from pgmem.cli.demo.command import EXAMPLE, demo

__all__ = ["EXAMPLE", "demo"]
