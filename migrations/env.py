"""Runs the migrations on the connection that ``pgmem.store.migrate`` hands over; knows nothing else of pgmem."""

import re
from pathlib import Path

from alembic import context, op

attributes = context.config.attributes
options = {
    "target_metadata": attributes["metadata"],
    "version_table": "schema_version",
    "version_table_schema": attributes["schema"],
    "include_schemas": True,
    "include_name": lambda name, kind, *_: kind != "schema" or name == attributes["schema"],
    "compare_type": True,
}


def run(name: str) -> None:
    """Runs a file of frozen SQL, in the schema that was asked for."""
    sql = (Path(__file__).parent / "versions" / name).read_text(encoding="utf-8")
    schema = attributes["schema"]
    op.execute(sql if schema == "pgmem" else re.sub(r"\bpgmem\b", f'"{schema}"', sql))


attributes["run"] = run

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, **options)
else:
    context.configure(connection=attributes["connection"], **options)

with context.begin_transaction():
    context.run_migrations()
