"""The command line: which commands there are, and what becomes of their errors.

Exit codes: 0 done; 1 refused or not found, the sentence after ``error:`` says why; 2 the command line itself is wrong;
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pgmem.cli import act, database, demo, jobs, look, replay, stages, tree, worker
from pgmem.cli.render import complaints, inert, write_line
from pgmem.errors import PgmemError

STOPPED = 130

_ADVICE = {
    "call maintain() again": "run `pgmem maintain` again",
    "call context() again": "look at `pgmem context` again",
}

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(TyperGroup):
    """Turns what pgmem raises, and Ctrl-C, into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PgmemError as error:
            complaints().print(f"error: {inert(_in_commands(str(error)))}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            complaints().print("stopped")
            raise typer.Exit(STOPPED) from None


def _in_commands(sentence: str) -> str:
    """What the library advises, for who has no library but commands."""
    for call, command in _ADVICE.items():
        sentence = sentence.replace(call, command)
    return sentence


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
app.add_typer(jobs.app, name="jobs")
app.command(epilog=worker.EXAMPLE, short_help="Do the compactions that the queue holds.")(worker.worker)
app.command(epilog=replay.EXAMPLE, short_help="Play conversations and show what compaction saves.")(replay.replay)
app.command(epilog=demo.EXAMPLE, short_help="Live through an incident with an agent, then audit it.")(demo.demo)
app.command(epilog=look.SESSIONS_EXAMPLE, short_help="List a tenant's sessions.")(look.sessions)
app.command(epilog=tree.EXAMPLE, short_help="Draw the state tree of a session.")(tree.tree)
app.command(epilog=look.CONTEXT_EXAMPLE, short_help="Show what the model would be sent, now or before.")(look.context)
app.command(epilog=look.TURNS_EXAMPLE, short_help="List every turn ever stored, with its status.")(look.turns)
app.command(epilog=stages.EXAMPLE, short_help="List the steps and states of a session's flows.")(stages.stages)
app.command(epilog=look.VERIFY_EXAMPLE, short_help="Check the hash chain over all facts of a tree.")(look.verify)
app.command(epilog=act.COMPRESS_EXAMPLE, short_help="Put one summary in the place of active turns.")(act.compress)
app.command(epilog=act.MAINTAIN_EXAMPLE, short_help="Ask a judge whether a summary may stand.")(act.maintain)
app.command(epilog=act.REVISE_EXAMPLE, short_help="Go back to a point on the active line.")(act.revise)


def run() -> None:
    """What the script ``pgmem`` runs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _run_and_flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        complaints().print(f"error: the output cannot be written ({error.strerror}): make room, or write it elsewhere")
        sys.exit(1)


def _run_and_flush() -> None:
    try:
        app(prog_name="pgmem")
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _drop_output() -> None:
    # what is still held would be written, and fail again, when Python ends
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


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
