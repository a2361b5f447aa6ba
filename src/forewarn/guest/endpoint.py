"""From a question to its answer: what a known caller gets to hear, at once or later."""

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeAlias

from forewarn.core.errors import ScopeEventNotFound, ScopeVmNotFound
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.service import Fleet
from forewarn.guest.answers import APPROVED, Answer, Misdated, Reset, content, found, not_modified
from forewarn.guest.callers import Caller, Visitor
from forewarn.guest.enabling import Enabling
from forewarn.guest.held import HeldRequests
from forewarn.wire.approval import parse_approval
from forewarn.wire.document import etag, etag_matches
from forewarn.wire.error_responses import JSON, NOT_SAVED, UNKNOWN_CALLER, ErrorResponse, event_not_found
from forewarn.wire.instance import encode_instance, encode_versions
from forewarn.wire.request import (
    ApprovalRequest,
    DocumentRequest,
    GuestRequest,
    InstanceRequest,
    RequestHead,
    VersionsRequest,
    route,
)

Reply: TypeAlias = Answer | ErrorResponse | Misdated | Reset
Later: TypeAlias = Coroutine[Any, Any, Reply]

VERSIONS = content(encode_versions(), JSON)


class Endpoint:
    """Answers questions. Callers are known, and within their limits, before they get here."""

    def __init__(
        self, fleet: Fleet, held: HeldRequests, enabling: Enabling, *, unsupported_version_status: int
    ) -> None:
        self._fleet = fleet
        self._held = held
        self._enabling = enabling
        self._unsupported_version_status = unsupported_version_status

    def route(self, head: RequestHead) -> GuestRequest | ErrorResponse:
        """Tell what is asked."""
        return route(head, unsupported_version_status=self._unsupported_version_status)

    def respond(self, question: GuestRequest, body: bytes, visitor: Visitor, caller: Caller) -> Reply | Later:
        """Answer; with a coroutine where something has to happen first."""
        match question:
            case DocumentRequest():
                noting = self._enabling.note(caller)
                if noting is None and not _is_to_be_held(question, caller):
                    return _document(question, caller)
                return self._query(question, visitor, noting)
            case ApprovalRequest():
                ids = parse_approval(body)
                return (
                    ids if isinstance(ids, ErrorResponse) else self._approve(ids, visitor, self._enabling.note(caller))
                )
            case InstanceRequest():
                told = encode_instance(caller.scope, caller.vm, question)
                return told if isinstance(told, ErrorResponse) else content(*told)
            case VersionsRequest():
                return VERSIONS

    async def _query(self, question: DocumentRequest, visitor: Visitor, noting: Awaitable[None] | None) -> Reply:
        if noting is not None:
            await noting
        caller = visitor.recognise()
        if isinstance(caller, ErrorResponse):
            return caller
        if question.wait is not None and _is_to_be_held(question, caller):
            return await self._hold(question, question.wait, visitor, caller)
        return _document(question, caller)

    async def _hold(self, question: DocumentRequest, seconds: int, visitor: Visitor, caller: Caller) -> Reply:
        has_changed = await self._held.hold(visitor, caller.view, visitor.tally, seconds)
        now = visitor.recognise()
        if isinstance(now, ErrorResponse):
            return now
        return _document(DocumentRequest(question.version) if has_changed else question, now)

    async def _approve(self, ids: tuple[str, ...], visitor: Visitor, noting: Awaitable[None] | None) -> Reply:
        if noting is not None:
            await noting
        caller = visitor.recognise()
        if isinstance(caller, ErrorResponse):
            return caller
        try:
            await self._fleet.approve(caller.view.id, caller.vm.name, ids)
        except ScopeEventNotFound as error:
            return event_not_found(error.event)
        except (ScopeVmNotFound, ScopeNotFound):
            return UNKNOWN_CALLER
        except SaveFailed:
            return NOT_SAVED
        return APPROVED


def _is_to_be_held(question: DocumentRequest, caller: Caller) -> bool:
    return question.wait is not None and _has_it(question, caller)


def _has_it(question: DocumentRequest, caller: Caller) -> bool:
    """Tell whether the caller has the current document already."""
    if question.if_none_match is None:
        return False
    return etag_matches(question.if_none_match, etag(caller.scope, question.version))


def _document(question: DocumentRequest, caller: Caller) -> Answer:
    """Return the answer for all who ask this of the document as it is; it is made for the first of them."""
    make = not_modified if _has_it(question, caller) else found
    key = (make, question.version)
    answer = caller.view.prepared.get(key)
    if not isinstance(answer, Answer):
        answer = caller.view.prepared[key] = make(caller.scope, question.version)
    return answer
