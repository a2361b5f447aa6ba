"""One connection: the socket of a conversation, and everything that can make it wait."""

import asyncio
import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from typing import cast

from forewarn.guest.answers import FAILED
from forewarn.guest.callers import Door, Visitor
from forewarn.guest.conversation import Conversation
from forewarn.guest.desk import Desk
from forewarn.guest.endpoint import Later, Reply
from forewarn.guest.phases import Phase
from forewarn.guest.reading import Stage
from forewarn.wire.error_responses import REQUEST_TIMEOUT, TOO_MANY_CONNECTIONS

log = logging.getLogger(__name__)

IDLE = Phase.IDLE
BUSY = (Phase.ANSWERING, Phase.RESTRAINED, Phase.UNREAD)
READING = (Phase.HEAD, Phase.BODY)
OVER = (Phase.LINGERING, Phase.CLOSED)
NO_LINGER = struct.pack("ii", 1, 0)
PHASES = {None: IDLE, Stage.HEAD: Phase.HEAD, Stage.BODY: Phase.BODY}


class Connection(asyncio.Protocol):
    """Serves one peer. Requests behind one that has no answer yet stay bytes, and only so many of them are read."""

    __slots__ = (
        "_backlog",
        "_conversation",
        "_desk",
        "_door",
        "_has_peer_ended",
        "_is_peer_behind",
        "_pending",
        "_phase",
        "_transport",
        "patience",
        "since",
    )

    _transport: asyncio.Transport
    _conversation: Conversation

    def __init__(self, desk: Desk, door: Door) -> None:
        self._desk = desk
        self._door = door
        self._backlog = b""
        self._pending: asyncio.Task[Reply] | None = None
        self._is_peer_behind = False
        self._has_peer_ended = False
        self._phase = IDLE
        self.since = desk.beats
        self.patience = desk.patience[IDLE]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the peer in; if there are too many already, say so and close."""
        desk = self._desk
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=desk.limits.unread_bytes)
        visitor = Visitor(self._door, transport.get_extra_info("peername"), desk.tallies)
        self._conversation = Conversation(desk, visitor)
        desk.enter(self)
        if desk.is_closing:
            self._close()
        elif desk.is_full or visitor.tally.connections > desk.limits.connections_per_vm:
            self._conversation.end(TOO_MANY_CONNECTIONS, lingers=False)
            self._settle()

    def data_received(self, data: bytes) -> None:
        """Serve the requests in what has come."""
        conversation = self._conversation
        try:
            if self._phase is IDLE and data == conversation.known and (answer := conversation.repeat()) is not None:
                self.since = self._desk.beats
                self._transport.write(answer)
            else:
                self._receive(data)
        except Exception as error:  # noqa: BLE001 - whatever a guest sends, the server lives on
            self._fail(error)

    def eof_received(self) -> bool:
        """Finish what is under way, if anything is, else close."""
        self._has_peer_ended = True
        self._desk.gone(self._conversation.visitor)
        return self._phase in BUSY

    def pause_writing(self) -> None:
        """Take no more requests: the peer does not read its answers."""
        self._is_peer_behind = True
        self._turn_to(self._next_phase())

    def resume_writing(self) -> None:
        """Go on: the peer has read."""
        self._is_peer_behind = False
        self._safely(self._go_on)

    def connection_lost(self, _: Exception | None) -> None:
        """Forget everything; there is nobody any more to be told what is under way."""
        self._turn_to(Phase.CLOSED)
        self._desk.leave(self)
        self._conversation.close()
        if self._pending is not None:
            self._pending.cancel()

    def expire(self) -> None:
        """End what has taken too long."""
        self._safely(self._expire)

    def _expire(self) -> None:
        if self._phase in READING:
            self._desk.counters.cut_off += 1
            self._conversation.end(REQUEST_TIMEOUT)
            self._settle()
        elif self._phase is Phase.RESTRAINED:
            self._go_on()
        elif self._phase is IDLE and not self._transport.get_write_buffer_size():
            self._close()
        else:
            self._desk.counters.cut_off += self._phase is not Phase.LINGERING
            self.abort()

    def finish(self) -> None:
        """Close, as soon as an answer that is under way has been given: it will say that it is the last."""
        if self._phase is not Phase.ANSWERING:
            self._close()

    def abort(self) -> None:
        """Close now, whatever the peer has not read."""
        self._transport.abort()

    def _receive(self, data: bytes) -> None:
        if self._phase in OVER:
            return
        self._backlog += data
        if self._phase not in BUSY:
            self._serve()
        elif len(self._backlog) > self._desk.limits.pipelined_bytes:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._phase not in OVER:
            self._serve()

    def _serve(self) -> None:
        """Serve what has come, until an answer has to wait, the peer has to read first, or nothing is left."""
        conversation = self._conversation
        conversation.begin()
        data, at = self._backlog, 0
        while at < len(data) and self._is_free():
            at = conversation.read(data, at)
            if (later := conversation.take_later()) is not None:
                self._answer_later(later)
        self._backlog = data[at:]
        self._settle()

    def _is_free(self) -> bool:
        conversation = self._conversation
        if self._pending is not None or self._is_peer_behind or conversation.is_over:
            return False
        return conversation.answers_size < self._desk.limits.unread_bytes and not conversation.is_restrained

    def _answer_later(self, later: Later) -> None:
        self._pending = asyncio.get_running_loop().create_task(later)
        self._pending.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[Reply]) -> None:
        self._pending = None
        if task.cancelled() and self._phase is Phase.CLOSED:
            return  # the peer has left, and nobody waits for the answer
        self._safely(partial(self._reply, self._outcome(task)))

    def _reply(self, reply: Reply) -> None:
        if self._phase is not Phase.CLOSED:
            self._conversation.reply(reply)
            self._serve()

    def _outcome(self, task: asyncio.Task[Reply]) -> Reply:
        error = asyncio.CancelledError("before it was answered") if task.cancelled() else task.exception()
        if error is None:
            return task.result()
        self._report(error)  # what was asked for may have happened or not: neither can be promised
        return FAILED

    def _report(self, error: BaseException) -> None:
        log.error("a request failed", exc_info=error)
        self._desk.counters.failures += 1

    def _safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - as in data_received
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Answer an error of our own with 500; it costs no more than this connection."""
        self._report(error)
        try:
            self._conversation.end(FAILED)
            self._settle()
        except Exception:
            log.exception("nor could the peer be told")
            self.abort()

    def _settle(self) -> None:
        """Send what there is to be sent, and wait for what comes next."""
        if answer := self._conversation.take_answers():
            self.since = self._desk.beats
            self._transport.write(answer)
        self._turn_to(self._next_phase())
        if self._phase is Phase.CLOSED or self._transport.is_closing():
            self._close()
        elif self._phase is Phase.LINGERING:
            self._half_close()
        elif self._phase not in BUSY:
            self._transport.resume_reading()
        elif self._backlog and self._is_free():
            asyncio.get_running_loop().call_soon(self._safely, self._go_on)

    def _half_close(self) -> None:
        """Say that nothing more will come. The peer, if it is still there, closes when it has read the answer."""
        with suppress(OSError):
            self._transport.write_eof()

    def _next_phase(self) -> Phase:
        conversation = self._conversation
        if conversation.is_over:
            return Phase.LINGERING if conversation.lingers and not self._has_peer_ended else Phase.CLOSED
        if self._is_peer_behind and self._pending is None:
            return Phase.UNREAD
        if self._pending is not None:
            return Phase.ANSWERING
        if self._backlog:
            return Phase.RESTRAINED if conversation.is_restrained else Phase.ANSWERING
        if self._has_peer_ended:
            return Phase.CLOSED
        return PHASES[conversation.stage]

    def _turn_to(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self.since = self._desk.beats
            self.patience = self._desk.patience[phase]

    def _close(self) -> None:
        self._turn_to(Phase.CLOSED)
        if self._conversation.is_reset:
            self._reset()
        else:
            self._transport.close()

    def _reset(self) -> None:
        """Break the connection off as a crash would: the peer sees a reset, whatever it has not read."""
        with suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
        self._transport.abort()
