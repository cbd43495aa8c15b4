"""A message as people read it: its text, then its tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from pgmem import Message
from pgmem.cli.render import counted, inert, one_line
from pgmem.domain.tokens import call_name_and_arguments, content_text, count_tokens, message_text


def tokens_of(message: Message) -> int:
    """The size of a message, as the context counts it."""
    return count_tokens(message_text(message))


def preview(message: Message, most: int = 100) -> str:
    """The beginning of the message on one line."""
    return one_line("  ".join([content_text(message.get("content"))[: most * 10], *_calls(message)]), most)


def as_page(messages: Sequence[Message]) -> Group:
    """All of the messages, each under a line that says whose it is and how large."""
    parts = []
    for message in messages:
        answers = f"  answers {message['tool_call_id']}" if message.get("tool_call_id") else ""
        parts.append(Text(inert(f"── {message['role']}{answers}  {counted(tokens_of(message), 'token')}"), style="bold"))
        body = "\n".join(part for part in (content_text(message.get("content")), *_calls(message)) if part)
        parts += [Text(inert(body)), Text()]
    return Group(*parts)


def _calls(message: Message) -> list[str]:
    found = map(call_name_and_arguments, message.get("tool_calls") or ())
    return [f"→ {name} {arguments}" for name, arguments in found]
