"""Where the tests' Postgres comes from: ``PGMEM_TEST_DATABASE_URL``, else an embedded server that ends with the test run."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from pgmem.store import embedded, migrate

PASSWORD = secrets.token_hex(8)
ROLES = ("pgmem_app", "pgmem_reader")
RAM = Path("/dev/shm")
RAM_BYTES = 2 * 1024**3


@dataclass
class Server:
    """A server that the tests may make databases on."""

    url: str
    data_dir: Path | None = None
    _made: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def on(self, database: str, user: str | None = None) -> str:
        """The URL of a database, for the owner or for ``user``."""
        given = {"dbname": database} | ({"user": user, "password": PASSWORD} if user else {})
        return conninfo.make_conninfo(self.url, **given)

    def execute(self, statement: sql.Composable | str, database: str | None = None) -> None:
        with psycopg.connect(self.on(database) if database else self.url, autocommit=True) as connection:
            connection.execute(statement)

    def make_database(self, template: str | None = None, options: str = "") -> str:
        name = f"pgmem_test_{os.getpid()}_{secrets.token_hex(3)}_{next(self._numbers)}"
        form = f"create database {{}} {options}" if template is None else "create database {} template {}"
        self.execute(sql.SQL(form).format(*(sql.Identifier(part) for part in (name, template) if part)))
        self._made.append(name)
        return name

    def drop_databases(self) -> None:
        while self._made:
            self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(self._made.pop())))

    def migrated(self) -> str:
        """A new database with the newest schema, whose roles can log in."""
        name = self.make_database()
        migrate.upgrade(self.on(name))
        migrate.allow_login(self.on(name), roles=ROLES, password=PASSWORD)
        for role in ROLES:
            self.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
        return name


@contextmanager
def server() -> Iterator[Server]:
    given = os.environ.get("PGMEM_TEST_DATABASE_URL")
    if given:
        found = Server(given)
        yield found
        found.drop_databases()
        return
    # a RAM disk where there is one: the server stays as durable as it claims, and the tests do not wait for a disk
    roomy = RAM.is_dir() and os.access(RAM, os.W_OK) and shutil.disk_usage(RAM).free > RAM_BYTES
    home = Path(tempfile.mkdtemp(prefix="pgmem-tests-", dir=RAM if roomy else None))
    pg_bin = os.environ.get("PGMEM_PG_BIN")
    started = embedded.start(home, pg_bin=Path(pg_bin) if pg_bin else None, keep_running=False)
    yield Server(started.url(), started.data_dir)
    started.stop()
    shutil.rmtree(home, ignore_errors=True)
