"""Driver of the client flow (sans-I/O) with scripted replies and a fake monotonic clock."""

from collections.abc import Iterable
from typing import Any

import msgspec

from forewarn.client.changes import Change
from forewarn.client.effects import Command, Failure, Flow, Log, Reply, Response, Send, Sleep, T, Yield
from forewarn.client.flow import ClientFlows, FlowOptions

ENDPOINT = "http://service"
ID = "602D9444-D2CD-49C7-8624-8643E7171297"
OTHER_ID = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
NOT_BEFORE = "Mon, 19 Sep 2016 18:29:47 GMT"


def event(id_: str = ID, status: str = "Scheduled", *resources: str, **more: Any) -> dict[str, Any]:
    """Return an event in wire format."""
    return {
        "EventId": id_,
        "EventStatus": status,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": list(resources or ("web_0",)),
        "NotBefore": NOT_BEFORE if status == "Scheduled" else "",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    } | more


def document(*events: dict[str, Any], incarnation: int = 1) -> bytes:
    """Return a document in wire format."""
    return msgspec.json.encode({"DocumentIncarnation": incarnation, "Events": events})


OWN = document(event("other", "Scheduled", "web_1"), event(ID, "Scheduled", "WEB_0"))
"""A document with an event of another VM and one of this VM, `web_0`."""


def ok(body: bytes = document(), /, **headers: str) -> Response:
    return response(200, body, **headers)


def response(status: int, body: bytes = b"", /, **headers: str) -> Response:
    """Return a response; `_` stands for `-` in header names."""
    return Response(status, {name.replace("_", "-").lower(): value for name, value in headers.items()}, body)


class DelayedReply(msgspec.Struct, frozen=True):
    """A reply that arrives after a delay."""

    seconds: float
    reply: Response | Failure


class FakeMonotonic:
    """A monotonic clock that advances when the flow sleeps or waits for a response."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ScriptedFlow:
    """Runs flows with scripted replies, and records their requests and pauses."""

    def __init__(self, *, name: str | None = None, chance: float = 1.0, **settings: Any) -> None:
        self.time = FakeMonotonic()
        self.flows = ClientFlows(
            ENDPOINT, FlowOptions(**settings), name=name, monotonic=self.time, chance=lambda: chance
        )
        self.sent: list[Send] = []
        self.pauses: list[float] = []
        self.changes: list[Change] = []
        self.messages: list[str] = []

    @property
    def targets(self) -> list[str]:
        """The requested targets, without the common prefix."""
        return [send.request.target for send in self.sent]

    @property
    def timeouts(self) -> list[float]:
        return [send.timeout for send in self.sent]

    def run(self, flow: Flow[T], *replies: Response | Failure | DelayedReply) -> T:
        """Run a flow to its end."""
        left = iter(replies)
        try:
            reply: Reply = None
            while True:
                reply = self._execute(flow.send(reply), left)
        except StopIteration as end:
            assert next(left, None) is None, "not all replies were used"
            value: T = end.value
            return value

    def watch(self, *replies: Response | Failure | DelayedReply, mine: bool = False, **more: Any) -> list[Change]:
        """Watch until the replies are used up; return the changes."""
        return self.run_until_exhausted(self.flows.watch(mine=mine, since=None, **more), replies)

    def run_until_exhausted(
        self, flow: Flow[None], replies: Iterable[Response | Failure | DelayedReply]
    ) -> list[Change]:
        left, began = iter(replies), len(self.changes)
        reply: Reply = None
        try:
            while True:
                reply = self._execute(flow.send(reply), left)
        except _Exhausted:
            flow.close()
        return self.changes[began:]

    def _execute(self, command: Command, replies: Any) -> Reply:
        match command:
            case Send():
                reply = next(replies, None)
                if reply is None:
                    raise _Exhausted
                self.sent.append(command)
                return self._reply(reply)
            case Sleep(seconds):
                self.pauses.append(seconds)
                self.time.now += seconds
            case Log(message):
                self.messages.append(message)
            case Yield(changes):
                assert changes, "Yield without changes"
                self.changes.extend(changes)
        return None

    def _reply(self, reply: Response | Failure | DelayedReply) -> Response | Failure:
        if isinstance(reply, DelayedReply):
            self.time.now += reply.seconds
            return reply.reply
        return reply


class _Exhausted(Exception):
    pass
