"""The preview of a response: the bytes that a poll would get, while the scope stays as it is."""

import msgspec
import pytest

from forewarn.core.fault import FaultKind
from forewarn.wire.document import encode_document
from forewarn.wire.error_responses import JSON, UNKNOWN_CALLER
from forewarn.wire.fault_responses import HTML
from forewarn.wire.preview import ResponsePreview, preview_document, preview_error, scope_after_poll
from forewarn.wire.protocol import NEWEST_VERSION
from tests.wire.samples import NOT_BEFORE, event, scope


def test_preview_without_a_fault_is_the_document() -> None:
    some = scope(event())
    assert preview_document(some, NEWEST_VERSION) == ResponsePreview(200, JSON, encode_document(some, NEWEST_VERSION))


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_of_the_response_has_a_preview(kind: FaultKind) -> None:
    """Faults of the time and the date leave the response as it is; the caller does not pass them."""
    if kind in (FaultKind.SLOW, FaultKind.LATE_FIRST_ANSWER, FaultKind.WRONG_DATE):
        return
    some = scope(event())
    correct, found = preview_document(some, NEWEST_VERSION), preview_document(some, NEWEST_VERSION, kind)
    assert found != correct
    assert (found.status is None) == (kind in (FaultKind.HANG, FaultKind.RESET))
    assert (found.content_type == HTML) == (kind is FaultKind.WRONG_CONTENT_TYPE)


def test_refusal_has_its_status_and_body() -> None:
    assert preview_error(UNKNOWN_CALLER) == ResponsePreview(403, UNKNOWN_CALLER.content_type, UNKNOWN_CALLER.body)


def test_events_of_a_scope_that_is_not_enabled_are_announced_by_the_poll() -> None:
    hidden = scope(event(announced=False), enabled=False)
    polled = scope_after_poll(hidden, now=NOT_BEFORE)
    assert [len(msgspec.json.decode(encode_document(one, NEWEST_VERSION))["Events"]) for one in (hidden, polled)] == [
        0,
        1,
    ]
