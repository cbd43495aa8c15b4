"""A scripted model behind HTTP for every flow, with short pauses between its attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pgmem.llm import pace
from pgmem.testing import ScriptedModel


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def llm() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as endpoint:
        yield endpoint
