"""Application state: the parts of the service whose request is answered, and the places of those who follow."""

import asyncio
from typing import Any

import pytest

from forewarn.operator.errors import TooManyStreams
from forewarn.operator.state import AppState, ServiceState, StreamSlots, with_parts


def test_places_are_limited_and_given_back() -> None:
    slots = StreamSlots(limit=1)
    slots.acquire()
    with pytest.raises(TooManyStreams) as refused:
        slots.acquire()
    assert (refused.value.limit, slots.taken) == (1, 1)
    slots.release()
    slots.acquire()


def parts(name: str) -> ServiceState:
    value: Any = name
    return ServiceState(*[value] * len(ServiceState._fields))


async def test_each_request_has_the_parts_of_its_own_service() -> None:
    """Both share the handlers, and their requests are answered at the same time."""
    state = AppState()
    seen: list[tuple[Any, ...]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        seen.append((scope, state.fleet, state.planner))

    nothing: Any = None
    calls: list[Any] = [with_parts(app, parts(name))(name, nothing, nothing) for name in ("a", "b")]  # type: ignore[arg-type]  # any scope
    await asyncio.gather(*calls)
    assert sorted(seen) == [("a", "a", "a"), ("b", "b", "b")]


def test_parts_are_known_only_while_a_request_is_answered() -> None:
    with pytest.raises(LookupError):
        _ = AppState().fleet
