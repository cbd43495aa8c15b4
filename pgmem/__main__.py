"""Lets ``python -m pgmem`` be ``pgmem``."""

from pgmem.cli.main import run

if __name__ == "__main__":
    run()
