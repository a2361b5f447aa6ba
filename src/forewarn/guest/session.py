"""One keep-alive HTTP session: request bytes in, response bytes out, in order. `connection` does the I/O."""

from forewarn.guest.handler import PendingResponse, Response
from forewarn.guest.identity import AMBIGUOUS_CALLER, Caller, Peer
from forewarn.guest.observer import RequestTrace
from forewarn.guest.parser import (
    CACHED_REQUEST_BYTES,
    CONNECTION_CLOSE,
    KEEP_ALIVE,
    CachedRequest,
    InvalidRequest,
    ParseState,
    RequestParser,
)
from forewarn.guest.responses import CONTINUE, CommonHeaders, PreparedResponse, ShiftedDate, prepare_error
from forewarn.guest.server_state import ServerState
from forewarn.wire.error_responses import TOO_MANY_REQUESTS, ErrorReason, ErrorResponse
from forewarn.wire.request import DocumentRequest, GuestRequest, VersionsRequest


class HttpSession:
    """Handles one request at a time. If `take_pending` returns a response, call `send_response` before `read`."""

    __slots__ = (
        "_cached_response",
        "_cached_route",
        "_caller",
        "_connection_line",
        "_index_changes_seen",
        "_is_head",
        "_parser",
        "_pending",
        "_raw",
        "_recorded_at",
        "_request_start",
        "_routed",
        "_server_state",
        "_trace",
        "cached_request",
        "is_over",
        "is_reset",
        "lingers",
        "output",
        "output_size",
        "peer",
    )

    _caller: Caller

    def __init__(self, server_state: ServerState, peer: Peer) -> None:
        self._server_state = server_state
        self.peer = peer
        self._parser: RequestParser | None = None
        """Created for the first request that is not in the cache."""
        self._request_start: int | None = None
        self._routed: GuestRequest | ErrorResponse | None = None
        """The routed current request; None until its headers are complete."""
        self._connection_line = KEEP_ALIVE
        self._is_head = False
        self.output: list[bytes] = []
        """Bytes to send."""
        self.output_size = 0
        self._pending: PendingResponse | None = None
        self.is_over = False
        """Whether the last response, with `Connection: close`, was written."""
        self.lingers = False
        """Whether the peer may still be sending data that will not be read."""
        self.is_reset = False
        """Whether to reset the connection instead of a response."""
        self.cached_request = b""
        """The bytes of the last request without a body: if they repeat, they need not be parsed again."""
        self._cached_route: GuestRequest = VersionsRequest()
        self._cached_response: PreparedResponse | None = None
        """The response of `_caller` to it, if it is valid while the scope is unchanged."""
        self._recorded_at = 0
        """The tick at which the cached request was last recorded for the scope."""
        self._index_changes_seen = -1
        """The version of the address index at which the cached request was found to come from `_caller`."""
        self._trace: RequestTrace | None = None
        """The trace of the current request, if it is observed."""
        self._raw: bytes | None = None
        """What has arrived of the current request, if an observer needs its bytes."""

    def respond_from_cache(self) -> bytes | None:
        """Repeat the response to the cached request; return None, without any effect, if anything has changed since.

        This is the hot path: every VM polls every second, and most polls return nothing new.
        """
        response = self._cached_response
        if response is None:
            return None
        server_state, peer, caller = self._server_state, self.peer, self._caller
        view, ticks, counter, address_index = caller.view, server_state.ticks, peer.counter, peer.address_index
        if view.scope is not caller.scope:
            return None
        # Comparing the version is faster than a lookup in the dictionary of the whole fleet.
        if self._index_changes_seen != address_index.changes:
            if address_index.get(peer.address) is not view:
                return None
            self._index_changes_seen = address_index.changes
        if not counter.has_room(ticks, server_state.cached_rate):
            return None
        if self._recorded_at != ticks:
            if server_state.record_request(view) is not None:
                return None
            self._recorded_at = ticks
            view.polled_at[caller.vm.name] = view.seen_at  # type: ignore[assignment]  # set by record_request
            if not server_state.is_real_time:
                self._recorded_at = 0
                server_state.refresh_date()
        counter.requests += 1
        server_state.counters.responses[response.status] += 1
        return response.render(server_state.common_headers, KEEP_ALIVE)

    @property
    def is_throttled(self) -> bool:
        """Whether the peer exceeded the limit of refusals, so that nothing is read until the next second."""
        return self.peer.counter.is_throttled(self._server_state.ticks, self._server_state.limits.refusals_per_second)

    @property
    def parse_state(self) -> ParseState | None:
        """How far the current request has been read; None: it has not begun."""
        parser = self._parser
        return None if parser is None or parser.is_at_start else parser.state

    def start_buffer(self) -> None:
        """Note that the next `read` gets a new buffer."""
        self._request_start = None

    def read(self, data: bytes, at: int) -> int:
        """Read from position `at` until something can be done, do it, and return the new position."""
        try:
            return self._read(data, at)
        except InvalidRequest as error:
            if self._trace is None and self._parser is not None:
                self._start_trace(self._parser)
            if self._raw is not None:
                self._raw += data[at:]
            self.close_with(self._admission_error() or error.response)
            return len(data)

    def close_with(self, error: ErrorResponse, *, lingers: bool = True) -> None:
        """Respond with an error as the last response. With `lingers`, the peer may still be sending."""
        self._connection_line, self._is_head = CONNECTION_CLOSE, False
        self.send_response(error)
        self.lingers = lingers

    def send_response(self, response: Response) -> None:
        """Respond to the current request."""
        if isinstance(response, PreparedResponse):
            self._write_response(response, self._server_state.common_headers)
        elif isinstance(response, ErrorResponse):
            self._write_response(self._prepare_error(response), self._server_state.common_headers)
        elif isinstance(response, ShiftedDate):
            prepared = (
                self._prepare_error(response.response)
                if isinstance(response.response, ErrorResponse)
                else response.response
            )
            self._write_response(prepared, self._server_state.shifted_headers(response.offset))
        else:
            self.is_over = self.is_reset = True

    def take_output(self) -> bytes:
        """Return the bytes to send, and clear them."""
        sent = self.output[0] if len(self.output) == 1 else b"".join(self.output)
        self.output.clear()
        self.output_size = 0
        return sent

    def take_pending(self) -> PendingResponse | None:
        """Return the pending response of the current request, if it has to wait, and clear it."""
        pending, self._pending = self._pending, None
        return pending

    def close(self) -> None:
        """End the session: disconnect the peer and close the parser."""
        self.is_over = True
        self.peer.disconnect()
        if self._parser is not None:
            self._parser.close()

    def _write_response(self, response: PreparedResponse, common_headers: CommonHeaders) -> None:
        server_state = self._server_state
        if server_state.is_closing:
            self._connection_line = CONNECTION_CLOSE
        if not server_state.is_real_time:
            server_state.refresh_date()
        self.is_over = self._connection_line is CONNECTION_CLOSE
        server_state.counters.responses[response.status] += 1
        sent = response.render(common_headers, self._connection_line)
        self._write(sent)
        if self._trace is not None:
            self._trace.report_response(response.status, sent, self._raw or b"")
            self._trace = None

    def _write(self, data: bytes) -> None:
        self.output.append(data)
        self.output_size += len(data)

    def _prepare_error(self, error: ErrorResponse) -> PreparedResponse:
        self._server_state.counters.refusals[error.reason] += 1
        if error is AMBIGUOUS_CALLER:
            self._server_state.counters.ambiguous_callers += 1
        if error.close:
            self._connection_line = CONNECTION_CLOSE
            self.lingers = True
        return prepare_error(error, is_head=self._is_head)

    def _read(self, data: bytes, at: int) -> int:
        parser, observer = self._parser, self._server_state.observer
        if parser is None or parser.is_at_start:
            if observer is None or not observer.observes(self.peer):
                if self.cached_request and data.startswith(self.cached_request, at):
                    self._repeat_request()
                    return at + len(self.cached_request)
                if at == 0 and (cached := self._server_state.request_cache.get(data)) is not None:
                    self._handle_cached_request(cached, data)
                    return len(data)
            self._request_start = at
            self._raw = None if observer is None or not observer.keeps_bytes else b""
        if parser is None:
            parser = self._parser = RequestParser(self._server_state.limits)
        end = parser.read(data, at)
        if self._raw is not None:
            self._raw += data[at:end]
        if parser.state is not ParseState.HEAD and self._routed is None:
            self._handle_head(parser)
        if parser.state is ParseState.DONE and self._routed is not None and not self.is_over:
            whole = b"" if self._request_start is None else data[self._request_start : end]
            self._handle_request(parser, self._routed, whole)
        return end

    def _repeat_request(self) -> None:
        self._connection_line, self._is_head = KEEP_ALIVE, False
        self._respond_or_wait(self._admit() or self._cached_route, b"")

    def _handle_cached_request(self, cached: CachedRequest, whole: bytes) -> None:
        """Respond to a request that was parsed before, on this connection or on another one."""
        route, self._connection_line = cached
        self._is_head = False
        if self._connection_line is KEEP_ALIVE:
            self.cached_request, self._cached_route, self._cached_response = whole, route, None
        self._respond_or_wait(self._admit() or route, b"")

    def _handle_head(self, parser: RequestParser) -> None:
        """Check caller and request as soon as the headers are complete: the peer may wait for 100 before the body."""
        self._connection_line, self._is_head = parser.connection_line, parser.head.method == "HEAD"
        if self._server_state.observer is not None:
            self._start_trace(parser)
        self._routed = self._admit() or self._server_state.handler.route(parser.head)
        if parser.expects_continue and isinstance(self._routed, ErrorResponse):
            self.close_with(self._routed)
        elif parser.expects_continue:
            self._write(CONTINUE)

    def _handle_request(self, parser: RequestParser, routed: GuestRequest | ErrorResponse, whole: bytes) -> None:
        """Respond to a complete request; `whole` has its bytes, if all of them are in the buffer."""
        body = parser.body
        if self._trace is not None:
            self._trace.add_body(body)
        elif not parser.has_body and 0 < len(whole) <= CACHED_REQUEST_BYTES and isinstance(routed, GuestRequest):
            self._server_state.request_cache.add(whole, CachedRequest(routed, parser.connection_line))
            if parser.connection_line is KEEP_ALIVE:
                self.cached_request, self._cached_route, self._cached_response = whole, routed, None
        parser.start_next()
        self._routed = None
        self._respond_or_wait(routed, body)

    def _admit(self) -> ErrorResponse | None:
        """Apply the rate limit: count a request of a known caller, or refuse it."""
        caller, counter = self.peer.identify(), self.peer.counter
        has_room = counter.has_room(self._server_state.ticks, self._server_state.rate)
        if has_room and isinstance(caller, Caller):
            counter.requests += 1
            return None
        counter.refusals += 1
        return caller if isinstance(caller, ErrorResponse) else TOO_MANY_REQUESTS

    def _admission_error(self) -> ErrorResponse | None:
        """Return why the caller is refused, if it is. These checks come before those of the request."""
        if self._routed is None:
            return self._admit()
        match self._routed:
            case ErrorResponse(reason=ErrorReason.UNKNOWN_CALLER | ErrorReason.RATE) as refusal:
                return refusal
            case _:
                return None

    def _respond_or_wait(self, routed: GuestRequest | ErrorResponse, body: bytes) -> None:
        response = routed if isinstance(routed, ErrorResponse) else self._dispatch(routed, body)
        if isinstance(response, Response):
            self.send_response(response)
        else:
            self._pending = response
            if self._trace is not None:
                self._trace.report_waiting(self._raw or b"")

    def _start_trace(self, parser: RequestParser) -> None:
        observer = self._server_state.observer
        self._trace = None if observer is None else observer.start_trace(self.peer, parser.head)

    def _dispatch(self, request: GuestRequest, body: bytes) -> Response | PendingResponse:
        caller = self.peer.identify()
        if isinstance(caller, ErrorResponse):
            return caller
        injector = self._server_state.fault_injector
        if injector is not None and injector.may_affect(request, caller):
            return injector.respond(request, body, self.peer, caller)
        response = self._server_state.handler.respond(request, body, self.peer, caller)
        if request is self._cached_route:
            self._caller = caller
            self._cached_response = (
                response if isinstance(request, DocumentRequest) and isinstance(response, PreparedResponse) else None
            )
        return response
