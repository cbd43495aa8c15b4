"""What users hold: a Memory of one database, its Sessions, and the Namespaces of a session."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pgmem import settings as settings_module
from pgmem.domain.context import Context
from pgmem.domain.events import Event
from pgmem.domain.message import check_json
from pgmem.domain.model import Branch, Message, Node, Role, Turn, TurnStatus
from pgmem.domain.names import check_namespace, check_role, check_status, shown
from pgmem.domain.plans import check_summary, check_text
from pgmem.domain.policy import MOST_TOKENS, MOST_TURNS, Policy, check_number, check_strategy
from pgmem.domain.tokens import TokenCounter, checked_counter, count_tokens
from pgmem.errors import InvalidArgument, NoSummaryModel
from pgmem.operations import audit, compress, context, erase, grow, opening, sessions
from pgmem.operations.place import Place
from pgmem.store.database import Database

log = logging.getLogger("pgmem")

MAIN = "main"
"""The namespace of a session's own turns."""

MOST_NO = 2**63 - 1


@asynccontextmanager
async def open(  # noqa: A001 - the name is the interface: pgmem.open()
    url: str | None = None,
    *,
    tenant: str = "default",
    policy: Policy | None = None,
    count: TokenCounter = count_tokens,
    memory_role: str = "system",
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
        count: tokens of a text; four UTF-8 bytes a token by default.
        memory_role: the role of the memory message, ``system`` or ``user``.
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
        raise InvalidArgument(f"policy is a {type(policy).__name__}: give a pgmem.Policy")
    counter = checked_counter(count)
    role = check_role(memory_role)
    async with opening.opened(url, settings) as database:
        yield Memory(database, tenant=tenant, policy=policy or Policy(), count=counter, memory_role=role)


class Memory:
    """The memory of one tenant in one database; ``pgmem.open()`` gives it.

    Attributes:
        tenant: who owns its sessions.
        policy: when its sessions compact.
    """

    def __init__(self, database: Database, *, tenant: str, policy: Policy, count: TokenCounter, memory_role: Role) -> None:
        self.tenant = tenant
        self.policy = policy
        self._database = database
        self._count = count
        self._memory_role = memory_role
        self._callbacks: list[Callable[[Event], object]] = []

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
            InvalidArgument: the key, the goal or the metadata cannot be stored.
            SessionNotFound: it is not there, and ``create`` is false.
        """
        check_text("key", key, most=512)
        if goal is not None:
            check_text("goal", goal)
        if metadata is not None:
            if not isinstance(metadata, dict):
                raise InvalidArgument(f"metadata is a {type(metadata).__name__}: give a dict")
            check_json(metadata, name="metadata")
        found = await sessions.get_or_make(self._database, tenant=self.tenant, key=key, goal=goal, metadata=metadata, create=create)
        return Session(self, found)

    async def sessions(self, prefix: str | None = None) -> AsyncIterator[Session]:
        """The tenant's sessions whose key begins with ``prefix``, in the order of their keys."""
        if prefix is not None:
            check_text("prefix", prefix)
        async for found in sessions.listed(self._database, tenant=self.tenant, prefix=prefix or ""):
            yield Session(self, found)

    def on_event(self, callback: Callable[[Event], object]) -> None:
        """Calls ``callback`` with every event from now on, in the task where it happens; what it raises is logged."""
        self._callbacks.append(callback)

    def _emit(self, event: Event) -> None:
        log.debug("%s", event)
        for callback in self._callbacks:
            try:
                callback(event)
            except Exception:
                log.exception("a callback of on_event() failed on %s", event)


class Namespace:
    """A memory space of a session: its own tree, its own context.

    A namespace is a handle: it remembers the branch that it last saw in ``context()`` or made itself, so that a reply
    worked out on a line that was left behind is refused. Use one handle for one line of work.

    Attributes:
        name: the namespace.
    """

    def __init__(self, memory: Memory, found: sessions.SessionRow, name: str, *, branch: int | None) -> None:
        self.name = name
        self._memory = memory
        self._found = found
        self._branch = branch
        self._through: int | None = None
        self._place = Place(memory._database, found.session_id, found.key, name, memory._count, memory._emit)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} namespace={self.name!r}>"

    @property
    def key(self) -> str:
        """The session's key."""
        return self._found.key

    async def add_turn(
        self,
        role: str,
        content: Any = None,
        *,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        tool_call_id: str | None = None,
        name: str | None = None,
        extra: Mapping[str, Any] | None = None,
        pinned: bool = False,
        idempotency_key: str | None = None,
        branch: int | None = None,
    ) -> Turn:
        """Stores one message, for ever; one statement, one round trip. Never compacts, never asks a model.

        Args:
            role: system, user, assistant or tool.
            content: text, or a list of OpenAI content parts; may be None for an assistant that calls tools.
            tool_calls: an assistant's calls, as OpenAI gives them.
            tool_call_id: the call that a tool message answers.
            name: the message's name field.
            extra: further fields of the message, kept and shown as they are.
            pinned: shown verbatim in every context until its line is left; at most 32 a tree.
            idempotency_key: your name for this turn, 1 to 255 characters: adding it again gives the stored turn.
            branch: the branch that the caller last saw; this handle's by default.

        Raises:
            InvalidMessage: it cannot be stored.
            BranchAbandoned: what this handle last saw was left behind; call ``context()`` first.
            IdempotencyConflict: the key is stored with another message.
            TooManyPinned: the tree shows 32 pinned turns.
            DatabaseError: it may or may not be stored; safe to repeat with an idempotency key.
        """
        message = _message(role, content, {"tool_calls": tool_calls, "tool_call_id": tool_call_id, "name": name}, extra)
        _check_key(idempotency_key)
        turn = grow.new_turn(self._place, message, pinned=_flag("pinned", pinned), idempotency_key=idempotency_key)
        return (await self._append([turn], branch))[0]

    async def add_turns(
        self, messages: Sequence[Message], *, idempotency_keys: Sequence[str] | None = None, branch: int | None = None
    ) -> list[Turn]:
        """Stores OpenAI chat messages, verbatim and in order, in one statement: all or none.

        Args:
            messages: at most 10,000; none is allowed and stores nothing.
            idempotency_keys: one for each message.
            branch: the branch that the caller last saw; this handle's by default.

        Raises:
            As ``add_turn``; ``IdempotencyConflict`` too when only part of the batch is known.
        """
        _check_list("messages", messages)
        if idempotency_keys is not None:
            _check_list("idempotency_keys", idempotency_keys)
        keys = list(idempotency_keys) if idempotency_keys is not None else [None] * len(messages)
        for key in keys:
            _check_key(key)
        if len(keys) != len(messages) or len({key for key in keys if key}) != sum(key is not None for key in keys):
            raise InvalidArgument(f"{len(messages)} messages need as many idempotency keys, each another: {len(keys)} were given")
        turns = [grow.new_turn(self._place, message, idempotency_key=key) for message, key in zip(messages, keys, strict=True)]
        return await self._append(turns, branch)

    async def context(self, system: str | None = None, *, budget_tokens: int | None = None, as_of: int | None = None) -> Context:
        """What the model should be sent now: bounded, valid for its provider, in one round trip.

        Args:
            system: your system prompt: sent first, never stored, never summarised.
            budget_tokens: the most that all messages may hold; older parts shrink until they fit.
            as_of: a fact's position: builds what was shown when the tree was there, byte for byte.

        Raises:
            OverBudget: what must be shown is over the budget.
            InvalidArgument: there is no such fact.
        """
        if system is not None and not isinstance(system, str):
            raise InvalidArgument(f"system is a {type(system).__name__}: give the prompt as a text")
        if budget_tokens is not None:
            check_number("budget_tokens", budget_tokens, least=1, most=MOST_TOKENS * 100)
        if as_of is not None:
            check_number("as_of", as_of, least=0, most=MOST_NO)
        built = await context.build(
            self._place, system=system, budget_tokens=budget_tokens, as_of=as_of, memory_role=self._memory._memory_role
        )
        if as_of is None:
            self._branch, self._through = built.branch, built.through
        return built

    async def compress(
        self,
        *,
        summary: str | None = None,
        label: str | None = None,
        kind: str = "topic",
        strategy: str | None = None,
        keep_recent: int = 0,
        through: int | Turn | None = None,
        cumulative: bool = False,
    ) -> Node | None:
        """Puts one node in the place of active turns, which stay in the table.

        The cut never parts a tool call from its results, and an open call stays active.

        Args:
            summary: your own text for the turns, kept byte for byte. It covers what this handle's last ``context()`` showed.
            label: a short title, 1 to 256 characters.
            kind: what it is about, 1 to 64 characters.
            strategy: ``tool_clear``, when no summary is given.
            keep_recent: the newest turns that stay active.
            through: the last turn, or its position, that may be covered.
            cumulative: whether your summary stands for all memory before it too.

        Returns:
            The node; None when there is nothing to cover, which an event explains.

        Raises:
            NoSummaryModel: neither a summary nor a strategy is given.
            EmptySummary: the summary is blank.
            SummaryTooLong: the summary is over the policy's ``max_summary_tokens``.
            StaleTree: the tree moved on meanwhile; nothing was written.
        """
        check_text("kind", kind, most=64)
        if label is not None:
            check_text("label", label, most=256)
        check_number("keep_recent", keep_recent, least=0, most=MOST_TURNS)
        last = through.no if isinstance(through, Turn) else through
        if last is not None:
            check_number("through", last, least=1, most=MOST_NO)
        most = self._memory.policy.max_summary_tokens
        if summary is None:
            if strategy is None:
                raise NoSummaryModel("compress() has nothing to make a summary with: give summary=, or strategy='tool_clear'")
            check_strategy(strategy)
            if cumulative:
                raise InvalidArgument("cumulative is for a summary of your own: what tool_clear makes is cumulative anyway")
            extent = compress.Extent(keep_recent=keep_recent, through=last)
            return await compress.by_tool_clear(self._place, extent, kind=kind, label=label, max_summary_tokens=most)
        if strategy is not None:
            raise InvalidArgument("give either a summary or a strategy, not both")
        text = check_summary(summary, max_summary_tokens=most, count=self._memory._count)
        extent = compress.Extent(keep_recent=keep_recent, through=self._through if last is None else last)
        return await compress.by_given_summary(
            self._place, extent, summary=text, kind=kind, label=label, cumulative=_flag("cumulative", cumulative)
        )

    async def compact(
        self, *, threshold: int | None = None, keep_recent: int | None = None, strategy: str | None = None
    ) -> Node | None:
        """Compresses once enough turns are active; call it after each turn, it does nothing below the threshold.

        Args:
            threshold: active turns at which it acts, the policy's by default (20).
            keep_recent: the newest turns that stay verbatim, the policy's by default (5).
            strategy: how the summary is made, the policy's by default (``tool_clear``, which asks no model).

        Returns:
            The node; None when nothing was written, which an event explains.

        Raises:
            InvalidArgument: the numbers do not fit each other.
            StaleTree: the tree moved on under every one of a few plans; nothing was written.
        """
        base = self._memory.policy
        policy = dataclasses.replace(
            base,
            threshold=base.threshold if threshold is None else threshold,
            keep_recent=base.keep_recent if keep_recent is None else keep_recent,
            strategy=base.strategy if strategy is None else check_strategy(strategy),
        )
        extent = compress.Extent(threshold=policy.threshold, keep_recent=policy.keep_recent)
        return await compress.by_tool_clear(
            self._place, extent, kind="compaction", label=None, max_summary_tokens=policy.max_summary_tokens
        )

    async def erase(self, *, keep_summary: bool = False, actor: str | None = None) -> Branch:
        """Leaves all turns so far behind: the model sees nothing from before, and every turn stays in the table.

        Args:
            keep_summary: whether the memory of the head stays.
            actor: who asked for it, for the audit; 1 to 256 characters.
        """
        if actor is not None:
            check_text("actor", actor, most=256)
        branch = await erase.erase(self._place, keep_summary=_flag("keep_summary", keep_summary), actor=actor)
        self._branch, self._through = branch.no, None
        return branch

    async def path(self) -> list[Node]:
        """The nodes of the active path, root first, with their status."""
        return await audit.path(self._place)

    def turns(self, after: int = 0, status: str | None = None) -> AsyncIterator[Turn]:
        """Every turn ever stored, in order, with its status and the node that stands for it; pages itself.

        Args:
            after: a position: only turns past it.
            status: active, compressed, abandoned or erased: only those.
        """
        check_number("after", after, least=0, most=MOST_NO)
        wanted: TurnStatus | None = None if status is None else check_status(status)
        return audit.turns(self._place, after=after, status=wanted)

    def nodes(self) -> AsyncIterator[Node]:
        """Every node ever made, in order, with its status; pages itself."""
        return audit.nodes(self._place)

    def branches(self) -> AsyncIterator[Branch]:
        """Every time the head moved back, in order; pages itself."""
        return audit.branches(self._place)

    async def verify(self) -> int | None:
        """Checks the hash chain over all facts.

        Returns:
            None when every fact is as it was stored; else the position of the first that is not, or 0 when only the tree
            row that points at them is not.
        """
        return await audit.verify(self._place)

    async def _append(self, turns: Sequence[grow.NewTurn], branch: int | None) -> list[Turn]:
        if branch is not None:
            check_number("branch", branch, least=0, most=MOST_NO)
        seen = self._branch if branch is None else branch
        added = await grow.append(self._place, turns, seen_branch=seen)
        if self._branch is None and added:
            self._branch = added[-1].branch
        return added


