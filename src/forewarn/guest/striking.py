"""What a fault does to a request: the wrong answer, the late one, or none. Which faults there are: see `faults`."""

from collections.abc import Coroutine
from functools import partial

from forewarn.core.fault import FaultKind
from forewarn.guest.answers import RESET, Answer, Misdated, Reset
from forewarn.guest.callers import Caller, Visitor
from forewarn.guest.enabling import Enabling
from forewarn.guest.endpoint import Endpoint, Reply
from forewarn.guest.faults import Faults, Strike
from forewarn.wire.document import encode_document, has_events
from forewarn.wire.error_responses import JSON, ErrorResponse
from forewarn.wire.fault_responses import BODY_FAULTS, HTML, fault_response
from forewarn.wire.request import ApprovalRequest, DocumentRequest, GuestRequest


class Mischief:
    """Answers in place of the endpoint where faults are set. Only the right requests for events can be hit."""

    def __init__(self, faults: Faults, endpoint: Endpoint, enabling: Enabling) -> None:
        self.faults = faults
        self._endpoint = endpoint
        self._enabling = enabling

    def threatens(self, question: GuestRequest, caller: Caller) -> bool:
        """Tell whether this may be answered wrongly."""
        return isinstance(question, DocumentRequest | ApprovalRequest) and self.faults.concern(_name(caller))

    async def respond(self, question: GuestRequest, body: bytes, visitor: Visitor, caller: Caller) -> Reply:
        """Answer as the faults say, and rightly where none hits."""
        with self.faults.striking(_name(caller), partial(_applies, question, caller)) as strike:
            reply = await self._struck(strike, question, visitor, caller)
        if reply is None:
            reply = await self._rightly(question, body, visitor)
        if strike.date is None or strike.date.fault.amount is None or isinstance(reply, Reset | Misdated):
            return reply
        return Misdated(reply, strike.date.fault.amount)

    async def _struck(self, strike: Strike, question: GuestRequest, visitor: Visitor, caller: Caller) -> Reply | None:
        if strike.delay is not None:
            await self.faults.wait(strike.delay, _name(caller), visitor)
        if strike.answer is None:
            return None
        kind = strike.answer.fault.kind
        if kind is FaultKind.HANG:
            return None if await self.faults.hang(strike.answer, visitor) else RESET
        if kind is FaultKind.RESET:
            return RESET
        return fault_response(kind) or await self._wrong(kind, question, visitor)

    async def _wrong(self, kind: FaultKind, question: GuestRequest, visitor: Visitor) -> Reply | None:
        """Make a wrong document. It has no ETag: nobody is to be told later that it still holds."""
        caller = visitor.recognise()
        if isinstance(caller, ErrorResponse) or not isinstance(question, DocumentRequest):
            return None
        if (noting := self._enabling.note(caller)) is not None:
            await noting
        content_type = HTML if kind is FaultKind.WRONG_CONTENT_TYPE else JSON
        return Answer(
            200, (("Content-Type", content_type),), BODY_FAULTS[kind](encode_document(caller.scope, question.version))
        )

    async def _rightly(self, question: GuestRequest, body: bytes, visitor: Visitor) -> Reply:
        caller = visitor.recognise()
        if isinstance(caller, ErrorResponse):
            return caller
        reply = self._endpoint.respond(question, body, visitor, caller)
        return await reply if isinstance(reply, Coroutine) else reply


def _applies(question: GuestRequest, caller: Caller, kind: FaultKind) -> bool:
    """Tell whether a fault of this kind makes a difference: an approval's answer, for one, is no document."""
    if kind is FaultKind.UNKNOWN_EVENT_TYPE:
        return isinstance(question, DocumentRequest) and has_events(caller.scope, question.version)
    return kind not in BODY_FAULTS or isinstance(question, DocumentRequest)


def _name(caller: Caller) -> str:
    return f"{caller.view.id}/{caller.vm.name}"
