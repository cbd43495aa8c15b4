"""The migrated schema as text: ``python -m tests.support.schema_dump > migrations/schema.sql`` writes the committed one anew."""

from __future__ import annotations

import re
import subprocess
import sys

from pgmem.store import embedded
from tests.support.servers import server

HEAD = "-- The schema that the migrations make, as pg_dump of PostgreSQL 18 shows it. Not run by anything: compared by the tests.\n"
NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*|)$")


def dump(url: str) -> str:
    """The schema at ``url`` without comments, settings and owners."""
    command = [str(embedded.find_binaries() / "pg_dump"), "--schema-only", "--no-owner", "--schema=pgmem", url]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    lines = [line for line in said.splitlines() if not NOISE.match(line)]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    with server() as started:
        sys.stdout.write(dump(started.on(started.migrated())))
