"""The models that a Memory makes for its flows: one for each way to ask, closed with the Memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgmem.llm.openai_model import OpenAIModel


class Models:
    """The models made so far; a flow is made for each request, its model should keep its connections."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], OpenAIModel] = {}

    def openai(self, name: str, **options: Any) -> OpenAIModel:
        """The model of that name and those options, the same one each time.

        Raises:
            InvalidArgument: it cannot be made of them.
        """
        # the client of OpenAI's API takes half a second to import: only who uses it waits
        from pgmem.llm.openai_model import OpenAIModel

        model = OpenAIModel(name, **options)
        return self._made.setdefault((name, *sorted(options.items())), model)

    async def close(self) -> None:
        """Closes their connections."""
        for model in self._made.values():
            await model.close()
