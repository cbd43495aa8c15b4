"""An agent loop with a stand-in for the model: it needs no API key, and no database where PGMEM_DATABASE_URL is not set."""

import asyncio
import json
import re

import pgmem

SYSTEM = "You sell spare parts. Look a part up before you name its article."
PARTS = {"hinge": "A-1042", "handle": "B-2210", "lock": "C-3377", "spring": "D-4018", "washer": "E-5501"}


def find_part(name: str) -> str:
    """The tool; its result is long, as tool results are."""
    stock = "\n".join(f"shelf {shelf}: {shelf * 7 % 11} pieces, counted by hand, see the ledger" for shelf in range(1, 21))
    return f"part {name}\narticle {PARTS[name]}\n{stock}"


def model(messages: list[dict]) -> dict:
    """Put your provider's API here: it takes chat messages and gives the assistant's next one."""
    last, sent = messages[-1], "\n".join(str(message["content"]) for message in messages)
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"It is {re.search('article (.+)', last['content'])[1]}."}
    if "first" in last["content"]:
        known = [article for article in PARTS.values() if article in sent]
        return {"role": "assistant", "content": f"The first was {known[0]}, of {len(known)} that I still know."}
    name = last["content"].split()[-1].strip("?")
    call = {"id": f"call_{name}", "type": "function", "function": {"name": "find_part", "arguments": json.dumps({"name": name})}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def answer(session: pgmem.Session, question: str) -> str:
    """Answers one question, with as many calls of the model as it takes."""
    await session.add_turn("user", question)
    while True:
        context = await session.context(SYSTEM)
        message = model(context.messages)
        await session.add_turns([message])
        for call in message.get("tool_calls") or []:
            found = find_part(**json.loads(call["function"]["arguments"]))
            await session.add_turn("tool", found, tool_call_id=call["id"])
        node = await session.compact()
        if node is not None:
            print(f"  turns {node.first_no} to {node.last_no}, {node.source_tokens} tokens, are behind node {node.no} now")
        if not message.get("tool_calls"):
            return message["content"]


async def main() -> None:
    """Asks for every part, then for the first one again."""
    async with pgmem.open(policy=pgmem.Policy(threshold=8, keep_recent=4)) as memory:
        session = await memory.session("parts-shop")
        for name in PARTS:
            print(await answer(session, f"Which article is the {name}?"))
        print(await answer(session, "And which was the first?"))
        turns = [turn async for turn in session.turns()]
        context = await session.context(SYSTEM)
        print(f"{len(turns)} turns are stored, {sum(turn.tokens for turn in turns)} tokens; sent next: {context.tokens} tokens")
        print("the chain is whole" if await session.verify() is None else "the chain is broken")


if __name__ == "__main__":
    asyncio.run(main())
