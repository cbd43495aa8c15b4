"""Short ways to say what happens in a flow."""

from __future__ import annotations

from typing import Any

import pgmem
from pgmem.testing import ScriptedModel


def step(name: str, namespace: str | None = None, prompt: str | None = None, **methods: Any) -> type[pgmem.Step]:
    """A class of a step; methods are functions that take the step."""
    text = f"You are in {name}." if prompt is None else prompt
    body = {"namespace": namespace, "prompt": lambda self, state: text} | methods
    return type(name, (pgmem.Step,), body)


def erasing(name: str, namespace: str | None = None, **methods: Any) -> type[pgmem.Step]:
    """A step that starts clean whenever it is entered."""

    async def on_enter(self):
        await self.erase_memory()

    return step(name, namespace, on_enter=on_enter, **methods)


def flow_of(*steps: type[pgmem.Step], llm: ScriptedModel | None = None, enable: tuple[str, ...] = (), **config: Any) -> Any:
    """A class of a flow whose summaries the scripted model writes."""
    attempts = config.pop("retry_attempts", 1)

    def set_up(self, session):
        pgmem.Flow.__init__(self, session)
        if llm is not None:
            self.memory.set_summary_model(provider="openai", name="m", base_url=llm.base_url, retry_attempts=attempts)
        self.memory.set_summary_config(**config)
        for namespace in enable:
            self.memory.enable_summary(namespace)

    return type("TestFlow", (pgmem.Flow,), {"steps": list(steps), "__init__": set_up})


async def say(flow: pgmem.Flow, text: str, answer: str | None = None) -> list[dict[str, Any]]:
    """One exchange: the user's message, a request, the answer if any; gives the request."""
    async with flow.exchange(text) as x:
        request = await x.request()
        if answer is not None:
            await x.reply(answer)
    return request


async def talk(flow: pgmem.Flow, exchanges: int, start: int = 1) -> None:
    """So many exchanges of two messages."""
    for number in range(start, start + exchanges):
        await say(flow, f"question {number}", f"answer {number}")


def texts(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages]


def calls(*ids: str) -> list[dict[str, Any]]:
    return [{"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": "{}"}} for call_id in ids]


def counting(name, namespace=None, **methods):
    """A step that tells which of its hooks ran, in the class's own list."""
    ran = []

    async def on_enter(self):
        ran.append("enter")

    async def on_exit(self):
        ran.append("exit")

    async def on_restore(self):
        ran.append("restore")

    made = step(name, namespace, on_enter=on_enter, on_exit=on_exit, on_restore=on_restore, **methods)
    made.ran = ran
    return made


BEGUN = [(1, "A", [], {}), (2, "A", ["A"], {})]
"""What a start in A leaves: the claim, and the step that was entered."""


async def saved(owner, session):
    read = "select no, step, entered, state from pgmem.stage_log where session_id = %s order by flow, no"
    return [tuple(row.values()) for row in await (await owner.execute(read, (session._found.session_id,))).fetchall()]
