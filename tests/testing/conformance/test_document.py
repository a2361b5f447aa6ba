"""Documents as an endpoint returned them, even if malformed."""

import pytest

from forewarn.testing.conformance.document import CheckSkipped, Document, event_id, read_document, read_json
from forewarn.testing.conformance.raw_http import Response

DOCUMENT = b'\xef\xbb\xbf{"Events":[{"EventId":"e1"},{"Other":1}],"DocumentIncarnation":"7"}'


def a_response(body: bytes, status: int = 200) -> Response:
    return Response(status=status, reason="", headers=(), body=body)


def test_document_keeps_what_may_be_malformed() -> None:
    document = read_document(a_response(DOCUMENT))
    assert document == Document(DOCUMENT, ("Events", "DocumentIncarnation"), "7", ({"EventId": "e1"}, {"Other": 1}))
    assert (document.event("E1"), document.event("E2")) == ({"EventId": "e1"}, None)
    assert event_id({"Other": 1}) == "None"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{}", 404), (b" \n", 200), (b"nonsense", 200), (b"[]", 200), (b'{"Events":{}}', 200), (b'{"Events":[1]}', 200)],
    ids=["status", "empty", "no JSON", "no object", "no list", "no objects"],
)
def test_response_without_a_document_is_skipped(body: bytes, status: int) -> None:
    with pytest.raises(CheckSkipped):
        read_document(a_response(body, status))


def test_text_that_is_no_json_is_nothing() -> None:
    assert [read_json(body) for body in (b"{", b"\xff", b"[" * 100_000, b"7")] == [None, None, None, 7]
