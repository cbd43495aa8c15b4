"""A hotel desk in stages: what was said while exploring is summarised, presenting and comparing start clean every time.

The models are stand-ins, so it needs no API key, and no database where PGMEM_DATABASE_URL is not set. It prints every request
that the model would get: the prompt with the state, the memory message where the stage has one, the messages of the stage.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

import pgmem

HOTELS = [
    {"name": "Miramar", "pool": True, "eur": 140},
    {"name": "Excelsior", "pool": True, "eur": 95},
    {"name": "Bahnhof", "pool": False, "eur": 60},
]


class ExploreStep(pgmem.Step):
    """Lives on what was said: who travels, when, and what matters. So its namespace is summarised."""

    namespace = "hotel-explore"

    def prompt(self, state: Mapping[str, Any]) -> str:
        """Nothing of the state: what matters here was said."""
        return "Find out what the guest wants; search when you know the dates."


class PresentStep(pgmem.Step):
    """Shows one list. The list of the last visit must not be seen again, so it starts clean."""

    async def on_enter(self) -> None:
        """Every visit is a new one."""
        await self.erase_memory()

    def prompt(self, state: Mapping[str, Any]) -> str:
        """The list comes from the state, anew for every request."""
        return f"Present these hotels and no others: {json.dumps(state['hotels'])}"


class CompareStep(pgmem.Step):
    """Compares what was presented, as long as the guest likes; starts clean too."""

    async def on_enter(self) -> None:
        """Every visit is a new one."""
        await self.erase_memory()

    def prompt(self, state: Mapping[str, Any]) -> str:
        """As in presenting."""
        return f"Compare these: {json.dumps(state['hotels'])}"


class HotelFlow(pgmem.Flow):
    """The desk; the first step is where a new session starts."""

    steps = (ExploreStep, PresentStep, CompareStep)

    def __init__(self, session: pgmem.Session) -> None:
        super().__init__(session)
        # or .set_summary_model(provider="openai", name="gpt-4o")
        self.memory.set_summary_model(summarise).set_summary_config(min_messages=8, recent_messages=4).enable_summary(
            "hotel-explore"
        )


async def summarise(request: pgmem.SummaryRequest) -> str:
    """Stands in for the summary model: what the guest said, and no more."""
    said = [str(turn.content) for turn in request.turns if turn.role == "user"]
    return " / ".join([*request.memory.splitlines(), *said])


async def model(messages: list[dict[str, Any]], answer: str) -> str:
    """Stands in for the agent's model: prints what it is sent, and gives the answer of the script."""
    for message in messages:
        print(f"    {message['role']:<9} {message['content']}")
    print(f"    -> {answer}")
    return answer


async def ask(flow: HotelFlow, question: str, answer: str) -> None:
    """One exchange in the step that the flow is in."""
    async with flow.exchange(question) as x:
        await x.reply(await model(await x.request(), answer))


async def search(flow: HotelFlow, question: str, hotels: list[dict[str, Any]], answer: str) -> None:
    """The model calls the search, whose handler moves on to presenting: what was found goes by the state."""
    async with flow.exchange(question) as x:
        await model(await x.request(), "search()")
        call = {"id": "call_search", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        await x.reply(None, tool_calls=[call])
        await x.tool_result("call_search", f"{len(hotels)} found")
        await x.go(PresentStep, state={"hotels": hotels}, message=question)
        await x.reply(await model(await x.request(), answer))


async def move(flow: HotelFlow, step: type[pgmem.Step], question: str, answer: str) -> None:
    """The question is for another step: it is forwarded, and answered there."""
    async with flow.exchange(question) as x:
        await x.go(step, message=question)
        await x.reply(await model(await x.request(), answer))


async def converse(flow: HotelFlow) -> None:
    """The whole conversation."""
    await ask(flow, "We are two and a child.", "When do you come?")
    await ask(flow, "From June 3 to June 5.", "What matters to you?")
    await ask(flow, "The child wants to swim.", "A pool, then. What may it cost?")
    await ask(flow, "At most 150 EUR a night.", "I can search now.")
    await search(flow, "Show me what you have.", HOTELS[:2], "There are the Miramar and the Excelsior.")
    await move(flow, CompareStep, "Which one is cheaper?", "The Excelsior, 95 EUR against 140.")
    await ask(flow, "And nearer to the sea?", "The Miramar.")
    await move(flow, ExploreStep, "What would it be without a pool?", "I will look for one without, for three, June 3 to 5.")
    await search(flow, "Yes, please.", HOTELS[2:], "There is the Bahnhof.")


async def main() -> None:
    """Plays the conversation and shows what is stored."""
    async with pgmem.open() as memory:
        session = await memory.session(f"guest-{uuid.uuid4()}")
        flow = await HotelFlow(session).start()
        await converse(flow)
        print(f"in {type(flow.step).__name__} with {flow.state}")
        for name in ("hotel-explore", "PresentStep", "CompareStep"):
            turns = [str(turn.status) async for turn in session.namespace(name).turns()]
            print(f"{name}: {', '.join(f'{turns.count(status)} {status}' for status in dict.fromkeys(turns))}")


if __name__ == "__main__":
    asyncio.run(main())
