"""Short ways to say what happens in a conversation."""

from __future__ import annotations

from typing import Any

import pgmem


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, name: str = "look_up", arguments: str = "{}") -> dict[str, Any]:
    made = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, text: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def text_of(context: pgmem.Context) -> str:
    """All that the context says, for looking for what should or should not be there."""
    return "\n".join(str(message) for message in context.messages)


async def statuses(session: pgmem.Namespace) -> dict[int, str]:
    return {turn.no: str(turn.status) async for turn in session.turns()}


def fault_of_provider(messages: list[dict[str, Any]]) -> str | None:
    """Why OpenAI's chat API would refuse the messages; None when it would not."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"a result without its call: {message['tool_call_id']}"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"calls without results: {waiting}"
        if "tool_calls" in message and not message["tool_calls"]:
            return "an empty list of calls"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return f"calls without results: {waiting}" if waiting else None


def fault_of_anthropic(request: dict[str, Any]) -> str | None:
    """Why Anthropic's Messages API would refuse the request; None when it would not."""
    turns, waiting, used = request["messages"], set(), set()
    for index, turn in enumerate(turns):
        if turn["role"] != ("user", "assistant")[index % 2]:
            return f"message {index} is of the role {turn['role']}"
        if not turn["content"]:
            return f"message {index} is empty"
        answered = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        if set(answered) != waiting or len(answered) != len(waiting):
            return f"message {index} answers {answered}, not {waiting}"
        kinds = [block["type"] for block in turn["content"]]
        if "tool_result" in kinds[len(answered) :]:
            return f"message {index} has results after other blocks"
        if any(block["type"] == "text" and not block["text"].strip() for block in turn["content"]):
            return f"message {index} has a blank text"
        made = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        if used & set(made) or len(set(made)) != len(made):
            return f"message {index} uses an id twice"
        used |= set(made)
        waiting = set(made)
    return f"calls without results: {waiting}" if waiting else None
