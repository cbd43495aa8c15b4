"""The queue's own schema: procrastinate's tables and functions, made as that package ships them, beside pgmem's schema."""

from __future__ import annotations

import hashlib
from importlib import metadata, resources
from typing import Any

import psycopg
from psycopg import sql

from pgmem.store.queries import quoted

PACKAGE = "procrastinate"

MOST_NAME = 40
"""Bytes of a queue's name at most: with procrastinate's own words before it, it names a channel, which has 63."""


def name_of(schema: str) -> str:
    """The schema of the queue that belongs to pgmem's schema of that name."""
    return f"{schema}_queue"


def queue_of(schema: str) -> str:
    """The name of procrastinate's queue that our jobs are in; one a schema, since its notices go to the whole database."""
    return schema if len(schema) <= MOST_NAME else f"{schema[: MOST_NAME - 9]}_{hashlib.sha256(schema.encode()).hexdigest()[:8]}"


def channel_of(schema: str) -> str:
    """What the queue notifies on when a job has ended."""
    return f"{schema}_ended"


def release() -> str:
    """The release of procrastinate that is installed, as the queue's schema is marked with."""
    return f"{PACKAGE} {'.'.join(metadata.version(PACKAGE).split('.')[:2])}"


def exists(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Whether the queue is there."""
    table = f"{quoted(name_of(schema))}.procrastinate_jobs"
    return connection.execute("select to_regclass(%s)", (table,)).fetchone() != (None,)


def make(connection: psycopg.Connection[Any], schema: str, *, roles: bool) -> bool:
    """Makes the queue where there is none, in the connection's transaction.

    Returns:
        Whether there is one now; False where its schema is not there and this role may not make it.
    """
    name = name_of(schema)
    if exists(connection, schema):
        if roles:  # which an upgrade before may have left out
            connection.execute(_GRANTS.format(name=quoted(name)).encode())
        return True
    if connection.execute("select from pg_namespace where nspname = %s", (name,)).fetchone() is None:
        if connection.execute("select has_database_privilege(current_database(), 'create')").fetchone() == (False,):
            return False
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
    connection.execute(statements(schema, roles=roles).encode())
    return True


def statements(schema: str, *, roles: bool) -> str:
    """What makes the queue in its schema, which must be there."""
    name = quoted(name_of(schema))
    shipped = (resources.files("procrastinate.sql") / "schema.sql").read_text(encoding="utf-8")
    return "\n".join(
        [
            _ENTER.format(name=name),
            shipped,
            _OWN.format(name=name, channel=channel_of(schema), release=release()),
            _GRANTS.format(name=name) * roles,
        ]
    )


_ENTER = """
-- The queue of work: the tables and functions of procrastinate, as that package ships them.
select set_config('pgmem.search_path', current_setting('search_path'), true);
set local search_path to {name}, pg_catalog;
"""

# Its functions name their tables without a schema, so they have to look there, whoever calls them.
_OWN = """
do $$
declare
    found regprocedure;
begin
    for found in select p.oid::regprocedure from pg_proc p where p.pronamespace = '{name}'::regnamespace loop
        execute format('alter function %s set search_path to {name}, pg_catalog, pg_temp', found);
    end loop;
end
$$;
create function pgmem_tell_end() returns trigger language plpgsql set search_path to {name}, pg_catalog, pg_temp as $$
begin
    perform pg_notify('{channel}', new.id::text);
    return null;
end
$$;
create trigger pgmem_tell_end after update of status on procrastinate_jobs
    for each row when (new.status in ('succeeded', 'failed', 'cancelled', 'aborted')) execute function pgmem_tell_end();
create index pgmem_jobs_tree on procrastinate_jobs (queueing_lock, id);
comment on schema {name} is '{release}';
select set_config('search_path', current_setting('pgmem.search_path'), true);
"""

_GRANTS = """
grant usage on schema {name} to pgmem_app;
grant select, insert, update, delete on all tables in schema {name} to pgmem_app;
grant usage on all sequences in schema {name} to pgmem_app;
grant usage on schema {name} to pgmem_reader;
grant select on all tables in schema {name} to pgmem_reader;
"""
