"""The audit in Python: where every turn is, what the model saw when it answered, and whether anything was edited."""

import asyncio

import pgmem


async def talk(session: pgmem.Session) -> None:
    """A conversation in which something is compressed and something is erased."""
    await session.add_turn("user", "Book table 12 for four.")
    await session.add_turn("assistant", "Table 12 is yours, confirmation TX-9931.")
    await session.context()
    await session.compress(summary="Table 12 is booked for four, confirmation TX-9931.", label="booking")
    await session.add_turn("user", "Which confirmation was it?")
    await session.add_turn("assistant", "TX-9931.")
    await session.erase(actor="ada")
    await session.add_turn("user", "Hello again.")


async def audit(session: pgmem.Session) -> None:
    """Prints what an auditor would ask for."""
    print("Where is every turn now?")
    said_at = 0
    async for turn in session.turns():
        print(f"  {turn.no:>2} {turn.status:<10} {turn.role:<9} {turn.content}")
        if turn.content == "TX-9931.":
            said_at = turn.no

    print(f"What did the model see when it said turn {said_at}?")
    for message in (await session.context(as_of=said_at - 1)).messages:
        print(f"  {message['role']}: {message['content']}")

    print("Who left what behind?")
    async for branch in session.branches():
        print(f"  {branch.cause} by {branch.actor}: turns {branch.left_from} to {branch.left_to}")

    broken = await session.verify()
    print("Is every fact as it was stored?", "yes" if broken is None else f"not from {broken} on")


async def main() -> None:
    """Talks once, and audits."""
    async with pgmem.open() as memory:
        session = await memory.session("audit-example")
        if not [turn async for turn in session.turns()]:
            await talk(session)
        await audit(session)


if __name__ == "__main__":
    asyncio.run(main())
