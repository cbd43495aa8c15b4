"""The model that a command asks: its options, and how it is made of them. The key is never an option: ``ps`` would show it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import pgmem
from pgmem import InvalidArgument

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


def chosen_model(name: str | None, base_url: str | None, *, option: str, wanted: bool) -> OpenAIModel | None:
    """The model of a command line, not yet connected; None where none is wanted.

    Args:
        name: ``--model``.
        base_url: ``--base-url``.
        option: what asks for a model, as it is written: ``--strategy llm``.
        wanted: whether it was asked for.

    Raises:
        typer.BadParameter: the options do not fit each other, or cannot be used.
        InvalidArgument: there is no key for OpenAI's own server.
    """
    if not wanted:
        if name is not None or base_url is not None:
            raise typer.BadParameter(f"--model and --base-url are for {option}: add it, or leave them out")
        return None
    if name is None:
        raise typer.BadParameter(f"{option} needs a model: name it with --model")
    if not (base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")):
        raise InvalidArgument("there is no key for OpenAI: set OPENAI_API_KEY, or name a server of your own with --base-url")
    try:
        return pgmem.OpenAIModel(name, base_url=base_url)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


@asynccontextmanager
async def connected(model: OpenAIModel | None) -> AsyncIterator[OpenAIModel | None]:
    """The model, whose connections end with the body."""
    if model is None:
        yield None
        return
    async with model:
        yield model
