"""Points that a command was given and that are not what it needs: what stands there, and which command shows the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pgmem import Branch, Namespace, Node, NodeNotFound, NotOnActiveLine, Turn, Verdict
from pgmem.cli.reading import Place

Fact = Node | Turn | Branch | Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The position on the command line; both None where it names none.

    Attributes:
        node: a node's.
        turn: a turn's.
        goes_back: whether the command goes back to it, and has an option for each kind.
    """

    node: int | None = None
    turn: int | None = None
    goes_back: bool = False


@asynccontextmanager
async def in_words_of_commands(place: Place, found: Namespace, point: Point) -> AsyncIterator[None]:
    """Lets the body be refused in words of the command line, not of the library.

    Args:
        place: where the command looks.
        found: the namespace there.
        point: what it was given.

    Raises:
        NodeNotFound: there is no such node; the message says what stands there instead.
        NotOnActiveLine: there is no way back to the node or the turn.
    """
    try:
        yield
    except (NodeNotFound, NotOnActiveLine) as error:
        raise type(error)(await _sentence(place, found, point)) from error


async def _sentence(place: Place, found: Namespace, point: Point) -> str:
    where = f"session {place.key!r:.200}, namespace {place.namespace!r}"
    if point.turn is not None:
        return await _no_turn(where, place, found, point.turn)
    if point.node is not None:
        return await _no_node(where, place, found, point.node, goes_back=point.goes_back)
    return f"{where} has no node to revise: name a turn with --after-turn, see `{place.command('turns')}`"


async def _no_node(where: str, place: Place, found: Namespace, no: int, *, goes_back: bool) -> str:
    fact = await _fact_at(found, no)
    see = f"see `{place.command('tree')}`"
    if isinstance(fact, Node):
        return f"{where}: node {no} is {fact.status} and its turns are not active: name one that is on the path, {see}"
    instead = ", use --after-turn" if goes_back and isinstance(fact, Turn) else ""
    return f"{where} has no node {no}{_is(no, fact)}{instead}; {see}"


async def _no_turn(where: str, place: Place, found: Namespace, no: int) -> str:
    fact = await _fact_at(found, no)
    see = f"see `{place.command('turns')}`"
    if isinstance(fact, Turn):
        return f"{where}: turn {no} is {fact.status}: name one that is active or compressed, {see}"
    instead = ", use --after" if isinstance(fact, Node) else ""
    return f"{where} has no turn {no}{_is(no, fact)}{instead}; {see}"


def _is(no: int, fact: Fact | None) -> str:
    match fact:
        case Turn(node=None):
            return f": {no} is a turn"
        case Turn():
            return f": {no} is a turn that node {fact.node} stands for"
        case Node():
            return f": {no} is a node"
        case Verdict():
            return f": {no} is the verdict on node {fact.node}"
        case Branch():
            return f": {no} is a branch"
        case None:
            return ""


async def _fact_at(found: Namespace, no: int) -> Fact | None:
    async for turn in found.turns(no - 1):
        if turn.no == no:
            return turn
        break
    for facts in _others(found):
        async for fact in facts:
            if fact.no == no:
                return fact
    return None


def _others(found: Namespace) -> Iterator[AsyncIterator[Node | Verdict | Branch]]:
    yield found.nodes()
    yield found.verdicts()
    yield found.branches()
