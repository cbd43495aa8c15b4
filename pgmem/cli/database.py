"""``pgmem db``: the schema, and the server that pgmem keeps."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from pgmem import settings as settings_module
from pgmem.cli.options import Schema, Url
from pgmem.cli.render import complaints, counted, inert, write_line
from pgmem.cli.urls import without_password
from pgmem.errors import PgmemError
from pgmem.operations import opening
from pgmem.settings import Settings
from pgmem.store import embedded, job_queue, migrate
from pgmem.store.database import Database, check_server, connect, schema_version
from pgmem.store.launch import SUPERUSER

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Set up, check and find the database.")


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one of the checks of ``pgmem db check`` found."""

    name: str
    ok: bool
    words: str


class RoleName(StrEnum):
    """Whom ``pgmem db url`` logs in."""

    APP = "app"
    READER = "reader"
    OWNER = "owner"


_LOGINS = {RoleName.APP: opening.APP_ROLE, RoleName.READER: opening.READER_ROLE, RoleName.OWNER: SUPERUSER}


@app.command(
    epilog="Examples:\n\n\b\n"
    "  pgmem db upgrade                                    the embedded server\n"
    "  pgmem db upgrade --url postgresql://owner@db/app    a server of yours\n"
    "  pgmem db upgrade --sql >upgrade.sql                 for a DBA to read and run",
    short_help="Bring the schema to this release.",
)
def upgrade(
    url: Url = None,
    schema: Schema = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements for an empty database; run nothing.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--from", help="With --sql: for a database at this version.", metavar="VERSION", show_default=False),
    ] = None,
    no_roles: Annotated[
        bool, typer.Option("--no-roles", help="Do not make pgmem_app and pgmem_reader, and grant nothing: a DBA does.")
    ] = False,
    no_queue: Annotated[
        bool, typer.Option("--no-queue", help="Do not make the schema of the queue, which pgmem worker needs.")
    ] = False,
) -> None:
    """Bring the schema to this release, in one transaction; do nothing when it is there.

    On a server of yours, connect as the role that shall own the tables. It needs CREATEROLE, unless you say --no-roles.
    The queue of `pgmem worker` has a schema beside it, pgmem_queue: making it needs CREATE on the database, or an
    administrator who made it first.
    """
    found = _settings(schema)
    if since is not None and not sql:
        raise typer.BadParameter("--from is for --sql: what is there is looked at otherwise")
    if sql:
        made = migrate.upgrade_sql(schema=found.schema, roles=not no_roles, queue=not no_queue, since=since)
        write_line(made.rstrip("\n"))
        return
    place = url or found.database_url
    if place is None and no_roles:
        raise typer.BadParameter("--no-roles is for a server of yours: give --url, the embedded server needs its roles")
    owner = place or _owner_url(found)
    before = migrate.current(owner, schema=found.schema)
    has_queue = migrate.upgrade(owner, schema=found.schema, roles=not no_roles, queue=not no_queue)
    if place is None:
        opening.ready_embedded(found)
    write_line(_moved(found.schema, before, migrate.current(owner, schema=found.schema)))
    if not has_queue and not no_queue:
        name = f"{found.schema}_queue"
        complaints().print(
            f"there is no queue, since this role may not make a schema: create schema {name} for it, then run this again"
        )
    if place is not None and not no_roles:
        write_line(f"Let your application in with: grant {opening.APP_ROLE} to <its login role>;")


@app.command(
    epilog="Example: pgmem db check --url postgresql://app@db/app",
    short_help="Say whether this database can be trusted with memory.",
)
def check(url: Url = None, schema: Schema = None) -> None:
    """Say whether this database can be trusted with memory: what pgmem.open() checks, in words.

    The server must be PostgreSQL 15 or newer, durable and the primary; the role must not own the tables; the schema
    must be of this release. Exits with 1 if one of them is not so. It also says how the queue is, which only some need.
    """
    findings = asyncio.run(_findings(url, _settings(schema)))
    for finding in findings:
        write_line(f"{finding.name:<7} {'ok' if finding.ok else 'NOT OK'}: {inert(finding.words)}")
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@app.command(epilog="Example: pgmem db current", short_help="Print the version of the schema.")
def current(url: Url = None, schema: Schema = None) -> None:
    """Print the version of the schema, or `none` when pgmem is not there."""
    found = _settings(schema)
    write_line(migrate.current(url or found.database_url or _owner_url(found), schema=found.schema) or "none")


