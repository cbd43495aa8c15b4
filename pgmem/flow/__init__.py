"""Stages: a flow of steps over one session, each with a namespace of its own that is summarised or erased on entry."""

from pgmem.flow.exchange import Exchange
from pgmem.flow.flow import Flow
from pgmem.flow.stage_memory import StageMemory
from pgmem.flow.step import Step

__all__ = ["Exchange", "Flow", "StageMemory", "Step"]
