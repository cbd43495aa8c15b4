"""A voice agent: the caller hears every reply at once, while a summary that takes a second is written by a worker.

Speech, the agent's model and the summary model are stand-ins, so it needs no API key, and no database where PGMEM_DATABASE_URL is
not set. The worker is a task of this script here; in production it is ``pgmem worker``, a process of its own. It does whatever the
queue of that database holds, so name none that is in use.
"""

import asyncio
import uuid

import pgmem

SYSTEM = "You book tables by telephone. Be brief."
SUMMARY_SECONDS = 1.0
SPEECH_SECONDS = 0.3
CALL = [  # what speech recognition heard, and what the agent's model answers
    ("Hello, I would like to book a table.", "Gladly. For which day?"),
    ("For Friday.", "And at what time?"),
    ("At eight in the evening.", "For how many people?"),
    ("We are six, one of us in a wheelchair.", "Then I take a table on the ground floor."),
    ("Is there one by the window?", "There is one by the window."),
    ("Lovely. Do you have a vegan menu?", "We do, with four courses."),
    ("And can we bring a dog?", "A dog is welcome on the terrace only."),
    ("Then we come without it.", "As you like."),
    ("May I bring a cake?", "You may, we keep it cool for you."),
    ("Is there a place to park?", "Behind the house, free of charge."),
    ("What was the time again?", "At eight in the evening, on Friday."),
    ("Thank you, goodbye.", "Goodbye, until Friday."),
]


class SummaryModel:
    """Stands in for the summary model: as slow as one, and it says whether it is at work."""

    def __init__(self) -> None:
        self.is_busy = False

    async def __call__(self, request: pgmem.SummaryRequest) -> str:
        """What the caller said, and no more."""
        self.is_busy = True
        try:
            await asyncio.sleep(SUMMARY_SECONDS)
        finally:
            self.is_busy = False
        said = [str(turn.content) for turn in request.turns if turn.role == "user"]
        return " / ".join([*request.memory.splitlines(), *said])


async def speak(text: str) -> None:
    """Put your speech synthesis here."""
    print(f"  agent:  {text}")
    await asyncio.sleep(SPEECH_SECONDS)


async def answer(session: pgmem.Session, heard: str, reply: str) -> pgmem.QueuedCompaction:
    """One exchange: two statements and the agent's model stand before the voice, and no summary does."""
    await session.add_turn("user", heard)
    context = await session.context(SYSTEM)  # its messages go to your model, which streams the reply
    print(f"  caller: {heard} [{len(context.messages)} messages]")
    await speak(reply)
    await session.add_turn("assistant", reply)
    return await session.compact_async()  # put into the queue, and not awaited


async def show(session: pgmem.Session, title: str) -> None:
    """Prints what the agent's model would be sent now."""
    context = await session.context(SYSTEM)
    print(f"{title}: {len(context.messages)} messages")
    for message in context.messages:
        print(f"  {message['role']}: {message['content']}".replace("\n", "\n    "))


async def call(session: pgmem.Session, summary_model: SummaryModel) -> pgmem.QueuedCompaction:
    """The whole call, turn by turn."""
    meanwhile = 0
    for heard, reply in CALL:
        compaction = await answer(session, heard, reply)
        meanwhile += 2 * summary_model.is_busy
    print(f"{meanwhile} of {2 * len(CALL)} turns were spoken while the summary model was at work")
    return compaction


async def main() -> None:
    """Talks, shows the context before the worker is through and after, and hangs up."""
    summary_model = SummaryModel()
    policy = pgmem.Policy(threshold=8, keep_recent=4)
    async with (
        pgmem.open(policy=policy, background="queue") as memory,
        pgmem.open(summary_model=summary_model) as own,  # and `coverage` judges
    ):
        worker = pgmem.Worker(own)
        working = asyncio.create_task(worker.run())
        session = await memory.session(f"call-{uuid.uuid4().hex[:8]}")
        compaction = await call(session, summary_model)
        await show(session, "The context when the caller hung up")
        await compaction
        await show(session, "The context when the worker was through")
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
