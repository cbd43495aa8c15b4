"""The ``pgmem`` command."""
