"""The model that a command asks: its options, and how it is made of them. The key is never an option: ``ps`` would show it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

import pgmem
from pgmem import InvalidArgument, Judgement, JudgeRequest, Summary, SummaryRequest, settings
from pgmem.cli.render import complaints, inert

if TYPE_CHECKING:
    from pgmem import OpenAIModel  # at run time only when a model is asked: it brings the openai package along

KEY_HELP = "The key of the model's server is read from OPENAI_API_KEY; a server of your own may need none."

ModelName = Annotated[str | None, typer.Option("--model", help="The model that llm asks.", metavar="NAME", show_default=False)]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        help="Its server: OpenAI's own, or any that speaks its API. Without it OPENAI_BASE_URL counts.",
        metavar="URL",
        show_default=False,
    ),
]
RequestSeconds = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        help="The most that one request to it may take, 60 if not given; PGMEM_MODEL_TIMEOUT_SECONDS bounds them all.",
        metavar="SECONDS",
        min=0.1,
        max=86_400,
        show_default=False,
    ),
]


class JudgeName(StrEnum):
    """Who can be asked to judge."""

    COVERAGE = "coverage"
    LLM = "llm"


Judges = Annotated[
    list[JudgeName] | None,
    typer.Option(
        "--judge",
        help="Who judges, coverage if not given. Given twice, the second is asked about what the first passed.",
        metavar="coverage|llm",
        show_default=False,
    ),
]

_REQUEST_SECONDS = 60.0


def on_standard_error(sentence: str) -> None:
    """One line on standard error: standard output is for what was asked for."""
    complaints().print(inert(sentence))


@dataclass(slots=True)
class Asked:
    """A model that says, the first time that it is asked, who is asked and for how long at most.

    Attributes:
        model: the model.
        notice: what is said.
        say: says it.
    """

    model: OpenAIModel
    notice: str
    say: Callable[[str], object] = on_standard_error
    _said: bool = field(default=False, init=False)

    async def summarise(self, request: SummaryRequest) -> Summary:
        """As the model does."""
        self._say_once()
        return await self.model.summarise(request)

    async def judge(self, request: JudgeRequest) -> Judgement:
        """As the model does."""
        self._say_once()
        return await self.model.judge(request)

    def _say_once(self) -> None:
        if not self._said:
            self._said = True
            self.say(self.notice)


def chosen_model(
    name: str | None, base_url: str | None, request_seconds: float | None, *, option: str, wanted: bool
) -> Asked | None:
    """The model of a command line, not yet connected; None where none is wanted.

    Args:
        name: ``--model``.
        base_url: ``--base-url``.
        request_seconds: ``--timeout``.
        option: what asks for a model, as it is written: ``--strategy llm``.
        wanted: whether it was asked for.

    Raises:
        typer.BadParameter: the options do not fit each other, or cannot be used.
        InvalidArgument: there is no key for OpenAI's own server.
    """
    if not wanted:
        if any(given is not None for given in (name, base_url, request_seconds)):
            raise typer.BadParameter(f"--model, --base-url and --timeout are for {option}: add it, or leave them out")
        return None
    if name is None:
        raise typer.BadParameter(f"{option} needs a model: name it with --model")
    if not (base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")):
        raise InvalidArgument("there is no key for OpenAI: set OPENAI_API_KEY, or name a server of your own with --base-url")
    seconds = _REQUEST_SECONDS if request_seconds is None else request_seconds
    try:
        model = pgmem.OpenAIModel(name, base_url=base_url, timeout_seconds=seconds)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error
    return Asked(model, _notice(name, base_url, seconds))


@asynccontextmanager
async def connected(asked: Asked | None) -> AsyncIterator[Asked | None]:
    """The model, whose connections end with the body."""
    if asked is None:
        yield None
        return
    async with asked.model:
        yield asked


def _notice(name: str, base_url: str | None, request_seconds: float) -> str:
    in_all = settings.read().model_timeout_seconds
    return f"asking {name} at {_server(base_url)}: at most {min(request_seconds, in_all):g} s a request, {in_all:g} s in all"


def _server(base_url: str | None) -> str:
    """The server without a password or a query."""
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        return "OpenAI"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "OPENAI_BASE_URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
