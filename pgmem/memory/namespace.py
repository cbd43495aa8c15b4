"""A namespace of a session: a handle on one tree, with every operation."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from pgmem.domain.context import Context
from pgmem.domain.model import Branch, Message, Node, Strategy, Turn, TurnStatus, Verdict
from pgmem.domain.names import check_status
from pgmem.domain.plans import check_summary, check_text
from pgmem.domain.policy import MOST_TOKENS, MOST_TURNS, Policy, check_number, check_strategy
from pgmem.errors import InvalidArgument, NoSummaryModel, PgmemError
from pgmem.llm.judges import judge_of
from pgmem.llm.strategies import summariser_of
from pgmem.memory.arguments import MOST_NO, check_key, check_list, flag, message_of, position
from pgmem.memory.shared import Shared
from pgmem.operations import audit, compact, compress, context, erase, grow, maintain, policies, queued, revise, sessions
from pgmem.operations.background import CompactionTask
from pgmem.operations.compact import CompactionResult
from pgmem.operations.compress import Asking, Extent
from pgmem.operations.place import MOST_NOTE, Place
from pgmem.operations.queued import QueuedCompaction
from pgmem.store import job_queue

log = logging.getLogger("pgmem")


class Namespace:
    """A memory space of a session: its own tree, its own context.

    A namespace is a handle: it remembers the branch that it last saw in ``context()`` or made itself, so that a reply
    worked out on a line that was left behind is refused. Use one handle for one line of work.

    Attributes:
        name: the namespace.
    """

    def __init__(self, shared: Shared, found: sessions.SessionRow, name: str, *, branch: int | None) -> None:
        self.name = name
        self._shared = shared
        self._found = found
        self._branch = branch
        self._version: int | None = None
        self._through: int | None = None
        self._place = Place(shared.database, found.session_id, found.key, found.created_at, name, shared.count, shared.emit)

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
        message = message_of(role, content, {"tool_calls": tool_calls, "tool_call_id": tool_call_id, "name": name}, extra)
        check_key(idempotency_key)
        turn = grow.new_turn(self._place, message, pinned=flag("pinned", pinned), idempotency_key=idempotency_key)
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
        check_list("messages", messages)
        if idempotency_keys is not None:
            check_list("idempotency_keys", idempotency_keys)
        keys = list(idempotency_keys) if idempotency_keys is not None else [None] * len(messages)
        for key in keys:
            check_key(key)
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
            raise InvalidArgument(f"system is of type {type(system).__name__}: give the prompt as a text")
        if budget_tokens is not None:
            check_number("budget_tokens", budget_tokens, least=1, most=MOST_TOKENS * 100)
        if as_of is not None:
            check_number("as_of", as_of, least=0, most=MOST_NO)
        built = await context.build(
            self._place, system=system, budget_tokens=budget_tokens, as_of=as_of, memory_role=self._shared.memory_role
        )
        if as_of is None:
            self._branch, self._version, self._through = built.branch, built.version, built.through
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
            summary: your own text for the turns, kept byte for byte. It covers what this handle's last ``context()`` showed, or
                all active turns where there was none since its last ``revise()`` or ``erase()``.
            label: a short title, 1 to 256 characters.
            kind: what it is about, 1 to 64 characters.
            strategy: ``llm`` or ``tool_clear``, when no summary is given; ``llm`` by default.
            keep_recent: the newest turns that stay active.
            through: the last turn, or its position, that may be covered.
            cumulative: whether your summary stands for all memory before it too.

        Returns:
            The node; None when there is nothing to cover, which an event explains.

        Raises:
            NoSummaryModel: there is neither a summary nor a summary model, and the strategy is not ``tool_clear``.
            SummaryFailed: the model gave no summary; nothing was written.
            EmptySummary: the summary is blank.
            SummaryTooLong: the summary is over the policy's ``max_summary_tokens``.
            StaleTree: the tree moved on meanwhile, or since the context that your summary was written from; nothing was written.
        """
        check_text("kind", kind, most=64)
        if label is not None:
            check_text("label", label, most=256)
        check_number("keep_recent", keep_recent, least=0, most=MOST_TURNS)
        last = position("through", through)
        most = self._shared.policy.max_summary_tokens
        if summary is not None:
            if strategy is not None:
                raise InvalidArgument("give either a summary or a strategy, not both")
            text = check_summary(summary, max_summary_tokens=most, count=self._shared.count)
            through = self._through if last is None else last
            extent = Extent(keep_recent=keep_recent, through=through, version=self._version)
            node = await compress.by_given_summary(
                self._place, extent, summary=text, kind=kind, label=label, cumulative=flag("cumulative", cumulative)
            )
            if node is not None and self._version is not None:
                self._version += 1  # its own commit, and nobody else's: the expectation says so
            return node
        if cumulative:
            raise InvalidArgument("cumulative is for a summary of your own: what a strategy makes is cumulative anyway")
        chosen = Strategy.LLM if strategy is None else check_strategy(strategy)
        extent = Extent(keep_recent=keep_recent, through=last)
        return await self._by_strategy(chosen, extent, kind=kind, label=label)

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
        policy = self._policy(threshold, keep_recent, strategy)
        extent = Extent(threshold=policy.threshold, keep_recent=policy.keep_recent)
        return await self._by_strategy(policy.strategy, extent, kind=compact.KIND, label=None)

    async def compact_async(
        self,
        *,
        threshold: int | None = None,
        keep_recent: int | None = None,
        strategy: str | None = None,
        on_fail: str = "retry",
        connection: Any = None,
    ) -> CompactionTask | QueuedCompaction:
        """The same as ``compact`` off the response path, with a judge behind it: returns at once, await the task for its end.

        The task is owned by the Memory, one a tree: a second call joins the one under way. With a summary model the
        strategy is ``llm`` and every summary is judged; what ``tool_clear`` makes is not.

        Args:
            threshold: as in ``compact``.
            keep_recent: as in ``compact``.
            strategy: ``llm`` by default when a summary model is set; with the queue, when the worker has one.
            on_fail: ``retry`` asks again with what the judge said, up to the policy's ``max_attempts``, then ``tool_clear``
                makes the node; ``keep_raw`` leaves the turns raw, and once ``max_attempts`` failed asks nobody.
            connection: with ``open(background="queue")``, your own ``psycopg.AsyncConnection``: the job becomes part of its
                transaction. When that is rolled back a sweep finds the tree, if it is still due.

        Returns:
            A task; awaiting it gives a ``CompactionResult`` with ``node``, ``verdict`` and ``attempts``, or raises. With the
            queue, a ``QueuedCompaction``: a worker does it, and its models write and judge.
        """
        if on_fail not in ("retry", "keep_raw"):
            raise InvalidArgument(f"on_fail is {on_fail!r:.100}: use 'retry' or 'keep_raw'")
        with_model = Strategy.LLM if self._shared.summariser is not None or self._shared.queued else None
        policy = self._policy(threshold, keep_recent, strategy or with_model)
        retry = on_fail == "retry"
        if self._shared.queued:
            return await queued.put(self._place, policy, retry=retry, connection=connection)
        if connection is not None:
            raise InvalidArgument("connection is for the queue: pgmem.open(background='queue')")
        if policy.strategy is Strategy.LLM:
            self._asking()
        key = (self._place.session_id, self.name)
        return self._shared.compactions.start(
            key,
            str(self._place),
            lambda: self._compacted(policy, retry=retry),
            leave=partial(self._leave, policy, retry=retry),
        )

    async def maintain(self, node: int | Node | None = None, *, judge: Any = None) -> Verdict | None:
        """Asks a judge whether a summary may stand, and stores the verdict.

        A failed node leaves the path in the same commit, with what was built on it, and its turns are active again; if they
        are over the policy's threshold then, ``tool_clear`` makes a node of them at once.

        Args:
            node: the node or its position; by default the newest pending one that the context shows and a model or you wrote.
            judge: ``"coverage"``, a model or an async function; by default the judge model, or ``coverage`` without one.

        Returns:
            The verdict; where no node is named and somebody else judged it meanwhile, theirs. None when no node is named and
            none is pending.

        Raises:
            NodeNotFound: there is no such node.
            JudgeFailed: the judge gave no verdict; the node stays as it was.
            StaleTree: the tree moved on too often; nothing was written.
        """
        no = position("node", node)
        asked = self._shared.judge if judge is None else judge_of(judge)
        seconds = self._shared.database.settings.model_timeout_seconds
        done = await maintain.maintain(self._place, no, judge=asked, goal=self._found.goal, deadline_seconds=seconds)
        if done is None:
            return None
        if done.is_own and done.verdict.reopened is not None:
            policy = self._shared.policy
            extent = Extent(threshold=policy.threshold, keep_recent=policy.keep_recent)
            try:
                await compact.fall_back(self._place, extent, policy.max_summary_tokens)
            except PgmemError as fault:
                # the verdict is stored: who asked for it must get it
                log.warning("no node by tool_clear after a fail in %s: %s; compact() makes it", self._place, fault)
        return done.verdict

    async def revise(
        self,
        node: int | Node | None = None,
        *,
        after: int | Node | None = None,
        after_turn: int | Turn | None = None,
        note: str | None = None,
        keep_turns: bool = False,
        actor: str | None = None,
    ) -> Branch:
        """Goes back to a point on the active line; what lies past it is left behind, never deleted.

        Args:
            node: goes back to before this node; the newest attempt by default: a failed node whose turns are active, or
                the head.
            after: goes back to after this node.
            after_turn: goes back to after this turn; turns up to it that a node covered are active again.
            note: what the next attempt should know; shown as a "prior attempt" hint. The failed verdict's reason by default.
            keep_turns: whether only nodes leave the path and their turns are active again.
            actor: who asked for it, for the audit; 1 to 256 characters.

        Raises:
            InvalidArgument: more than one point is named, or an argument cannot be kept.
            NodeNotFound: there is no such node.
            NotOnActiveLine: the point was left behind before.
            StaleTree: the tree moved on meanwhile; nothing was written.
        """
        point = revise.Point(
            before=position("node", node), after=position("after", after), after_turn=position("after_turn", after_turn)
        )
        if sum(place is not None for place in (node, after, after_turn)) > 1:
            raise InvalidArgument("name one point to go back to: node=, after= or after_turn=")
        if note is not None and not check_text("note", note, most=MOST_NOTE).strip():
            raise InvalidArgument("the note is blank: leave it out, or say what the next attempt should know")
        if actor is not None:
            check_text("actor", actor, most=256)
        branch = await revise.revise(self._place, point, note=note, keep_turns=flag("keep_turns", keep_turns), actor=actor)
        self._branch, self._version, self._through = branch.no, None, None
        return branch

    async def erase(self, *, keep_summary: bool = False, actor: str | None = None) -> Branch:
        """Leaves all turns so far behind: the model sees nothing from before, and every turn stays in the table.

        Args:
            keep_summary: whether the memory of the head stays.
            actor: who asked for it, for the audit; 1 to 256 characters.
        """
        if actor is not None:
            check_text("actor", actor, most=256)
        branch = await erase.erase(self._place, keep_summary=flag("keep_summary", keep_summary), actor=actor)
        self._branch, self._version, self._through = branch.no, None, None
        return branch

    async def count_left(self, branch: int | Branch) -> int:
        """How many turns a branch left behind when it began; those that one before it had left are not counted again.

        Args:
            branch: what ``erase()`` or ``revise()`` gave, or its position; 0 for a position where no branch began.
        """
        no = branch.no if isinstance(branch, Branch) else check_number("branch", branch, least=0, most=MOST_NO)
        return await erase.count_left(self._place, no)

    def another(self, *, policy: Policy | None = None, summary_model: Any = None) -> Namespace:
        """Another handle on the same tree: it has seen no branch yet, and may have settings of its own.

        Args:
            policy: when it compacts; as this handle if None.
            summary_model: writes its summaries, as in ``open()``; as this handle if None.
        """
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidArgument(f"policy is of type {type(policy).__name__}: give a pgmem.Policy")
        summariser = self._shared.summariser if summary_model is None else summariser_of(summary_model)
        shared = dataclasses.replace(self._shared, policy=policy or self._shared.policy, summariser=summariser)
        return Namespace(shared, self._found, self.name, branch=None)

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

    def verdicts(self) -> AsyncIterator[Verdict]:
        """Everything that a judge said of a node, in order; pages itself."""
        return audit.verdicts(self._place)

    async def verify(self) -> int | None:
        """Checks the hash chain over all facts.

        Returns:
            None when every fact is as it was stored; else the position of the first that is not, or 0 when only the tree
            row that points at them is not.
        """
        return await audit.verify(self._place)

    def _policy(self, threshold: int | None, keep_recent: int | None, strategy: str | None) -> Policy:
        base = self._shared.policy
        return dataclasses.replace(
            base,
            threshold=base.threshold if threshold is None else threshold,
            keep_recent=base.keep_recent if keep_recent is None else keep_recent,
            strategy=base.strategy if strategy is None else check_strategy(strategy),
        )

    def _asking(self) -> Asking:
        summariser = self._shared.summariser
        if summariser is None:
            raise NoSummaryModel(
                "there is nothing to make a summary with: give summary=, strategy='tool_clear', or open(summary_model=...)"
            )
        most, seconds = self._shared.policy.max_summary_tokens, self._shared.database.settings.model_timeout_seconds
        return Asking(summariser=summariser, goal=self._found.goal, max_summary_tokens=most, deadline_seconds=seconds)

    async def _by_strategy(self, strategy: Strategy, extent: Extent, *, kind: str, label: str | None) -> Node | None:
        if strategy is Strategy.LLM:
            return await compress.by_model(self._place, extent, self._asking(), kind=kind, label=label)
        most = self._shared.policy.max_summary_tokens
        return await compress.by_tool_clear(self._place, extent, kind=kind, label=label, max_summary_tokens=most)

    async def _compacted(self, policy: Policy, *, retry: bool, resume: bool = False) -> CompactionResult:
        extent = Extent(threshold=policy.threshold, keep_recent=policy.keep_recent)
        seconds = self._shared.database.settings.model_timeout_seconds
        judging = compact.Judging(judge=self._shared.judge, goal=self._found.goal, deadline_seconds=seconds, resume=resume)
        if policy.strategy is not Strategy.LLM:
            return await compact.by_tool_clear_judged(self._place, extent, judging, max_summary_tokens=policy.max_summary_tokens)
        return await compact.by_model_judged(
            self._place, extent, self._asking(), judging, max_attempts=policy.max_attempts, retry=retry
        )

    async def _leave(self, policy: Policy, *, retry: bool) -> bool:
        """Whether a worker has the compaction to do now."""
        put = await queued.put(self._place, policy, retry=retry, patience=job_queue.LITTLE_PATIENCE)
        return put.job_id is not None

    async def _compact_queued(self, no: int, *, retry: bool) -> CompactionResult:
        """Compacts by the settings that the tree holds at that position; what a worker left without a verdict is judged first."""
        policy = await policies.read(self._place, no)
        if policy is None:
            raise InvalidArgument(f"{self._place} has no settings at {no}")
        if policy.strategy is Strategy.LLM and self._shared.summariser is None:
            log.info("%s: this worker has no summary model, tool_clear makes the node", self._place)
            policy = dataclasses.replace(policy, strategy=Strategy.TOOL_CLEAR)
        return await self.another(policy=policy)._compacted(policy, retry=retry, resume=True)

    async def _append(self, turns: Sequence[grow.NewTurn], branch: int | None) -> list[Turn]:
        if branch is not None:
            check_number("branch", branch, least=0, most=MOST_NO)
        seen = self._branch if branch is None else branch
        added = await grow.append(self._place, turns, seen_branch=seen)
        if self._branch is None and added:
            self._branch = added[-1].branch
        return added
