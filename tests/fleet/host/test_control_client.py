"""The control client: it repeats commands without an answer, and never takes an unknown outcome for a refusal."""

import asyncio
from collections.abc import Callable

import pytest

from forewarn.core.errors import ScopeEventNotFound
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.host import control_client as module
from forewarn.fleet.host.commands import CommandResponse, Renew, encode
from forewarn.fleet.host.control_client import ControlClient
from forewarn.fleet.replica import Replica
from forewarn.store.port import SaveUnknown, StoreError, StoreUnavailable
from tests.core.sample_scopes import scope

UNREACHABLE = StoreUnavailable("the control nodes", "no responders")
NO_ANSWER = SaveUnknown("the control nodes", "no answer")
SAVED = CommandResponse(status="saved", revision=5)


class ScriptedTransport:
    """Answers with the given results in turn, and then with the last one."""

    def __init__(self, *results: CommandResponse | StoreError) -> None:
        self._results = list(results)
        self.bodies: list[bytes] = []

    async def request(self, name: str, body: bytes) -> bytes:
        del name
        self.bodies.append(body)
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, StoreError):
            raise result
        return encode(result)


@pytest.fixture
def client() -> Callable[..., tuple[ControlClient, ScriptedTransport]]:
    def create(*results: CommandResponse | StoreError) -> tuple[ControlClient, ScriptedTransport]:
        transport = ScriptedTransport(*results)
        return ControlClient(transport, "hv-0", Replica()), transport

    return create


Create = Callable[..., tuple[ControlClient, ScriptedTransport]]
COMMAND = Renew(process="p", term=1)


async def test_command_without_an_answer_is_repeated_unchanged(client: Create) -> None:
    sender, transport = client(NO_ANSWER, UNREACHABLE, SAVED)
    assert await sender.send(COMMAND) == SAVED
    assert transport.bodies == [encode(COMMAND)] * 3
    assert sender.answered_at is not None


async def test_command_that_reached_no_control_node_fails_at_once(client: Create) -> None:
    sender, transport = client(UNREACHABLE)
    with pytest.raises(SaveFailed):
        await sender.send(COMMAND)
    assert (len(transport.bodies), sender.answered_at) == (1, None)


async def test_outcome_is_unknown_when_patience_ends(client: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    for result in (NO_ANSWER, CommandResponse(status="unknown", text="no quorum")):
        sender, _ = client(result)
        with pytest.raises(OutcomeUnknown):
            await sender.send(COMMAND)


async def test_refusal_is_raised(client: Create) -> None:
    sender, _ = client(CommandResponse.from_error(ScopeEventNotFound("E", "web")))
    with pytest.raises(ScopeEventNotFound):
        await sender.approve("web", "web-0", ("E",))


async def test_approval_returns_when_the_replica_has_it() -> None:
    replica = Replica()
    sender = ControlClient(ScriptedTransport(SAVED), "hv-0", replica)
    approving = asyncio.create_task(sender.approve("web", "web-0", ("E",)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not approving.done()
    replica.update("web", scope("web"), 5)
    sender.observe(replica.view("web"))
    await approving


async def test_waiting_for_the_replica_ends(monkeypatch: pytest.MonkeyPatch, client: Create) -> None:
    monkeypatch.setattr(module, "CATCH_UP_SECONDS", 0.0)
    sender, _ = client(SAVED)
    await sender.approve("web", "web-0", ("E",))
