"""One guest connection: the asyncio protocol around an HTTP session, with backpressure, throttling and timeouts."""

import asyncio
import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from typing import cast

from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.handler import PendingResponse, Response
from forewarn.guest.identity import CallerResolver, Peer
from forewarn.guest.parser import ParseState
from forewarn.guest.responses import INTERNAL_ERROR
from forewarn.guest.server_state import ServerState
from forewarn.guest.session import HttpSession
from forewarn.wire.error_responses import REQUEST_TIMEOUT, TOO_MANY_CONNECTIONS

log = logging.getLogger(__name__)

IDLE = ConnectionState.IDLE
BUSY = (ConnectionState.RESPONDING, ConnectionState.THROTTLED, ConnectionState.UNREAD)
READING = (ConnectionState.HEAD, ConnectionState.BODY)
FINISHED_STATES = (ConnectionState.LINGERING, ConnectionState.CLOSED)
NO_LINGER = struct.pack("ii", 1, 0)
STATE_BY_PARSE_STATE = {None: IDLE, ParseState.HEAD: ConnectionState.HEAD, ParseState.BODY: ConnectionState.BODY}


class Connection(asyncio.Protocol):
    """Serves one peer. Pipelined requests wait as bytes, and backpressure bounds how many bytes are read."""

    __slots__ = (
        "_backlog",
        "_has_eof",
        "_is_writing_paused",
        "_pending",
        "_resolver",
        "_server_state",
        "_session",
        "_session_type",
        "_state",
        "_transport",
        "since",
        "timeout",
    )

    _transport: asyncio.Transport
    _session: HttpSession

    def __init__(
        self,
        server_state: ServerState,
        resolver: CallerResolver,
        session_type: Callable[[ServerState, Peer], HttpSession] = HttpSession,
    ) -> None:
        self._server_state = server_state
        self._resolver = resolver
        self._session_type = session_type
        self._backlog = b""
        self._pending: asyncio.Future[Response] | None = None
        self._is_writing_paused = False
        self._has_eof = False
        self._state = IDLE
        self.since = server_state.ticks
        self.timeout = server_state.timeouts[IDLE]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the peer; respond 503 and close if there are too many connections."""
        server_state = self._server_state
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=server_state.limits.unread_bytes)
        peer = Peer(self._resolver, transport.get_extra_info("peername"), server_state.rate_limiter)
        self._session = self._session_type(server_state, peer)
        server_state.add_connection(self)
        if server_state.is_closing:
            self._close()
        elif server_state.is_full or peer.counter.connections > server_state.limits.connections_per_vm:
            self._session.close_with(TOO_MANY_CONNECTIONS, lingers=False)
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Serve the requests in the received data."""
        session = self._session
        try:
            if (
                self._state is IDLE
                and data == session.cached_request
                and (response := session.respond_from_cache()) is not None
            ):
                self.since = self._server_state.ticks
                self._transport.write(response)
            else:
                self._receive(data)
        except Exception as error:  # noqa: BLE001 - no guest input may stop the server
            self._fail(error)

    def eof_received(self) -> bool:
        """Finish a pending response, or close if there is none."""
        self._has_eof = True
        self._server_state.cancel_waits(self._session.peer)
        return self._state in BUSY

    def pause_writing(self) -> None:
        """Stop reading requests (backpressure): the peer does not read its responses."""
        self._is_writing_paused = True
        self._set_state(self._next_state())

    def resume_writing(self) -> None:
        """Continue reading requests: the peer has read its responses."""
        self._is_writing_paused = False
        self._run_safely(self._resume)

    def connection_lost(self, _: Exception | None) -> None:
        """Clean up and cancel pending work: no peer is left to receive a response."""
        self._set_state(ConnectionState.CLOSED)
        self._server_state.remove_connection(self)
        self._session.close()
        if self._pending is not None:
            self._pending.cancel()

    def expire(self) -> None:
        """Handle the timeout of the current state: respond 408, resume reading, close or abort."""
        self._run_safely(self._expire)

    def _expire(self) -> None:
        if self._state in READING:
            self._server_state.counters.timed_out += 1
            self._session.close_with(REQUEST_TIMEOUT)
            self._flush()
        elif self._state is ConnectionState.THROTTLED:
            self._resume()
        elif self._state is IDLE and not self._transport.get_write_buffer_size():
            self._close()
        else:
            self._server_state.counters.timed_out += self._state is not ConnectionState.LINGERING
            self.abort()

    def forget_request(self) -> None:
        """Parse the next request, even if its bytes are those of the last one."""
        self._session.cached_request = b""

    def finish(self) -> None:
        """Close after the pending response, if there is one; it will have `Connection: close`."""
        if self._state is not ConnectionState.RESPONDING:
            self._close()

    def abort(self) -> None:
        """Close now, and drop responses that the peer has not read."""
        self._transport.abort()

    def _receive(self, data: bytes) -> None:
        if self._state in FINISHED_STATES:
            return
        self._backlog += data
        if self._state not in BUSY:
            self._serve()
        elif len(self._backlog) > self._server_state.limits.pipelined_bytes:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._state not in FINISHED_STATES:
            self._serve()

    def _serve(self) -> None:
        """Serve buffered requests until a response has to wait, the peer must read first, or no data is left."""
        session = self._session
        session.start_buffer()
        data, at = self._backlog, 0
        while at < len(data) and self._is_ready():
            at = session.read(data, at)
            if (pending := session.take_pending()) is not None:
                self._start_pending(pending)
        self._backlog = data[at:]
        self._flush()

    def _is_ready(self) -> bool:
        session = self._session
        if self._pending is not None or self._is_writing_paused or session.is_over:
            return False
        return session.output_size < self._server_state.limits.unread_bytes and not session.is_throttled

    def _start_pending(self, pending: PendingResponse) -> None:
        self._pending = asyncio.ensure_future(pending)
        self._pending.add_done_callback(self._on_pending_done)

    def _on_pending_done(self, pending: asyncio.Future[Response]) -> None:
        self._pending = None
        if pending.cancelled() and self._state is ConnectionState.CLOSED:
            return  # the peer has disconnected and needs no response
        self._run_safely(partial(self._send_response, self._result_of(pending)))

    def _send_response(self, response: Response) -> None:
        if self._state is not ConnectionState.CLOSED:
            self._session.send_response(response)
            self._serve()

    def _result_of(self, pending: asyncio.Future[Response]) -> Response:
        error = asyncio.CancelledError("before the response") if pending.cancelled() else pending.exception()
        if error is None:
            return pending.result()
        self._report(error)  # the response is 500: it is unknown whether the request took effect
        return INTERNAL_ERROR

    def _report(self, error: BaseException) -> None:
        log.error("internal error while serving a guest request", exc_info=error)
        self._server_state.counters.failures += 1

    def _run_safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - as in data_received
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Respond 500 to an internal error, and close this connection."""
        self._report(error)
        try:
            self._session.close_with(INTERNAL_ERROR)
            self._flush()
        except Exception:
            log.exception("failed to send the error response")
            self.abort()

    def _flush(self) -> None:
        """Send the output of the session, and enter the next state."""
        if output := self._session.take_output():
            self.since = self._server_state.ticks
            self._transport.write(output)
        self._set_state(self._next_state())
        if self._state is ConnectionState.CLOSED or self._transport.is_closing():
            self._close()
        elif self._state is ConnectionState.LINGERING:
            self._half_close()
        elif self._state not in BUSY:
            self._transport.resume_reading()
        else:
            if len(self._backlog) > self._server_state.limits.pipelined_bytes:
                self._transport.pause_reading()
            if self._backlog and self._is_ready():
                asyncio.get_running_loop().call_soon(self._run_safely, self._resume)

    def _half_close(self) -> None:
        """Close our side of the connection. The peer closes its side after it has read the response."""
        with suppress(OSError):
            self._transport.write_eof()

    def _next_state(self) -> ConnectionState:
        session = self._session
        if session.is_over:
            return ConnectionState.LINGERING if session.lingers and not self._has_eof else ConnectionState.CLOSED
        if self._is_writing_paused and self._pending is None:
            return ConnectionState.UNREAD
        if self._pending is not None:
            return ConnectionState.RESPONDING
        if self._backlog:
            return ConnectionState.THROTTLED if session.is_throttled else ConnectionState.RESPONDING
        if self._has_eof:
            return ConnectionState.CLOSED
        return STATE_BY_PARSE_STATE[session.parse_state]

    def _set_state(self, state: ConnectionState) -> None:
        if state is not self._state:
            self._state = state
            self.since = self._server_state.ticks
            self.timeout = self._server_state.timeouts[state]

    def _close(self) -> None:
        self._set_state(ConnectionState.CLOSED)
        if self._session.is_reset:
            self._reset()
        else:
            self._transport.close()

    def _reset(self) -> None:
        """Reset the connection, as a crash would; the peer may lose unread responses."""
        with suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
        self._transport.abort()
