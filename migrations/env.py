"""Runs the migrations on the connection that ``pgmem.store.migrate`` hands over; knows nothing else of pgmem."""

from alembic import context

attributes = context.config.attributes
options = {
    "target_metadata": attributes["metadata"],
    "version_table": "schema_version",
    "version_table_schema": attributes["schema"],
    "include_schemas": True,
    "include_name": lambda name, kind, *_: kind != "schema" or name == attributes["schema"],
    "compare_type": True,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, **options)
else:
    context.configure(connection=attributes["connection"], **options)

with context.begin_transaction():
    context.run_migrations()
