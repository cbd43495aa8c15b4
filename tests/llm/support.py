"""Turns and requests without a database, and reading fenced prompts back."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from pgmem.domain.asks import JudgeRequest, SummaryRequest
from pgmem.domain.model import Node, Strategy, Turn
from pgmem.domain.tokens import count_tokens, message_text
from pgmem.llm.openai_model import OpenAIModel
from pgmem.testing import ScriptedModel

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def turns(*messages):
    return tuple(
        Turn(no, 0, message, pinned=False, tokens=count_tokens(message_text(message)), idempotency_key=None, created_at=WHEN)
        for no, message in enumerate(messages, 1)
    )


def user(text, **fields):
    return {"role": "user", "content": text, **fields}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id, text):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


TALK = turns(
    user("Deploy build 4711 to staging, never to production. " * 3),
    assistant(None, tool_calls=[call("call_1", "deploy", '{"build": 4711}')]),
    result("call_1", "deployed to https://staging.example/4711"),
    assistant("Done: staging runs build 4711. " * 3),
)


def asking(given=TALK, **fields):
    return SummaryRequest(turns=given, **fields)


def judging(summary="Staging runs build 4711.", given=TALK, **fields):
    node = Node(
        no=5,
        branch=0,
        parent=None,
        first_no=1,
        last_no=len(given),
        kind="topic",
        label=None,
        strategy=Strategy.LLM,
        summary=summary,
        cumulative=True,
        tokens=count_tokens(summary),
        source_tokens=sum(turn.tokens for turn in given),
        model=None,
        prompt_version=None,
        created_at=WHEN,
    )
    return JudgeRequest(node=node, turns=given, **fields)


@asynccontextmanager
async def scripted(answers=(), *, rule=None, no_json_schema=False, no_json_object=False, format_status=500, **options):
    """A scripted endpoint and a model that asks it."""
    away = {"no_json_schema": no_json_schema, "no_json_object": no_json_object, "format_status": format_status}
    async with (
        ScriptedModel(answers, rule=rule, **away) as endpoint,
        OpenAIModel("scripted", base_url=endpoint.base_url, api_key="secret-key-1", **options) as model,
    ):
        yield endpoint, model


def blocks(prompt):
    """The blocks of a prompt in order, as (name, attributes, text), read by the mark alone."""
    mark = re.search(r"the mark ([0-9a-f]{16}) begins", prompt)[1]
    found = re.findall(rf"^<<(\w+) {mark}([^\n]*)>>\n(.*?)\n<</\1 {mark}>>$", prompt, re.MULTILINE | re.DOTALL)
    return [(name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', shown)), text) for name, shown, text in found]
