"""The request handler: responds to a guest request, immediately or later (long poll, enable delay, approval)."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from forewarn.core.errors import ScopeEventNotFound, ScopeVmNotFound
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed, ScopeNotFound
from forewarn.fleet.guest_port import GuestFleet
from forewarn.fleet.replica import ScopeView
from forewarn.guest.identity import Caller, Peer
from forewarn.guest.long_poll import LongPolls
from forewarn.guest.responses import (
    APPROVED,
    PreparedResponse,
    Reset,
    ShiftedDate,
    content_response,
    document_response,
    not_modified_response,
)
from forewarn.wire.approval import parse_approval
from forewarn.wire.document import etag, etag_matches
from forewarn.wire.error_responses import (
    JSON,
    NOT_SAVED,
    OUTCOME_UNKNOWN,
    UNKNOWN_CALLER,
    ErrorResponse,
    event_not_found,
)
from forewarn.wire.instance import encode_instance, encode_versions
from forewarn.wire.protocol import ALL_VERSIONS, VERSIONS
from forewarn.wire.request import (
    ApprovalRequest,
    DocumentRequest,
    GuestRequest,
    InstanceRequest,
    RequestHead,
    VersionsRequest,
    route,
)


class EnableDelay:
    """Records requests, and delays the first response of a scope while it is enabled (PROTOCOL §6: up to 2 minutes)."""

    def __init__(self, fleet: GuestFleet, delay: timedelta) -> None:
        self._fleet = fleet
        self._delay = delay.total_seconds()
        self._enabling: dict[ScopeView, asyncio.Event] = {}

    def record_request(self, caller: Caller) -> Awaitable[None] | None:
        """Record a valid request. If the result is not None, the caller must await it before the response."""
        save = self._fleet.last_seen.record_request(caller.view)
        if self._delay > 0 and not caller.scope.enabled:
            self._begin(caller.view)
        done = self._enabling.get(caller.view)
        return save if done is None else _AwaitBoth(save, done)

    def of(self, caller: Caller) -> timedelta:
        """Return how long the response to a request would be delayed."""
        is_delayed = not caller.scope.enabled or caller.view in self._enabling
        return timedelta(seconds=self._delay) if is_delayed else timedelta(0)

    def close(self) -> None:
        """End all delays."""
        self._delay = 0
        for view in tuple(self._enabling):
            self._end(view)

    def _begin(self, view: ScopeView) -> None:
        if view not in self._enabling:
            self._enabling[view] = asyncio.Event()
            asyncio.get_running_loop().call_later(self._delay, self._end, view)

    def _end(self, view: ScopeView) -> None:
        if (done := self._enabling.pop(view, None)) is not None:
            done.set()


class _AwaitBoth:
    """Awaitable for two things. Unlike a coroutine, it need not be awaited."""

    __slots__ = ("_done", "_save")

    def __init__(self, save: Awaitable[None] | None, done: asyncio.Event) -> None:
        self._save = save
        self._done = done

    def __await__(self) -> Generator[Any, None, None]:
        if self._save is not None:
            yield from self._save.__await__()
        yield from self._done.wait().__await__()


Response: TypeAlias = PreparedResponse | ErrorResponse | ShiftedDate | Reset
PendingResponse: TypeAlias = Coroutine[Any, Any, Response] | asyncio.Future[Response]


class RequestHandler:
    """Responds to requests. The session has identified the caller and applied the rate limit before."""

    def __init__(
        self,
        fleet: GuestFleet,
        long_polls: LongPolls[Response],
        enable_delay: EnableDelay,
        *,
        unsupported_version_status: int,
    ) -> None:
        self._fleet = fleet
        self._long_polls = long_polls
        self._enable_delay = enable_delay
        self._unsupported_version_status = unsupported_version_status
        self._versions = ALL_VERSIONS if fleet.scopes.rule_context.policy.allows_unreleased else VERSIONS
        self._versions_response = content_response(encode_versions(self._versions), JSON)

    def route(self, head: RequestHead) -> GuestRequest | ErrorResponse:
        """Parse and route a request."""
        return route(head, unsupported_version_status=self._unsupported_version_status, versions=self._versions)

    def respond(self, request: GuestRequest, body: bytes, peer: Peer, caller: Caller) -> Response | PendingResponse:
        """Return the response, or what to await if the response has to wait."""
        match request:
            case DocumentRequest():
                enable_wait = self._enable_delay.record_request(caller)
                caller.view.polled_at[caller.vm.name] = caller.view.seen_at  # type: ignore[assignment]  # it is set now
                if caller.view.poll_version is None or request.version > caller.view.poll_version:
                    caller.view.poll_version = request.version
                if enable_wait is None:
                    return self._respond_or_hold(request, peer, caller)
                return self._query(request, peer, enable_wait)
            case ApprovalRequest():
                ids = parse_approval(body)
                return (
                    ids
                    if isinstance(ids, ErrorResponse)
                    else self._approve(ids, peer, self._enable_delay.record_request(caller))
                )
            case InstanceRequest():
                result = encode_instance(caller.scope, caller.vm, request)
                return result if isinstance(result, ErrorResponse) else content_response(*result)
            case VersionsRequest():
                return self._versions_response

    async def _query(self, request: DocumentRequest, peer: Peer, enable_wait: Awaitable[None]) -> Response:
        await enable_wait
        caller = peer.identify()
        if isinstance(caller, ErrorResponse):
            return caller
        response = self._respond_or_hold(request, peer, caller)
        return response if isinstance(response, Response) else await response

    def _respond_or_hold(
        self, request: DocumentRequest, peer: Peer, caller: Caller
    ) -> Response | asyncio.Future[Response]:
        if request.wait is None or not _is_current(request, caller):
            return _document_response(request, caller)
        respond = partial(_held_response, request, peer)
        return self._long_polls.hold(peer, caller.view, peer.counter, request.wait, respond)

    async def _approve(self, ids: tuple[str, ...], peer: Peer, enable_wait: Awaitable[None] | None) -> Response:
        if enable_wait is not None:
            await enable_wait
        caller = peer.identify()
        if isinstance(caller, ErrorResponse):
            return caller
        try:
            await self._fleet.events.approve(caller.view.id, caller.vm.name, ids)
        except ScopeEventNotFound as error:
            return event_not_found(error.event)
        except (ScopeVmNotFound, ScopeNotFound):
            return UNKNOWN_CALLER
        except SaveFailed:
            return NOT_SAVED
        except OutcomeUnknown:
            return OUTCOME_UNKNOWN
        return APPROVED


def _held_response(request: DocumentRequest, peer: Peer, has_changed: bool) -> Response:
    """Return the response to a request that was held, for the caller as of now."""
    caller = peer.identify()
    if isinstance(caller, ErrorResponse):
        return caller
    return _document_response(DocumentRequest(request.version) if has_changed else request, caller)


def _is_current(request: DocumentRequest, caller: Caller) -> bool:
    """Return whether the caller already has the current document."""
    if request.if_none_match is None:
        return False
    return etag_matches(request.if_none_match, etag(caller.scope, request.version))


def _document_response(request: DocumentRequest, caller: Caller) -> PreparedResponse:
    """Return the response for this document; it is rendered once and shared by all callers."""
    build = not_modified_response if _is_current(request, caller) else document_response
    key = (build, request.version)
    response = caller.view.prepared.get(key)
    if not isinstance(response, PreparedResponse):
        response = caller.view.prepared[key] = build(caller.scope, request.version)
    return response
