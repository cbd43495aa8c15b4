"""A Memory: one database, seen by one tenant; ``pgmem.open()`` gives it."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pgmem import settings as settings_module
from pgmem.domain.asks import Judge, Summariser
from pgmem.domain.events import Event
from pgmem.domain.message import check_json
from pgmem.domain.model import Role
from pgmem.domain.names import check_role, shown
from pgmem.domain.plans import check_text
from pgmem.domain.policy import Policy, check_number
from pgmem.domain.tokens import TokenCounter, checked_counter, count_tokens
from pgmem.errors import InvalidArgument
from pgmem.llm.judges import judge_of
from pgmem.llm.strategies import summariser_of
from pgmem.memory.arguments import flag
from pgmem.memory.models import Models
from pgmem.memory.namespace import Namespace
from pgmem.memory.session import Session
from pgmem.memory.shared import Shared
from pgmem.memory.stuck import Stuck
from pgmem.operations import opening, sessions
from pgmem.operations.background import Compactions
from pgmem.store import job_queue
from pgmem.store.database import Database
from pgmem.store.job_queue import TreeJob

log = logging.getLogger("pgmem")


@asynccontextmanager
async def open(  # noqa: A001 - the name is the interface: pgmem.open()
    url: str | None = None,
    *,
    tenant: str = "default",
    policy: Policy | None = None,
    summary_model: Any = None,
    judge_model: Any = None,
    count: TokenCounter = count_tokens,
    memory_role: str = "system",
    background: str = "process",
    schema: str | None = None,
    home: str | Path | None = None,
    pool_size: int | None = None,
    allow_unsafe: bool | None = None,
) -> AsyncIterator[Memory]:
    """Opens the memory that a Postgres keeps; use it in ``async with``.

    Args:
        url: a libpq URL, whose schema is only checked. None for ``PGMEM_DATABASE_URL``; where that is not set either, for
            the embedded server, which is started and migrated.
        tenant: who owns the sessions; 1 to 128 characters.
        policy: when to compact, and how far; the defaults of ``Policy`` if None.
        summary_model: writes summaries: a ``pgmem.OpenAIModel``, or an async function from a ``SummaryRequest`` to a text or
            a ``Summary``.
        judge_model: judges summaries: a ``pgmem.OpenAIModel``, or an async function from a ``JudgeRequest`` to a
            ``Judgement``. Without it ``coverage`` judges, which asks no model.
        count: tokens of a text; four UTF-8 bytes a token by default.
        memory_role: the role of the memory message, ``system`` or ``user``.
        background: who does the work of ``compact_async()``: ``process``, this one, or ``queue``, any `pgmem worker`, with the
            models that it was given itself.
        schema: the schema that holds the tables, ``PGMEM_SCHEMA`` or ``pgmem`` if None.
        home: the embedded server's folder, ``PGMEM_HOME`` if None. Given, it means the embedded server, whatever
            ``PGMEM_DATABASE_URL`` says.
        pool_size: the most connections, ``PGMEM_POOL_SIZE`` or 10 if None.
        allow_unsafe: whether to go on with a role or a server that pgmem refuses; ``PGMEM_ALLOW_UNSAFE`` if None.

    Raises:
        InvalidArgument: an argument cannot be used.
        SetupError: the database is not fit for use; the message says what to do.
        DatabaseError: the database cannot be reached.

    Example:
        >>> import asyncio, pgmem
        >>> async def main():
        ...     async with pgmem.open() as memory:
        ...         session = await memory.session("hello")
        ...         await session.add_turn("user", "hi")
        ...         return (await session.context()).messages
        >>> asyncio.run(main())
        [{'role': 'user', 'content': 'hi'}]
    """
    if url is not None and home is not None:
        raise InvalidArgument("url and home name two places: give a url, or the folder of the embedded server")
    if home is not None:
        _check_home(home)
    if allow_unsafe is not None:
        flag("allow_unsafe", allow_unsafe)
    found = settings_module.read()
    settings = dataclasses.replace(
        found,
        schema=found.schema if schema is None else schema,
        home=found.home if home is None else Path(home),
        database_url=found.database_url if home is None else None,
        pool_size=found.pool_size if pool_size is None else pool_size,
        allow_unsafe=found.allow_unsafe if allow_unsafe is None else allow_unsafe,
    )
    settings_module.check_schema(settings.schema)
    check_number("pool_size", settings.pool_size, least=1, most=1000)
    check_text("tenant", tenant, most=128)
    if policy is not None and not isinstance(policy, Policy):
        raise InvalidArgument(f"policy is of type {type(policy).__name__}: give a pgmem.Policy")
    counter = checked_counter(count)
    role = check_role(memory_role)
    if background not in ("process", "queue"):
        raise InvalidArgument(f"background is {shown(background)}: use 'process' or 'queue'")
    summariser, judge = summariser_of(summary_model), judge_of(judge_model)
    async with opening.opened(url, settings) as database, AsyncExitStack() as leaving:
        memory = Memory(
            database,
            tenant=tenant,
            policy=policy or Policy(),
            summariser=summariser,
            judge=judge,
            count=counter,
            memory_role=role,
            queued=background == "queue",
        )
        if background == "queue":
            await job_queue.check(database)
        leaving.push_async_callback(memory._models.close)
        has_worker = partial(job_queue.has_worker, database)
        leaving.push_async_callback(memory._compactions.close, settings.timeout_seconds, has_worker=has_worker)
        leaving.push_async_callback(memory._end_workers)
        yield memory


class Memory:
    """The memory of one tenant in one database; ``pgmem.open()`` gives it.

    Attributes:
        tenant: who owns its sessions.
        policy: when its sessions compact.
    """

    def __init__(
        self,
        database: Database,
        *,
        tenant: str,
        policy: Policy,
        summariser: Summariser | None,
        judge: Judge,
        count: TokenCounter,
        memory_role: Role,
        queued: bool = False,
    ) -> None:
        self.tenant = tenant
        self.policy = policy
        self._database = database
        self._compactions = Compactions()
        self._models = Models()
        self._stuck = Stuck()
        self._callbacks: list[Callable[[Event], object]] = []
        self._workers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._shared = Shared(
            database, policy, summariser, judge, self._compactions, self._models, count, memory_role, queued, self._emit
        )

    @property
    def round_trips(self) -> int:
        """Statements sent so far, each of which is one round trip."""
        return self._database.round_trips

    async def session(
        self, key: str, *, goal: str | None = None, metadata: Mapping[str, Any] | None = None, create: bool = True
    ) -> Session:
        """The session of that key, made if it is not there.

        Args:
            key: 1 to 512 characters, unique in the tenant.
            goal: what the session is for; kept when the session is made, ignored when it is there.
            metadata: any JSON object of yours; kept when the session is made, ignored when it is there.
            create: whether to make it.

        Raises:
            InvalidArgument: the key, the goal or the metadata cannot be stored, or ``create`` is neither True nor False.
            SessionNotFound: it is not there, and ``create`` is false.
        """
        check_text("key", key, most=512)
        flag("create", create)
        if goal is not None:
            check_text("goal", goal)
        if metadata is not None:
            if not isinstance(metadata, dict):
                raise InvalidArgument(f"metadata is of type {type(metadata).__name__}: give a dict")
            check_json(metadata, name="metadata")
        found = await sessions.get_or_make(self._database, tenant=self.tenant, key=key, goal=goal, metadata=metadata, create=create)
        return Session(self._shared, found)

    async def sessions(self, prefix: str | None = None) -> AsyncIterator[Session]:
        """The tenant's sessions whose key begins with ``prefix``, in the order of their keys."""
        if prefix is not None:
            check_text("prefix", prefix)
        async for found in sessions.listed(self._database, tenant=self.tenant, prefix=prefix or ""):
            yield Session(self._shared, found)

    async def _queued_tree(self, job: TreeJob) -> Namespace:
        """The tree of a job of the queue, whoever's session it is of.

        Raises:
            InvalidArgument: there is no such session.
        """
        found = await sessions.by_number(self._database, job.session_id)
        return Namespace(self._shared, found, job.namespace, branch=None)

    @contextmanager
    def _leaving_after(self, end: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
        """While the body runs, ``pgmem.open()`` is not left before ``end()`` has returned, which is to end the body."""
        self._workers.append(end)
        try:
            yield
        finally:
            self._workers.remove(end)

    async def _end_workers(self) -> None:
        if self._workers:
            log.warning("pgmem.open() is left while %d of its workers run: they end first", len(self._workers))
            await asyncio.gather(*(end() for end in self._workers))

    def on_event(self, callback: Callable[[Event], object]) -> None:
        """Calls ``callback`` with every event from now on, in the task where it happens; what it raises is logged.

        Raises:
            InvalidArgument: it cannot be called, or is an async function, which nobody would await.
        """
        if not callable(callback):
            raise InvalidArgument(f"callback is {shown(callback)}: give a function that takes an event")
        if any(inspect.iscoroutinefunction(found) for found in (callback, type(callback).__call__)):
            raise InvalidArgument(f"callback is {shown(callback)}, which is async: give a plain function, which may start a task")
        self._callbacks.append(callback)

    def _emit(self, event: Event) -> None:
        log.debug("%s", event)
        self._stuck.see(event)
        for callback in self._callbacks:
            try:
                callback(event)
            except Exception:
                log.exception("a callback of on_event() failed on %s", event)


def _check_home(home: object) -> None:
    if not isinstance(home, str | os.PathLike):
        raise InvalidArgument(f"home is of type {type(home).__name__}: give the path of a folder")
    if "\0" in str(home):
        raise InvalidArgument(f"home is {shown(home)}: no path has a NUL, give the path of a folder")
