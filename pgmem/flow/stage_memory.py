"""How a flow's namespaces are summarised: which of them, by whom, and the two numbers that say when and how far."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, Self

from pgmem.domain.asks import Summariser
from pgmem.domain.model import Strategy
from pgmem.domain.names import check_namespace, shown
from pgmem.domain.policy import MOST_TURNS, Policy, check_number, check_strategy
from pgmem.errors import FlowNotReady, InvalidArgument
from pgmem.flow.step import Step, namespace_of
from pgmem.llm.strategies import summariser_of
from pgmem.memory.arguments import flag
from pgmem.memory.models import Models

log = logging.getLogger("pgmem")

LEAST_MESSAGES = 8
MIN_MESSAGES = 16
RECENT_MESSAGES = 8
PROVIDERS = ("openai",)

_NO_OPTIONS = {"retry_attempts": 3, "base_url": None, "api_key": None, "timeout_seconds": 60}

UNCHANGED: Final[Any] = type("Unchanged", (), {"__repr__": lambda _: "unchanged"})()
"""An argument that was left out: None is a value, and a wrong one."""


@dataclass(frozen=True, slots=True)
class Config:
    """When a flow's namespaces are compacted, and how far.

    Attributes:
        min_messages: the messages, the system prompt's slot included, at which one is compacted.
        recent_messages: the newest that stay verbatim; None for the default, which fits any ``min_messages``.
        strategy: how the summary is made.
        background: whether that happens off the exchange.
    """

    min_messages: int = MIN_MESSAGES
    recent_messages: int | None = None
    strategy: Strategy = Strategy.LLM
    background: bool = False

    @property
    def recent(self) -> int:
        """How many stay verbatim: what was set, else 8, or half of ``min_messages`` where that is less."""
        return min(RECENT_MESSAGES, self.min_messages // 2) if self.recent_messages is None else self.recent_messages

    def policy(self, base: Policy) -> Policy:
        """The same as a policy of turns, which knows no slot for the system prompt."""
        return replace(base, threshold=self.min_messages - 1, keep_recent=self.recent, strategy=self.strategy)


class StageMemory:
    """A flow's memory settings; each call gives the object back, so that they chain.

    They belong to this flow object alone: set them in ``Flow.__init__``, after ``super().__init__(session)``.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._summariser: Summariser | None = None
        self._config = Config()
        self._enabled: dict[str, None] = {}
        self._closed = False

    def set_summary_model(
        self,
        model: Any = None,
        *,
        provider: str | None = None,
        name: str | None = None,
        retry_attempts: int = 3,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 60,
    ) -> Self:
        """Says who writes the summaries: a model of a provider, or anything that ``pgmem.open(summary_model=...)`` takes.

        Args:
            model: a ``pgmem.OpenAIModel``, or an async function from a ``SummaryRequest`` to a text or a ``Summary``; it brings
                its own attempts.
            provider: ``openai``, for a model by its name, at OpenAI or at any server that speaks its API.
            name: the model's name at the provider.
            retry_attempts: how many requests one question may take in all, from 1.
            base_url: a server of your own that speaks OpenAI's API.
            api_key: the key; ``OPENAI_API_KEY`` by default.
            timeout_seconds: the most that one request may take.

        Raises:
            InvalidArgument: there is no such provider, or an argument cannot be used.
        """
        self._check_open()
        options: dict[str, Any] = {
            "retry_attempts": retry_attempts,
            "base_url": base_url,
            "api_key": api_key,
            "timeout_seconds": timeout_seconds,
        }
        if model is not None:
            if provider is not None or name is not None or options != _NO_OPTIONS:
                raise InvalidArgument("give either a model, which brings its own options, or provider= and name= with theirs")
            if isinstance(model, str):
                raise InvalidArgument(f"the summary model is {shown(model)}: name it with provider='openai', name={shown(model)}")
            self._summariser = summariser_of(model)
            return self
        if provider not in PROVIDERS:
            near = nearest(provider, PROVIDERS)
            raise InvalidArgument(
                f"the summary provider is {shown(provider)}: use 'openai'{near}, or give a pgmem.OpenAIModel or an async function"
            )
        if name is None:
            raise InvalidArgument("the summary model has no name: give name=, such as 'gpt-4o'")
        self._summariser = summariser_of(self._models.openai(name, **options))
        return self

    def set_summary_config(
        self,
        *,
        min_messages: int = UNCHANGED,
        recent_messages: int = UNCHANGED,
        strategy: str = UNCHANGED,
        background: bool = UNCHANGED,
    ) -> Self:
        """Says when a namespace is compacted, and how far; what is left out stays as it was.

        Args:
            min_messages: the messages at which it is, the system prompt's slot included; at least 8, by default 16.
            recent_messages: the newest that stay verbatim, from 1 to ``min_messages`` - 2; by default 8, or half of
                ``min_messages`` where that is less. A quarter to a half of it is usual.
            strategy: ``llm``, or ``tool_clear``, which asks no model.
            background: whether the exchange ends without waiting for it; the summary is judged then.

        Raises:
            InvalidArgument: a value is of the wrong type or out of range; nothing is changed.
        """
        self._check_open()
        given: dict[str, Any] = {}
        if min_messages is not UNCHANGED:
            given["min_messages"] = check_number("min_messages", min_messages, least=LEAST_MESSAGES, most=MOST_TURNS)
        if recent_messages is not UNCHANGED:
            given["recent_messages"] = check_number("recent_messages", recent_messages, least=1, most=MOST_TURNS)
        if strategy is not UNCHANGED:
            given["strategy"] = check_strategy(strategy)
        if background is not UNCHANGED:
            given["background"] = flag("background", background)
        merged = replace(self._config, **given)
        _check_fit(merged, defaulted="min_messages" not in given and self._config.min_messages == MIN_MESSAGES)
        _advise(merged)
        self._config = merged
        return self

    def enable_summary(self, namespace: str | type[Step]) -> Self:
        """Has a namespace of the flow's steps summarised; the others keep every message verbatim.

        Args:
            namespace: its exact name, upper and lower case included, or a step's class for the one that it uses.

        Raises:
            InvalidArgument: it cannot name a namespace. That no step uses it is found when the flow starts.
        """
        self._check_open()
        name = namespace_of(namespace) if isinstance(namespace, type) and issubclass(namespace, Step) else namespace
        self._enabled[check_namespace(name)] = None
        return self

    def _check_open(self) -> None:
        if self._closed:
            raise FlowNotReady("the flow is started already: set its memory up in its __init__, after super().__init__(session)")


def nearest(name: object, known: tuple[str, ...]) -> str:
    """`` (did you mean 'x'?)`` when one of the known names is near; empty when none is."""
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(str(name).casefold(), folded, n=1)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


def _check_fit(config: Config, *, defaulted: bool) -> None:
    most = config.min_messages - 2
    if config.recent > most:
        default = " (the default)" if defaulted else ""
        raise InvalidArgument(
            f"recent_messages is {config.recent} and min_messages is {config.min_messages}{default}: "
            f"recent_messages must be from 1 to {most}, min_messages - 2, or nothing is left to summarise"
        )


def _advise(config: Config) -> None:
    if config.recent_messages is None and config.recent < RECENT_MESSAGES:
        log.info(
            "recent_messages is not set, and its default of %d is lowered to %d to fit min_messages %d",
            RECENT_MESSAGES,
            config.recent,
            config.min_messages,
        )
    if not config.min_messages <= 4 * config.recent <= 2 * config.min_messages:
        log.info(
            "recent_messages %d is not between a quarter and a half of min_messages %d: fewer lose the thread, more are "
            "summarised often",
            config.recent,
            config.min_messages,
        )
