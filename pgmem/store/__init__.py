"""What is kept: the pool, the statements, the schema, the embedded server. The only SQL."""
