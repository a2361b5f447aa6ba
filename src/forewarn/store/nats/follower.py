"""Follower: receives messages of a stream in order, and starts again whenever one may have been lost.

It is an ordered consumer of its own: the client's one stalls for up to 20 seconds when a server dies, loses messages
without notice when its buffer overflows, and cannot be limited by permissions.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple, Protocol

from nats.aio.msg import Msg

from forewarn.core.backoff import backoff
from forewarn.core.base_error import BaseError
from forewarn.store.nats.connection import ApiRefused, NatsError, ServerUnavailable
from forewarn.store.nats.message import StoredMessage
from forewarn.store.nats.stream import CellStream, StreamState

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS = 2.0
"""How long a consumer may be silent; it sends a heartbeat when it has nothing else to send."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""The pauses in seconds before a follower starts again."""

NANOSECONDS = 1_000_000_000


class FollowLost(BaseError):
    """Messages were lost, or may have been."""

    template = "{reason}"
    reason: str


class FollowStart(NamedTuple):
    """Where a follower begins: at a sequence, or with the newest message of each subject."""

    sequence: int | None


class FollowHandler(Protocol):
    """What is done with the messages. An error of a store from any method ends the follower."""

    async def on_start(self, state: StreamState) -> FollowStart:
        """Prepare for a start; all messages that were received before may be followed by lost ones."""
        ...

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        """Take a message, in the order of the stream, which waits meanwhile; `pending` more are ready to be sent."""
        ...

    async def on_idle(self) -> None:
        """Note that the stream had nothing more to send for a while."""
        ...


class Follower:
    """Follows some subjects of a stream, until it is cancelled or its handler raises an error."""

    def __init__(
        self, stream: CellStream, subjects: Sequence[str], name: str, handler: FollowHandler, host: str | None = None
    ) -> None:
        """With a `host`, use the only consumer that it may create, and ask for nothing else."""
        self._stream = stream
        self._host = host
        self._subjects = list(subjects)
        self._name = name
        self._handler = handler
        self._received = 0
        self._is_active = False
        self._lost: asyncio.Future[None]

    async def run(self) -> None:
        """Follow without end."""
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                state = await self._stream.read_state() if self._host is None else StreamState("", 0, {})
                start = await self._handler.on_start(state)
                await self._follow(start)
            except (FollowLost, NatsError) as error:
                if self._received:
                    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
                self._received = 0  # the next start may fail before it receives anything
                log.info("%s of %s starts again: %s", self._name, self._stream.name, error)
                await asyncio.sleep(next(pauses))

    async def _follow(self, start: FollowStart) -> None:
        connection = self._stream.connection
        self._lost = asyncio.get_running_loop().create_future()
        self._received = 0
        if self._host is None:
            inbox, name = connection.new_inbox(), f"{self._name}-{token_hex(8)}"
        else:
            inbox = self._stream.subjects.for_host(self._host, token_hex(8))
            name = self._stream.subjects.consumer(self._host)
        subscription = await connection.subscribe(
            inbox, self._on_message, lambda: self._lose(FollowLost("messages were dropped, because too many wait"))
        )
        try:
            if self._host is not None:  # an earlier one may remain, of a process that was killed
                with suppress(ApiRefused):
                    await connection.call(f"CONSUMER.DELETE.{self._stream.name}.{name}")
            await connection.call(
                f"CONSUMER.CREATE.{self._stream.name}.{name}",
                {"stream_name": self._stream.name, "config": self._consumer(name, inbox, start)},
            )
            while True:
                self._is_active = False
                done, _ = await asyncio.wait({self._lost}, timeout=SILENCE_SECONDS)
                if done:
                    self._lost.result()
                if not self._is_active:
                    raise FollowLost(f"nothing received for {SILENCE_SECONDS:g} s")
        finally:
            if self._lost.done() and not self._lost.cancelled():
                self._lost.exception()
            self._lost.cancel()
            await connection.unsubscribe(subscription)
            with suppress(ServerUnavailable):  # the server removes the consumer by itself, a little later
                # JetStream ignores a request without an address for its answer.
                function = f"CONSUMER.DELETE.{self._stream.name}.{name}"
                await connection.publish(f"{connection.api_prefix}.{function}", b"", reply=connection.new_inbox())

    def _consumer(self, name: str, inbox: str, start: FollowStart) -> dict[str, object]:
        config: dict[str, object] = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subjects": self._subjects,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NANOSECONDS),
            "inactive_threshold": 5 * NANOSECONDS,
            "flow_control": self._host is None,  # a host may not publish the answers that it needs
            "mem_storage": True,
            "num_replicas": 1,
        }
        if start.sequence is not None:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, start.sequence)}
        return config

    async def _on_message(self, message: Msg) -> None:
        if self._lost.done():
            return
        self._is_active = True
        headers = message.headers or {}
        try:
            if "Status" in headers:
                await self._on_status(message, headers)
                return
            tokens = message.reply.split(".")
            first = 5 if len(tokens) == 9 else 7  # with a domain and an account there are two more
            sequence, number = int(tokens[first]), int(tokens[first + 1])
            if number != self._received + 1:
                raise FollowLost(f"message {self._received + 1} did not arrive")  # noqa: TRY301 - handled below, as all others
            self._received = number
            stored = StoredMessage(message.subject, sequence, headers, message.data)
            await self._handler.on_message(stored, int(tokens[first + 3]))
        except Exception as error:  # noqa: BLE001 - the client would only log it
            self._lose(error)

    async def _on_status(self, message: Msg, headers: dict[str, str]) -> None:
        stalled = headers.get("Nats-Consumer-Stalled")
        if flow_control := message.reply or stalled:
            with suppress(ServerUnavailable):
                await self._stream.connection.publish(flow_control, b"")
        if "Nats-Last-Consumer" not in headers:
            return
        if int(headers["Nats-Last-Consumer"]) != self._received:
            raise FollowLost(f"message {self._received + 1} did not arrive")
        if not stalled:  # a stalled consumer has more messages, and waits only for flow control
            await self._handler.on_idle()

    def _lose(self, error: Exception) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)
