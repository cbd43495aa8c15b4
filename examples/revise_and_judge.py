"""Summaries by a model, a judge that turns one down, and a wrong way that is left; a scripted endpoint stands in for the model."""

import asyncio

import pgmem
from pgmem.testing import ScriptedModel, failing, passing, summary

POLICY = pgmem.Policy(threshold=4, keep_recent=1)
SCRIPT = [
    summary("The job list-totals is slow, and Ada wants it under 2 seconds."),
    failing("It drops that the table must not be locked.", ["no lock on orders"]),
    summary("The job list-totals is slow; Ada wants it under 2 seconds, with no lock on orders."),
    passing(),
]


async def show(session: pgmem.Session, title: str) -> None:
    """Prints what the agent's model would be sent now."""
    print(title)
    for message in (await session.context()).messages:
        print(f"  {message['role']}: {message['content']}".replace("\n", "\n    "))


async def judged_summary(session: pgmem.Session) -> None:
    """The first summary drops a constraint: it is told to the model, and the second one stands."""
    await session.add_turn("user", "The job list-totals is slow, make it finish in under 2 seconds.")
    await session.add_turn("assistant", "I will look at its plan.")
    await session.add_turn("user", "But whatever you do, put no lock on orders.")
    await session.add_turn("assistant", "Understood, no lock on orders.")
    done = await (await session.compact_async())
    print(f"{done.attempts} summaries were written, the verdict on the last one: {done.verdict.outcome}")
    async for node in session.nodes():
        print(f"  node {node.no} {node.status}: {node.summary}")


async def another_way(session: pgmem.Session) -> None:
    """An attempt fails: it is left behind, and its lesson stays."""
    start = await session.add_turn("user", "Go ahead.")
    await session.add_turn("assistant", "I have put an index on orders(day).")
    await session.add_turn("assistant", "It takes 9 seconds still: the planner does not use the index.")
    await session.revise(after_turn=start, note="An index on orders(day) is not used, it takes 9 seconds.", actor="agent")
    await show(session, "What the next attempt is sent:")
    await session.add_turn("assistant", "I have made a table of totals, kept by the writers: 0.1 seconds.")


async def main() -> None:
    """Works on one task, and audits it."""
    async with (
        ScriptedModel(SCRIPT) as endpoint,
        pgmem.OpenAIModel("scripted", base_url=endpoint.base_url) as model,  # your model and its server go here
        pgmem.open(policy=POLICY, summary_model=model, judge_model=["coverage", model]) as memory,
    ):
        session = await memory.session("revise-and-judge", goal="Make list-totals fast.")
        if [turn async for turn in session.turns()]:
            print("this session has run already: take another key, or another PGMEM_HOME")
            return
        await judged_summary(session)
        await another_way(session)
        print("Where is every turn now?")
        async for turn in session.turns():
            print(f"  {turn.no:>2} {turn.status:<10} {turn.content}")
        print("the chain is whole" if await session.verify() is None else "the chain is broken")


if __name__ == "__main__":
    asyncio.run(main())
