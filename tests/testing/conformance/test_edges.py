"""Endpoints that are wrong at the edges: HTTP itself, names, limits, the extension. With them every row is failed."""

import socket
from typing import Any

import pytest

from forewarn.testing.conformance import RULES, Report, Verdict, examine
from tests.testing.conformance import test_others
from tests.testing.conformance.looking import GUARD, hasty, rows
from tests.testing.conformance.mock import NO_VERSION, VERSIONS, Asked, Headers, Mock, Refused, Reply, error, listening
from tests.testing.conformance.test_others import NO_EXTENSION, Case

Fields = dict[str, Any]

CANNOT_FAIL = {"approve-starts"}
"""Whatever holds an event, an endpoint need not tell: this row is passed, or not checked."""


def look(mock: Mock) -> Report:
    with listening(mock) as url:
        return examine(url, approve_event=mock.events[0]["EventId"], burst=True, pace=hasty(), timeout=GUARD)


class TidiesPaths(Mock):
    def place(self, asked: Asked) -> list[str] | None:
        kept: list[str] = []
        for segment in asked.path.replace("%2F", "/").split("/"):
            if segment == "..":
                kept.pop()
            elif segment not in ("", "."):
                kept.append(segment)
        return super().place(asked._replace(target="/" + "/".join(kept)))


class WantsParametersInTheirOwnCase(Mock):
    def check_version(self, asked: Asked, *, is_instance: bool) -> str:
        if "api-version=" not in asked.target:
            raise Refused(self.bad_version(400, NO_VERSION))
        return super().check_version(asked, is_instance=is_instance)


class RefusesOtherParameters(Mock):
    def query(self, asked: Asked, version: str) -> Reply:
        others = {name for name, _ in asked.parameters} - {"api-version", "wait"}
        return error(400, "what is that?") if others else super().query(asked, version)


class KnowsOneHttpOnly(Mock):
    def answer(self, asked: Asked, body: bytes | None) -> Reply:
        return error(505, "too old") if asked.http == "1.0" else super().answer(asked, body)


class KeepsTheUnderscore(Mock):
    def name(self, vm: str, version: str) -> str:
        return vm if version > VERSIONS[1] or "_IN_" in vm else f"_{vm}"


class HasItsOwnTitle(Mock):
    def document(self, version: str) -> Fields:
        return super().document(version) | {"Title": "events"}


class HasOtherIdsInOlderVersions(Mock):
    def event(self, each: Fields, version: str) -> Fields:
        shown = super().event(each, version)
        return shown | ({"EventId": f"{each['EventId'][:-1]}-"} if version < VERSIONS[-1] else {})


class SendsChunks(Mock):
    def written(self, asked: Asked | None, reply: Reply) -> bytes:
        if reply.status != 200 or not reply.body:
            return super().written(asked, reply)
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(reply.body), reply.body)
        return super().written(asked, reply._replace(body=chunks))

    def usual_headers(self, reply: Reply) -> Headers:
        usual = super().usual_headers(reply)
        return [("Transfer-Encoding", "chunked"), *usual[1:]] if reply.status == 200 and reply.body else usual


class ForgetsWhatHasEnded(Mock):
    def start(self, each: Fields) -> None:
        self.events = [other for other in self.events if other is not each]
        self.incarnation += 2


class LimitsWithoutAWord(Mock):
    answers = 0

    def answer(self, asked: Asked, body: bytes | None) -> Reply:
        self.answers += 1
        return error(429, "slower") if self.answers % 9 == 0 else super().answer(asked, body)


class LooksAtTheMethodFirst(Mock):
    def answer(self, asked: Asked, body: bytes | None) -> Reply:
        self.check_method(asked, ("GET", "POST"))
        return super().answer(asked, body)


class LooksAtTheHeaderFirst(Mock):
    def answer(self, asked: Asked, body: bytes | None) -> Reply:
        self.check_header(asked)
        return super().answer(asked, body)


class ReadsWhateverComes(Mock):
    """Heads and bodies of any size; what is no HTTP, it takes for something to fail about."""

    def read_and_answer(self, line: socket.socket, head: bytes, unread: bytes) -> tuple[Reply, Asked | None, bytes]:
        reply, asked, rest = super().read_and_answer(line, head, unread)
        is_refused = asked is None or reply.status in (413, 431)
        return (error(500, "failed")._replace(closes=True), asked, rest) if is_refused else (reply, asked, rest)


