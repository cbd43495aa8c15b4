"""The agent's own model writes the summaries; a stand-in takes its place here."""

import asyncio

import pgmem

ASK = {"role": "user", "content": "Sum up what we know so far, in a few sentences, with every name and number."}


def model(messages: list[dict]) -> str:
    """Put your provider's API here: it takes chat messages and gives a text."""
    said = [message["content"] for message in messages if message["role"] == "user"]
    if said[-1] == ASK["content"]:
        return "The user said: " + " ".join(said[:-1])
    return "Noted."


async def compress(session: pgmem.Session) -> None:
    """Asks the model for a summary of what it sees, and puts that in its place."""
    for _ in range(3):
        context = await session.context()
        summary = model([*context.messages, ASK])
        try:
            node = await session.compress(summary=summary, label="so far")
        except pgmem.StaleTree:
            continue  # somebody else compressed or erased meanwhile: look again
        except (pgmem.EmptySummary, pgmem.SummaryTooLong):
            node = await session.compress(strategy="tool_clear")
        if node is not None:
            print(f"node {node.no} stands for turns {node.first_no} to {node.last_no}: {node.summary!r}")
        return


async def main() -> None:
    """Says six things, and sums up after every other one."""
    async with pgmem.open() as memory:
        session = await memory.session("given-summaries")
        for number, fact in enumerate(["My name is Ann.", "I live in Oslo.", "Flat 1042.", "Two cats.", "No car.", "Call me."], 1):
            await session.add_turn("user", fact)
            await session.add_turn("assistant", model((await session.context()).messages))
            if number % 2 == 0:
                await compress(session)
        for message in (await session.context()).messages:
            print(f"{message['role']}: {message['content']}")
        print([f"{node.label} ({node.first_no}-{node.last_no})" for node in await session.path()])


if __name__ == "__main__":
    asyncio.run(main())
