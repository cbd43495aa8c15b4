"""The command line: which commands there are, and what becomes of their errors.

Exit codes: 0 done; 1 refused or not found, the sentence after ``error:`` says why; 2 the command line itself is wrong;
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import io
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pgmem.cli import database, demo, look, replay, tree
from pgmem.cli.render import complaints, inert, write_line
from pgmem.errors import PgmemError

STOPPED = 130


class _Commands(TyperGroup):
    """Turns what pgmem raises, and Ctrl-C, into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PgmemError as error:
            complaints().print(f"error: {inert(str(error))}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            complaints().print("stopped")
            raise typer.Exit(STOPPED) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try `pgmem demo` first: it needs no API key and no database of yours.",
)
app.add_typer(database.app, name="db")
app.command(epilog=replay.EXAMPLE)(replay.replay)
app.command(epilog=demo.EXAMPLE)(demo.demo)
app.command(epilog=look.SESSIONS_EXAMPLE)(look.sessions)
app.command(epilog=tree.EXAMPLE)(tree.tree)
app.command(epilog=look.CONTEXT_EXAMPLE)(look.context)
app.command(epilog=look.TURNS_EXAMPLE)(look.turns)
app.command(epilog=look.VERIFY_EXAMPLE)(look.verify)


def run() -> None:
    """What the script ``pgmem`` runs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="pgmem")


def _print_version(wanted: bool) -> None:
    if wanted:
        write_line(f"pgmem {version('pgmem-mage')}")
        raise typer.Exit


@app.callback()
def _pgmem(
    shown: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the release and exit.")
    ] = False,
) -> None:
    """The memory of LLM agents, kept in your own Postgres.

    Every command takes --url for a Postgres of yours. Without it, and without PGMEM_DATABASE_URL, pgmem starts a
    Postgres of its own and keeps it in PGMEM_HOME.
    """