class Session(Namespace):
    """One conversation; its own turns are those of the namespace ``main``."""

    def __init__(self, memory: Memory, found: sessions.SessionRow) -> None:
        super().__init__(memory, found, MAIN, branch=found.branch)
        self._namespaces: dict[str, Namespace] = {MAIN: self}

    @property
    def goal(self) -> str | None:
        """What the session is for."""
        return self._found.goal

    @property
    def metadata(self) -> Any:
        """The caller's own JSON."""
        return self._found.metadata

    @property
    def created_at(self) -> datetime:
        """When the session was made, by the database's clock."""
        return self._found.created_at

    def namespace(self, name: str) -> Namespace:
        """The handle of a namespace of this session; the same one each time.

        Args:
            name: a letter, then letters, digits, ``_``, ``-`` and ``.``; at most 128.

        Raises:
            InvalidArgument: the name is not of that form.
        """
        check_namespace(name)
        if name not in self._namespaces:
            self._namespaces[name] = Namespace(self._memory, self._found, name, branch=None)
        return self._namespaces[name]

    async def namespaces(self) -> list[str]:
        """The names of the namespaces that hold something, in order; ``main`` always."""
        return await sessions.namespaces(self._memory._database, self._found.session_id)


def _message(role: str, content: Any, fields: Mapping[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    if extra is not None and not isinstance(extra, dict):
        raise InvalidArgument(f"extra is a {type(extra).__name__}: give a dict")
    message = {"role": role, "content": content} | {name: value for name, value in fields.items() if value is not None}
    twice = sorted(str(name) for name in (extra or {}) if name in ("role", "content", *fields))
    if twice:
        raise InvalidArgument(f"extra holds {', '.join(twice)}: give it as an argument of its own")
    return message | dict(extra or {})


def _check_key(key: str | None) -> None:
    if key is not None:
        check_text("idempotency_key", key, most=255)


def _check_list(name: str, value: object) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} is a {type(value).__name__}: give a list")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} is {shown(value)}: it must be True or False")
    return value
