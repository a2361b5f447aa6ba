"""Agents that ask each other over real sockets. Only a peer that answers "ready" counts as ready."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.daemon import Agent
from forewarn.agent.handlers.base import HandlerCall, Phase
from forewarn.agent.http_server import HttpServer, Request, Response
from forewarn.agent.peers import Peers, check_peers, peer_response
from forewarn.agent.settings import Address
from forewarn.agent.workflow.planner import WorkflowContext, start
from forewarn.agent.workflow.state import EventWorkflow, HandlerStep, PeerState
from forewarn.settings.types import ListenAddress
from tests.agent.harness import ID, NOON, AgentHarness, FakeService, RecordingHandler, event, seconds, until

SECRET = b"correct-horse"
READY = f'{{"name":"web_1","event":"{ID}","ready":true,"why":"ready"}}'.encode()


def peers(port: int, *, secret: bytes = SECRET, timeout: float = 30) -> Peers:
    return Peers(addresses={"web_1": Address("127.0.0.1", port)}, secret=secret, timeout=seconds(timeout))


@asynccontextmanager
async def answering(respond: Callable[[Request], Response]) -> AsyncIterator[int]:
    listener = HttpServer(respond)
    try:
        yield await listener.listen("127.0.0.1", 0)
    finally:
        await listener.aclose()


async def word(answer: Response) -> PeerState:
    async with answering(lambda _: answer) as port:
        (said,) = await check_peers(peers(port), ["web_1"], ID)
        return said


@pytest.mark.parametrize(
    ("answer", "is_ready", "why"),
    [
        (Response(200, READY), True, "ready"),
        (Response(200, READY.replace(b"web_1", b"WEB_1")), True, "ready"),
        (Response(200, READY.replace(b'"why":"ready"', b'"new":1')), True, ""),
        (Response(200, READY.replace(b"true", b"false")), False, "ready"),
        (Response(200, READY.replace(b"true", b"1")), False, "invalid response body"),
        (Response(200, READY.replace(b"web_1", b"web_9")), False, "another VM answered: 'web_9'"),
        (Response(200, READY.replace(ID[:4].encode(), b"0000")), False, "answered for another event"),
        (Response(200, b""), False, "invalid response body"),
        (Response(200, b"<html>"), False, "invalid response body"),
        (Response(200, b"[" * 50_000), False, "invalid response body"),
        (Response(200, b" " * 70_000), False, "response exceeds 65536 bytes"),
        (Response(404, READY), False, "unknown event there"),
        (Response(401, READY), False, "rejected the secret: the secret files differ"),
        (Response(403, READY), False, "rejected the secret: the secret files differ"),
        (Response(500, READY), False, "unexpected status 500"),
        (Response(302, READY), False, "unexpected status 302"),
    ],
    ids=lambda value: None if isinstance(value, Response) else str(value),
)
async def test_only_an_explicit_answer_means_ready(answer: Response, is_ready: bool, why: str) -> None:
    assert await word(answer) == PeerState(name="web_1", is_ready=is_ready, reason=why)


async def test_peer_that_never_answers_is_not_ready() -> None:
    hangs: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: hangs.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (said,) = await check_peers(peers(port, timeout=0.05), ["web_1"], ID)
    assert said == PeerState(name="web_1", is_ready=False, reason="request timed out")
    server.close()
    for writer in hangs:
        writer.close()
    await server.wait_closed()


async def test_unreachable_peer_is_not_ready() -> None:
    async with answering(lambda _: Response(200, READY)) as port:
        pass
    (said,) = await check_peers(peers(port), ["web_1"], ID)
    assert not said.is_ready
    assert said.reason.startswith("unreachable: ")


@pytest.mark.parametrize("text", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1\r\n\r\n"], ids=repr)
async def test_peer_with_invalid_http_is_not_ready(text: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    (said,) = await check_peers(peers(server.sockets[0].getsockname()[1]), ["web_1"], ID)
    assert said == PeerState(name="web_1", is_ready=False, reason="invalid HTTP response")
    server.close()
    await server.wait_closed()


async def test_unsafe_event_id_is_not_sent_to_peers() -> None:
    (said,) = await check_peers(peers(1), ["web_1"], "x HTTP/1.1\r\nEvil: 1")
    assert said == PeerState(name="web_1", is_ready=False, reason="not asked: the event id is not safe in a URL")


async def test_many_peers_are_asked_in_parallel() -> None:
    names = [f"vm_{number}" for number in range(200)]

    async with answering(lambda _: Response(200, READY)) as port:
        asked = Peers(
            addresses=dict.fromkeys(names[:150], Address("127.0.0.1", port)), secret=SECRET, timeout=seconds(60)
        )
        words = await check_peers(asked, names, ID)
    assert [said.name for said in words] == names
    assert {said.reason for said in words[:150]} == {"another VM answered: 'web_1'"}
    assert {said.reason for said in words[150:]} == {"no address configured"}


def prepared(*, is_ready: bool) -> dict[str, EventWorkflow]:
    steps = () if is_ready else (HandlerStep(handler="drain"),)
    return {ID: start(event(), steps, WorkflowContext(now=NOON, vm_name="web_0")).workflow}


@pytest.mark.parametrize(
    ("workflows", "headers", "status", "body"),
    [
        (prepared(is_ready=True), {}, 401, "secret required"),
        (prepared(is_ready=True), {"authorization": "Basic correct-horse"}, 401, "secret required"),
        (prepared(is_ready=True), {"authorization": "Bearer wrong"}, 403, "wrong secret"),
        (prepared(is_ready=True), {"authorization": "Bearer "}, 403, "wrong secret"),
        (prepared(is_ready=True), {"authorization": "Bearer correct-horse"}, 200, '"ready":true'),
        (prepared(is_ready=False), {"authorization": "Bearer correct-horse"}, 200, "not prepared yet: drain"),
        ({}, {"authorization": "Bearer correct-horse"}, 404, "unknown event"),
    ],
    ids=["no secret", "another scheme", "wrong secret", "empty secret", "ready", "not ready", "unknown event"],
)
def test_answers(workflows: dict[str, EventWorkflow], headers: dict[str, str], status: int, body: str) -> None:
    answer = peer_response(
        Request("GET", f"/v1/ready/{ID.lower()}", headers), workflows, vm_name="web_0", secret=SECRET
    )
    assert answer.status == status
    assert body in answer.body.decode()


def test_agent_without_a_secret_answers_no_peer() -> None:
    request = Request("GET", f"/v1/ready/{ID}", {"authorization": "Bearer "})
    assert peer_response(request, {}, vm_name="web_0", secret=None).status == 403
    assert peer_response(request, {}, vm_name=None, secret=SECRET).status == 403


@pytest.mark.parametrize("secret", [b"", b"two words", b"line\r\nbreak", b"\xff\xfe"], ids=repr)
def test_secret_unfit_for_a_header_is_refused_without_showing_it(secret: bytes) -> None:
    with pytest.raises(ValueError, match="one line of ASCII") as refused:
        Peers(addresses={}, secret=secret)
    assert not secret or repr(secret)[2:-1] not in str(refused.value)


async def test_peer_address_may_be_ipv6() -> None:
    listener = HttpServer(lambda _: Response(200, READY))
    try:
        address = Address("::1", await listener.listen("::1", 0))
    except OSError:
        pytest.skip("cannot listen on ::1: enable IPv6 for the loopback interface")
    (said,) = await check_peers(Peers(addresses={"web_1": address}, secret=SECRET, timeout=seconds(30)), ["web_1"], ID)
    await listener.aclose()
    assert said.is_ready


async def test_peer_with_an_invalid_host_name_is_not_ready() -> None:
    nowhere = Peers(addresses={"web_1": Address("." * 64, 1)}, secret=SECRET, timeout=seconds(30))
    (said,) = await check_peers(nowhere, ["web_1"], ID)
    assert said == PeerState(name="web_1", is_ready=False, reason="unreachable: invalid host name")


def test_repr_does_not_contain_the_secret() -> None:
    assert repr(peers(1)) == "Peers(web_1)"


class Pair:
    """The agents of two VMs affected by one event, on one clock, that ask each other over real sockets."""

    def __init__(self, directory: Path, *, other_secret: bytes = SECRET) -> None:
        self.directory, self.other_secret = directory, other_secret
        self.harnesses: list[AgentHarness] = []
        self.handlers = [RecordingHandler("drain", []), RecordingHandler("drain", [])]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Agent, Agent]]:
        names = ("web_0", "web_1")
        addresses: dict[str, Address] = {}
        async with AsyncExitStack() as stack:
            agents = []
            for number, name in enumerate(names):
                secret = self.other_secret if number else SECRET
                harness = AgentHarness(
                    self.directory / name,
                    FakeService(name=name),
                    [self.handlers[number]],
                    listen=ListenAddress("127.0.0.1", 0),
                    peers=Peers(addresses=addresses, secret=secret, timeout=seconds(30)),
                )
                self.harnesses.append(harness)
                agents.append(await stack.enter_async_context(harness.run_agent()))
            await until(lambda: all(agent.port for agent in agents))
            for name, agent in zip(names, agents, strict=True):
                addresses[name] = Address("127.0.0.1", agent.port or 0)
            yield agents[0], agents[1]

    def show(self) -> None:
        for harness in self.harnesses:
            harness.service.show(event(resources=("web_0", "web_1")))

    def approvals(self) -> list[list[str]]:
        return [harness.service.approvals for harness in self.harnesses]


async def test_leader_approves_only_when_both_are_ready(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.handlers[1].gate.clear()
    async with pair.running() as (leader, _):
        pair.show()
        await until(lambda: ID in leader.workflows and bool(leader.workflows[ID].peers))
        assert leader.workflows[ID].phase is Phase.READY
        assert leader.workflows[ID].approval.reason in {
            "not ready: web_1 (not prepared yet: drain)",
            "not ready: web_1 (unknown event there)",
        }
        assert pair.approvals() == [[], []]
        pair.handlers[1].gate.set()
        await until(lambda: pair.handlers[1].attempts(HandlerCall.PREPARE) == [1])
        await pair.harnesses[1].settle()
        pair.harnesses[0].clock.set(NOON + seconds(5))
        await until(lambda: pair.approvals() == [[ID], []])
        assert leader.workflows[ID].phase is Phase.APPROVE


async def test_deputy_approves_if_the_leader_cannot(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    async with pair.running() as (leader, deputy):
        pair.harnesses[0].service.approval_errors = [RuntimeError("no way out")] * 100
        pair.show()
        await until(lambda: ID in leader.workflows and ID in deputy.workflows and leader.workflows[ID].is_ready)
        await until(lambda: deputy.workflows[ID].is_ready)
        pair.harnesses[1].clock.set(NOON + seconds(60))
        await until(lambda: pair.approvals()[1] == [ID])


async def test_different_secrets_prevent_approval_and_are_reported(tmp_path: Path) -> None:
    pair = Pair(tmp_path, other_secret=b"wrong-horse")
    async with pair.running() as (leader, _):
        pair.show()
        await until(lambda: ID in leader.workflows and bool(leader.workflows[ID].peers))
        assert "rejected the secret" in leader.workflows[ID].approval.reason
        pair.harnesses[0].clock.set(NOON + timedelta(minutes=15))
        await until(lambda: "not all VMs were ready before NotBefore" in leader.workflows[ID].approval.reason)
        assert pair.approvals() == [[], []]
