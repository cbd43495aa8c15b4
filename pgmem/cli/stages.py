"""``pgmem stages``: which steps the flows over a session were in, and their state."""

from __future__ import annotations

import asyncio
import json

from rich.text import Text

from pgmem.cli.options import AsJson, Schema, SessionKey, Tenant, Url
from pgmem.cli.reading import Place, opened_session
from pgmem.cli.render import console, json_line, one_line, put, table, write_line
from pgmem.domain.model import Stage
from pgmem.memory import MAIN

EXAMPLE = "Example: pgmem stages guest-17 --json | jq .state"

_STATE_CHARACTERS = 80


def stages(
    session: SessionKey, tenant: Tenant = "default", as_json: AsJson = False, url: Url = None, schema: Schema = None
) -> None:
    """List what each flow over a session was left in: its step, the steps entered on the way there, its state.

    The last line of a flow is where it is now.
    """
    place = Place(key=session, namespace=MAIN, tenant=tenant, url=url, schema=schema)

    async def show() -> None:
        rows = table("flow", "no", "at", "entered", "step", "state")
        async with opened_session(place) as found:
            async for stage in found.stages():
                if as_json:
                    write_line(json_line(_stage_json(stage)))
                else:
                    rows.add_row(*_cells(stage))
        if not as_json:
            put(console(), rows)

    asyncio.run(show())


def _cells(stage: Stage) -> tuple[Text, ...]:
    state = one_line(json.dumps(stage.state, ensure_ascii=False), _STATE_CHARACTERS)
    entered = ", ".join(stage.entered)
    words = (stage.flow, str(stage.no), f"{stage.created_at:%Y-%m-%d %H:%M:%S%z}", entered, stage.step)
    return (*(Text(one_line(word)) for word in words), Text(state))


def _stage_json(stage: Stage) -> dict[str, object]:
    return {
        "flow": stage.flow,
        "no": stage.no,
        "step": stage.step,
        "entered": list(stage.entered),
        "state": stage.state,
        "created_at": stage.created_at.isoformat(),
    }