@app.command(name="url", epilog='Example: psql "$(pgmem db url --role reader)"', short_help="Print a URL for psql.")
def show_url(
    role: Annotated[
        RoleName | None,
        typer.Option(help="Who logs in on the embedded server; app if not given. reader sees the audit views only."),
    ] = None,
) -> None:
    """Print a URL for psql: of PGMEM_DATABASE_URL without its password, or of the embedded server, started if need be.

    The embedded server's own password is printed where it has one: on 127.0.0.1, on machines without unix sockets.
    """
    found = _settings(None)
    if found.database_url is None:
        write_line(opening.ready_embedded(found, user=_LOGINS[role or RoleName.APP]))
        return
    if role is not None:
        raise typer.BadParameter("--role is for the embedded server: PGMEM_DATABASE_URL is set and names its own role")
    write_line(without_password(found.database_url))


@app.command(epilog="Example: pgmem db stop", short_help="Stop the embedded server.")
def stop() -> None:
    """Stop the embedded server; the next command that needs it starts it again. What is stored stays."""
    server = embedded.running(_settings(None).home)
    if server is None:
        write_line("no embedded server runs here")
        return
    server.stop()
    write_line(f"stopped the server in {server.data_dir}")


def _settings(schema: str | None) -> Settings:
    found = settings_module.read()
    return dataclasses.replace(found, schema=settings_module.check_schema(schema or found.schema))


def _owner_url(settings: Settings) -> str:
    return embedded.start(settings.home, pg_bin=settings.pg_bin).url()


def _moved(schema: str, before: str | None, after: str | None) -> str:
    if before == after:
        return f"schema {schema!r} is at version {after} already"
    return f"schema {schema!r} is at version {after} now (it was {'empty' if before is None else f'at {before}'})"


async def _findings(url: str | None, settings: Settings) -> list[_Finding]:
    place = url or settings.database_url
    if place is None:
        place = await asyncio.to_thread(opening.ready_embedded, settings)
    async with connect(place, settings) as database:
        return [*await _server_findings(database), await _schema_finding(database), await _queue_finding(database)]


async def _server_findings(database: Database) -> list[_Finding]:
    try:
        row = await check_server(database)
    except PgmemError as error:
        return [_Finding("server", ok=False, words=str(error))]
    server, role = f"PostgreSQL {row['version'] // 10000}, UTF8, the primary", str(row["role"])
    if database.settings.allow_unsafe:
        server, role = (
            f"{server}; its durability is your affair (PGMEM_ALLOW_UNSAFE)",
            f"{role}; whatever it may do (PGMEM_ALLOW_UNSAFE)",
        )
    else:
        server, role = f"{server}, durable", f"{role}, which does not own the tables"
    return [_Finding("server", ok=True, words=server), _Finding("role", ok=True, words=role)]


async def _schema_finding(database: Database) -> _Finding:
    schema, version = database.settings.schema, await schema_version(database)
    try:
        migrate.check_version(version, schema=schema)
    except PgmemError as error:
        return _Finding("schema", ok=False, words=str(error))
    return _Finding("schema", ok=True, words=f"{schema!r} is at version {version}, which this release runs on")


async def _queue_finding(database: Database) -> _Finding:
    try:
        await job_queue.check(database)
        found = await job_queue.summed(database)
    except PgmemError as error:  # which only who uses it needs
        return _Finding("queue", ok=True, words=f"not usable, which only background='queue' and `pgmem worker` need: {error}")
    since = f" since {found.waiting_since:%Y-%m-%d %H:%M:%S%z}" if found.waiting_since else ""
    words = f"{counted(found.waiting, 'job')} waiting{since}, {found.running} running, {found.failed} failed"
    return _Finding("queue", ok=True, words=f"{words}; {counted(found.workers, 'worker')} at work")
