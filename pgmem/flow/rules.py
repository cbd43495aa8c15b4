"""What a flow's classes must be, checked when it starts: each fault with its value, the rule and the nearest right name."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

from pgmem.domain.model import Strategy
from pgmem.domain.names import check_namespace, shown
from pgmem.domain.plans import check_text
from pgmem.errors import InvalidArgument
from pgmem.flow.stage_memory import nearest
from pgmem.flow.step import Step, namespace_of

HOOKS = ("on_enter", "on_exit", "on_restore")
MOST_NAME = 128


def check_steps(flow: str, steps: Any) -> None:
    """Nothing, when ``steps`` are the classes of a flow's steps.

    Raises:
        InvalidArgument: they are not.
    """
    if not isinstance(steps, list | tuple) or not steps:
        raise InvalidArgument(f"{flow}.steps is {shown(steps)}: name the classes of its steps, the first one to start in")
    for step in steps:
        if not (isinstance(step, type) and issubclass(step, Step)):
            raise InvalidArgument(f"{flow}.steps holds {shown(step)}: it must hold subclasses of pgmem.Step")
        _check_step(step)
    names = [step.__name__ for step in steps]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"{flow}.steps names {', '.join(twice)} twice: a step's class name is the name that is stored")


def check_enabled(enabled: Collection[str], steps: Sequence[type[Step]], *, strategy: Strategy, has_model: bool) -> None:
    """Nothing, when every namespace that is to be summarised is a step's, and there is something to summarise with.

    Raises:
        InvalidArgument: one is not, or there is nothing.
    """
    declared = tuple(dict.fromkeys(namespace_of(step) for step in steps))
    for name in enabled:
        if name not in declared:
            raise InvalidArgument(
                f"enable_summary({name!r}): no step uses that namespace{nearest(name, declared)}; the steps use "
                f"{', '.join(map(repr, declared))}"
            )
    if enabled and strategy is Strategy.LLM and not has_model:
        raise InvalidArgument(
            f"summaries of {', '.join(map(repr, enabled))} are enabled and nothing can write them: call set_summary_model(...), "
            "open the memory with summary_model=..., or set_summary_config(strategy='tool_clear')"
        )


def check_target(step: object, steps: Sequence[type[Step]]) -> type[Step]:
    """``step``, if it is one of the flow's.

    Raises:
        InvalidArgument: it is not.
    """
    for known in steps:
        if step is known:
            return known
    names = tuple(known.__name__ for known in steps)
    name = step.__name__ if isinstance(step, type) else step
    if name in names:
        found = "another class of that name" if isinstance(step, type) else "its name"
        raise InvalidArgument(f"go() takes the class of a step, and got {found}: give the class {name} that is in `steps`")
    if isinstance(step, type) and issubclass(step, Step):
        raise InvalidArgument(f"{name} is not among this flow's steps: put it into `steps`, or go to {', '.join(names)}")
    raise InvalidArgument(f"{shown(name)} is no step of this flow{nearest(name, names)}: go to {', '.join(names)}, by the class")


def sharing(step: type[Step], steps: Sequence[type[Step]]) -> list[str]:
    """The names of the other steps that use its namespace."""
    return [other.__name__ for other in steps if other is not step and namespace_of(other) == namespace_of(step)]


def _check_step(step: type[Step]) -> None:
    name = step.__name__
    check_text(f"the name of {name}", name, most=MOST_NAME)
    if step.namespace is None and not name.isascii():
        raise InvalidArgument(f"the step {name} has no namespace and its name cannot be one: set namespace = '...'")
    check_namespace(namespace_of(step))
    if not _takes(step, None):
        raise InvalidArgument(
            f"{name} cannot be made of its flow: an __init__ of its own takes the flow and calls super().__init__(flow)"
        )
    if step.prompt is Step.prompt:
        raise InvalidArgument(f"{name} has no prompt: give it `def prompt(self, state): return ...`")
    if not _takes(step.prompt, None, None):
        raise InvalidArgument(f"{name}.prompt cannot be called with the state: write `def prompt(self, state): return ...`")
    if inspect.iscoroutinefunction(step.prompt):
        raise InvalidArgument(f"{name}.prompt is async: make it a plain function of the state; what takes time belongs in on_enter")
    for hook in HOOKS:
        if not inspect.iscoroutinefunction(getattr(step, hook)):
            raise InvalidArgument(f"{name}.{hook} is not async: write `async def {hook}(self)`, it is awaited")


def _takes(function: Any, *arguments: object) -> bool:
    """Whether ``function`` can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True
