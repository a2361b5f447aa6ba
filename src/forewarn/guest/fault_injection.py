"""Fault injection: wrong, late or missing responses for the requests that an active fault affects."""

from functools import partial

from forewarn.core.fault import FaultKind
from forewarn.guest.faults import Faults, FaultSet
from forewarn.guest.handler import EnableDelay, RequestHandler, Response
from forewarn.guest.identity import Caller, Peer
from forewarn.guest.responses import RESET, PreparedResponse, Reset, ShiftedDate
from forewarn.wire.document import encode_document, has_events
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.fault_responses import BODY_FAULTS, fault_response, faulty_document
from forewarn.wire.preview import ResponsePreview, preview_document
from forewarn.wire.request import ApprovalRequest, DocumentRequest, GuestRequest


class FaultInjector:
    """Injects faults into responses. Only valid requests for events can be affected."""

    def __init__(self, faults: Faults, handler: RequestHandler, enable_delay: EnableDelay) -> None:
        self.faults = faults
        self._handler = handler
        self._enable_delay = enable_delay

    def may_affect(self, request: GuestRequest, caller: Caller) -> bool:
        """Return whether a fault may affect the response to this request."""
        return isinstance(request, DocumentRequest | ApprovalRequest) and self.faults.affects(_vm_name(caller))

    async def respond(self, request: GuestRequest, body: bytes, peer: Peer, caller: Caller) -> Response:
        """Respond with the active faults applied, or correctly if none applies."""
        with self.faults.for_request(_vm_name(caller), partial(_applies, request, caller)) as fault_set:
            response = await self._faulty_response(fault_set, request, peer, caller)
        if response is None:
            response = await self._normal_response(request, body, peer)
        if fault_set.date is None or fault_set.date.fault.amount is None or isinstance(response, Reset | ShiftedDate):
            return response
        return ShiftedDate(response, fault_set.date.fault.amount)

    def preview(self, request: DocumentRequest, caller: Caller) -> ResponsePreview:
        """Return what the VM would get, without a hit."""
        fault_set = self.faults.preview(_vm_name(caller), partial(_applies, request, caller))
        kind = None if fault_set.response is None else fault_set.response.fault.kind
        return preview_document(caller.scope, request.version, kind)._replace(
            delay=self.faults.delay(fault_set, _vm_name(caller)),
            faults=tuple(active.fault for active in fault_set if active is not None),
        )

    async def _faulty_response(
        self, fault_set: FaultSet, request: GuestRequest, peer: Peer, caller: Caller
    ) -> Response | None:
        if fault_set.delay is not None:
            await self.faults.wait(fault_set.delay, _vm_name(caller), peer)
        if fault_set.response is None:
            return None
        kind = fault_set.response.fault.kind
        if kind is FaultKind.HANG:
            return None if await self.faults.hang(fault_set.response, peer) else RESET
        if kind is FaultKind.RESET:
            return RESET
        return fault_response(kind) or await self._faulty_document(kind, request, peer)

    async def _faulty_document(self, kind: FaultKind, request: GuestRequest, peer: Peer) -> Response | None:
        """Return a faulty document, without an ETag: a later request must not get 304 for it."""
        caller = peer.identify()
        if isinstance(caller, ErrorResponse) or not isinstance(request, DocumentRequest):
            return None
        if (enable_wait := self._enable_delay.record_request(caller)) is not None:
            await enable_wait
        content_type, content = faulty_document(kind, encode_document(caller.scope, request.version))
        return PreparedResponse(200, (("Content-Type", content_type),), content)

    async def _normal_response(self, request: GuestRequest, body: bytes, peer: Peer) -> Response:
        caller = peer.identify()
        if isinstance(caller, ErrorResponse):
            return caller
        response = self._handler.respond(request, body, peer, caller)
        return response if isinstance(response, Response) else await response


def _applies(request: GuestRequest, caller: Caller, kind: FaultKind) -> bool:
    """Return whether a fault of this kind changes the response; the response to an approval has no document."""
    if kind is FaultKind.UNKNOWN_EVENT_TYPE:
        return isinstance(request, DocumentRequest) and has_events(caller.scope, request.version)
    return kind not in BODY_FAULTS or isinstance(request, DocumentRequest)


def _vm_name(caller: Caller) -> str:
    return f"{caller.view.id}/{caller.vm.name}"
