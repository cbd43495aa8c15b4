"""Pauses between attempts are short here."""

from __future__ import annotations

import pytest

from pgmem.llm import pace


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.01)
