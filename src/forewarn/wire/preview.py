"""The response to a VM's poll, rendered without a request: for a diagnosis, nothing is recorded and nothing changes."""

from datetime import datetime, timedelta
from typing import NamedTuple

from forewarn.core.enablement import mark_seen
from forewarn.core.fault import Fault, FaultKind
from forewarn.core.scope import Scope
from forewarn.wire.document import encode_document
from forewarn.wire.error_responses import JSON, ErrorResponse
from forewarn.wire.fault_responses import fault_response, faulty_document

NO_RESPONSE = frozenset({FaultKind.HANG, FaultKind.RESET})
"""Faults with which a request gets no response."""


class ResponsePreview(NamedTuple):
    """What a VM gets if it polls now. `status` None: no response. `faults` are those that affect it."""

    status: int | None
    content_type: str = ""
    body: bytes = b""
    delay: timedelta = timedelta(0)
    faults: tuple[Fault, ...] = ()


def scope_after_poll(scope: Scope, *, now: datetime) -> Scope:
    """Return the scope as a poll leaves it: enabled, with its events announced."""
    return mark_seen(scope, now=now, epoch=scope.epoch).scope or scope


def preview_error(error: ErrorResponse) -> ResponsePreview:
    """Return the preview of an error response."""
    return ResponsePreview(error.status, error.content_type, error.body)


def preview_document(scope: Scope, version: str, fault: FaultKind | None = None) -> ResponsePreview:
    """Return the document of the scope, or what a fault makes of it."""
    document = encode_document(scope, version)
    if fault is None:
        return ResponsePreview(200, JSON, document)
    if fault in NO_RESPONSE:
        return ResponsePreview(None)
    if (error := fault_response(fault)) is not None:
        return preview_error(error)
    return ResponsePreview(200, *faulty_document(fault, document))
