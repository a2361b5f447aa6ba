"""Responses of the metadata service: success or error, ETag, long-poll offer, name, and versions."""

import pytest

from forewarn.client.effects import Request, Response
from forewarn.client.errors import (
    ClientError,
    NoName,
    NoSuchEvent,
    NotAllowed,
    NotUnderstood,
    NoVersion,
    Refused,
    Unavailable,
)
from forewarn.client.responses import (
    MOST_NAMED,
    etag_of,
    named_versions,
    offered_wait,
    refuses_version,
    response_error,
    versions_to_try,
    vm_name_in,
)
from forewarn.wire.protocol import MAX_WAIT
from tests.client.scripted_flow import ENDPOINT, response

GET, POST = Request("GET", "/x"), Request("POST", "/x")
CONDITIONAL = Request("GET", "/x", (("If-None-Match", '"1"'),))
VERSIONS = b'{"error":"no","newest-versions":["2020-07-01","2019-08-01","nonsense"]}'


@pytest.mark.parametrize(
    ("status", "request_", "error"),
    [
        (200, GET, None),
        (204, POST, None),
        (304, CONDITIONAL, None),
        (304, GET, NotUnderstood),
        (302, GET, NotUnderstood),
        (400, GET, Refused),
        (401, GET, NotAllowed),
        (403, POST, NotAllowed),
        (404, GET, NoVersion),
        (404, POST, NoSuchEvent),
        (408, GET, Unavailable),
        (410, GET, Unavailable),
        (429, GET, Unavailable),
        (500, GET, Unavailable),
        (503, POST, Unavailable),
    ],
)
def test_status_is_a_success_or_an_error(status: int, request_: Request, error: type[ClientError] | None) -> None:
    found = response_error(ENDPOINT, request_, response(status, b"no"))
    assert type(found) is (type(None) if error is None else error)


def test_approval_that_names_versions_is_not_about_an_event() -> None:
    assert type(response_error(ENDPOINT, POST, response(404, VERSIONS))) is NoVersion


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"gone\\nfor now"}', "gone for now"),
        (b'{"error":{"code":"x","message":"denied"}}', "denied"),
        (b"<html> busy </html>", "<html> busy </html>"),
        (b"x" * 1000, "x" * 300),
        (b"", ""),
    ],
    ids=["text", "object", "no JSON", "long", "empty"],
)
def test_error_has_the_sentence_of_the_service(body: bytes, message: str) -> None:
    error = response_error(ENDPOINT, GET, response(403, body))
    assert isinstance(error, NotAllowed)
    assert error.message == message


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (" 7 ", 7.0), ("", None), ("-1", None), ("soon", None)])
def test_unavailable_service_may_say_when_to_retry(header: str, seconds: float | None) -> None:
    error = response_error(ENDPOINT, GET, response(429, b"", Retry_After=header))
    assert isinstance(error, Unavailable)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("header", "etag"),
    [
        ('"a:1"', '"a:1"'),
        (" x ", "x"),
        ("", None),
        ("x" * 256, "x" * 256),
        ("x" * 257, None),
        ("ü", None),
        ("a\tb", None),
    ],
)
def test_etag_is_kept_if_it_can_be_sent_back(header: str, etag: str | None) -> None:
    assert etag_of(response(200, b"", ETag=header)) == etag


@pytest.mark.parametrize(
    ("header", "limit", "wait"),
    [("60", 60, 60), ("60", 5, 5), ("600", 600, MAX_WAIT), ("", 60, 0), ("x", 60, 0), ("1234567890", 60, 0)],
)
def test_wait_is_the_shortest_of_offer_limit_and_protocol(header: str, limit: int, wait: int) -> None:
    assert offered_wait(response(200, b"", Forewarn_Wait=header), limit) == wait


def test_name_of_the_vm_is_in_the_instance_document() -> None:
    assert vm_name_in(ENDPOINT, response(200, b'\xef\xbb\xbf{"compute":{"name":" web_0 "}}')) == "web_0"


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"compute":{}}', b'{"compute":{"name":" "}}', b'{"compute":{"name":1}}']
)
def test_instance_document_without_a_name_is_refused(body: bytes) -> None:
    with pytest.raises(NoName):
        vm_name_in(ENDPOINT, response(200, body))


def test_instance_document_that_is_no_json_is_not_understood() -> None:
    with pytest.raises(NotUnderstood) as refused:
        vm_name_in(ENDPOINT, response(200, b"nonsense"))
    assert not isinstance(refused.value, NoName)


def test_versions_that_a_service_names_are_read_newest_first() -> None:
    assert named_versions(response(400, VERSIONS)) == ("2020-07-01", "2019-08-01")
    many = [f"20{n:02}-01-01" for n in range(99)]
    body = b'{"newest-versions":[' + b",".join(f'"{day}"'.encode() for day in many) + b"]}"
    assert named_versions(response(400, body)) == tuple(reversed(many))[:MOST_NAMED]
    assert [named_versions(response(400, body)) for body in (b"", b"{}", b'{"newest-versions":1}')] == [None] * 3


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [(response(404), True), (response(400, VERSIONS), True), (response(400), False), (response(410, VERSIONS), False)],
)
def test_refusal_of_the_version_is_recognised(answer: Response, refuses: bool) -> None:
    assert refuses_version(answer) is refuses


def test_versions_that_both_know_are_tried_first() -> None:
    known = ("2030-01-01", "2020-07-01", "2019-08-01")
    answer = response(400, b'{"newest-versions":["2019-08-01","2031-01-01"]}')
    assert versions_to_try(known, "2030-01-01", answer) == ("2019-08-01", "2020-07-01", "2031-01-01")
    assert versions_to_try(known, "2030-01-01", response(404)) == ("2020-07-01", "2019-08-01")