class HasEverything(Mock):
    def instance(self, asked: Asked, path: list[str]) -> Reply:
        found = super().instance(asked, path)
        return Reply(200, b'""') if found.status == 404 else found


CASES = [
    Case(TidiesPaths, set(), {"path-nowhere"}),
    Case(WantsParametersInTheirOwnCase, set(), {"parameter-case"}),
    Case(RefusesOtherParameters, set(), {"parameter-other"}),
    Case(KnowsOneHttpOnly, {"http-1.0", "http-1.0-keep-alive"}),
    Case(KeepsTheUnderscore, {"names"}),
    Case(HasItsOwnTitle, {"document-keys"}),
    Case(HasOtherIdsInOlderVersions, {"event-id-versions", "preempt-since", "terminate-since"}),
    Case(SendsChunks, {"content-length"}),
    Case(ForgetsWhatHasEnded, set(), {"approve-ended"}),
    Case(LimitsWithoutAWord, {"rate"}),
    Case(LooksAtTheMethodFirst, set(), {"order-path-method"}),
    Case(LooksAtTheHeaderFirst, set(), {"order-path-header", "order-method-header", "order-forwarded-header"}),
    Case(ReadsWhateverComes, {"body-too-large", "head-too-large", "not-http"}),
    Case(HasEverything, set(), {"instance-nowhere", "path-nowhere"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mock.__name__)
def test_wrong_one_fails_in_exactly_its_rows(case: Case) -> None:
    report = look(case.mock())
    assert rows(report, Verdict.WRONG) == case.wrong
    assert rows(report, Verdict.DIFFERS) == case.differs | NO_EXTENSION


class OffersToWait(Mock):
    """Says that it holds queries, on its documents alone, and holds none."""

    def query(self, asked: Asked, version: str) -> Reply:
        reply = super().query(asked, version)
        offered = (("Forewarn-Wait", "60"),) if reply.status == 200 else ()
        return reply._replace(headers=(*reply.headers, *offered))


class NeverChangesForWhoeverWaits(OffersToWait):
    def query(self, asked: Asked, version: str) -> Reply:
        reply = super().query(asked, version)
        return Reply(304) if asked.parameter("wait") and reply.status == 200 else reply


class ChangesForWhoeverWaits(OffersToWait):
    def query(self, asked: Asked, version: str) -> Reply:
        fresh = asked._replace(headers=[("Metadata", "true")])
        return super().query(fresh if asked.parameter("wait") else asked, version)


WAITING = [
    Case(OffersToWait, set(), {"wait-header-304", "wait-holds", "wait-ends-with-change"}),
    Case(
        NeverChangesForWhoeverWaits,
        set(),
        {"wait-header-304", "wait-holds", "wait-ends-with-change", "wait-other-etag", "wait-without-etag"},
    ),
    Case(ChangesForWhoeverWaits, set(), {"wait-header-304", "wait-too-many"}),
]


@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.mock.__name__)
def test_wrong_extension_differs_in_exactly_its_rows(case: Case) -> None:
    report = look(case.mock())
    assert rows(report, Verdict.WRONG) == set()
    assert rows(report, Verdict.DIFFERS) == case.differs


class KnowsNobody(Mock):
    def answer(self, asked: Asked, body: bytes | None) -> Reply:
        return Reply(403, b"go away")


def test_stranger_has_to_be_told_why() -> None:
    report = look(KnowsNobody())
    assert rows(report, Verdict.DIFFERS) == {"unknown-caller"}
    assert rows(report, Verdict.PASSED) == rows(report, Verdict.WRONG) == set()


class Broken(Mock):
    def query(self, asked: Asked, version: str) -> Reply:
        return error(500, "failed")


def test_endpoint_that_has_no_document_is_wrong_in_what_it_was_asked_for() -> None:
    wrong = rows(look(Broken()), Verdict.WRONG)
    assert {"query", *(f"version-{version}" for version in VERSIONS)} <= wrong


def test_every_row_was_failed_by_somebody() -> None:
    """Else it would be passed without being checked."""
    cases = (*test_others.CASES, *CASES, *WAITING)
    failed = set().union(*(case.wrong | case.differs for case in cases))
    elsewhere = {"query", "version-2020-07-01", "unknown-caller", *NO_EXTENSION}
    assert {row.id for row in RULES} - failed - elsewhere == CANNOT_FAIL
