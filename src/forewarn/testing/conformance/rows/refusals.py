"""When the endpoint says no, how, and what it finds first (section “Refusals”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import NotChecked, Otherwise, read_json
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import (
    DAY,
    NO_HEADER,
    Look,
    answered,
    events,
    every,
    expect_status,
    get,
    is_refused_without_header,
    posted,
    quoted,
    status,
    tells_error,
    with_headers,
)
from forewarn.testing.conformance.rows.requests import INSTANCE_VERSION, SERVED
from forewarn.testing.conformance.seen import QUERY, Seen
from forewarn.testing.conformance.talking import METADATA, Answer, Line, Request
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS

SECTION = "Refusals"

VERSION_MISSING = (
    "Bad request. api-version was not specified in the request. For more information refer to aka.ms/azureimds"
)
FORWARDED = ("X-Forwarded-For", "203.0.113.7")
TOO_MUCH = 12
"""Requests at once: more than two seconds' worth, so that they cannot all be within the limit."""

LARGE_HEADER = 24 * 1024
NOT_HTTP = b"this is not HTTP\r\n\r\n"

ORDER = "A request is held against this list from the top, and the first fault found is the answer (O)."
BODY = (
    "the body of an approval is no JSON, no object, has no list `StartRequests`, or an entry of it has no GUID as "
    "`EventId` | 400 |"
)
UNSUPPORTED = "| `api-version` not supported | 404, or what `unsupported_version_status` says"
VERSION_BODY = (
    '{"error":"Bad request. api-version was not specified in the request. For more information refer to '
    'aka.ms/azureimds","newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
)


def _names_newest_versions(answer: Answer) -> None:
    told = read_json(answer.body)
    newest = told.get("newest-versions") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(told.get("error"), str) or not isinstance(newest, list):
        raise Otherwise(f'the body is not {{"error":"…","newest-versions":[…]}} but {quoted(answer.body)}')
    days = [each for each in newest if isinstance(each, str) and DAY.fullmatch(each)]
    if len(newest) != 3 or newest != sorted(days, reverse=True):
        raise Otherwise(f"newest-versions are not three, newest first: {quoted(newest)}")


def _says_version_is_missing(answer: Answer) -> None:
    _names_newest_versions(answer)
    told = read_json(answer.body)
    if not isinstance(told, dict) or told["error"] != VERSION_MISSING:
        raise Otherwise(f"the error is not “{VERSION_MISSING}”: {quoted(answer.body)}")


def _is_refused(answer: Answer) -> None:
    if not 400 <= answer.status < 500:
        raise Otherwise(f"it is not refused: the status is {answer.status}")


def _allows(*methods: str) -> Look:
    def look(answer: Answer) -> None:
        expect_status(answer, 405)
        allowed = {method.strip() for method in (answer.header("allow") or "").split(",")}
        if allowed != set(methods):
            raise Otherwise(f"Allow is {answer.header('allow') or 'absent'}, not {', '.join(methods)}")

    return look


def _closes_after_too_much(seen: Seen) -> None:
    if seen.approval is not None and not seen.approval.is_closed_after_too_much:
        raise Otherwise("the connection is not closed after the answer")


def _has_no_body(answer: Answer) -> None:
    if answer.body:
        raise Otherwise(f"the answer to HEAD has a body: {quoted(answer.body)}")


def _is_not_about_the_header(answer: Answer) -> None:
    expect_status(answer, 400)
    if answer.body == NO_HEADER:
        raise Otherwise("the missing header is found first")


def _closed_after(sent: bytes, expected: int) -> Check:
    """Check that something which cannot be read on is refused, and the connection closed."""

    def talk(line: Line, seen: Seen) -> tuple[Answer, bool]:
        line.send_bytes(sent)
        answer = seen.hear(line)
        return answer, answer.status == expected and line.rest(seen.timeout)[1]

    def check(seen: Seen) -> None:
        answer, is_closed = seen.converse(lambda line: talk(line, seen))
        seen.note(f"{quoted(sent[:60])}, {len(sent)} bytes", answer)
        expect_status(answer, expected)
        if not is_closed:
            raise Otherwise("the connection is not closed after the answer")

    return check


def _limits(seen: Seen) -> None:
    if not seen.burst and seen.refused_for_rate is None:
        raise NotChecked("it takes more than 5 requests in a second: --burst")
    refused = seen.refused_for_rate or _refused_in_a_burst(seen)
    if refused is None:
        raise NotChecked(f"{TOO_MUCH} requests at once were all served: there is no limit, as in an emulator")
    seen.note(f"{QUERY} too often", refused)
    if refused.body != b"Too Many Requests" or refused.header("retry-after") != "1":
        raise Otherwise(f"the answer is {refused}, with Retry-After {refused.header('retry-after') or 'absent'}")


def _refused_in_a_burst(seen: Seen) -> Answer | None:
    """Ask many times before any answer is read, so that no delay on the way can spread them."""
    with seen.line() as line:
        for _ in range(TOO_MUCH):
            line.send(Request(connection=None))
        answers = [line.answer() for _ in range(TOO_MUCH)]
    return next((answer for answer in answers if answer.status == 429), None)


def _knows_its_callers(seen: Seen) -> None:
    answer = seen.ask(QUERY)
    if answer.status != 403:
        raise NotChecked("the endpoint knows this machine")
    tells_error(answer)


def _refused_is_not_approved(seen: Seen) -> None:
    if seen.approval is None:
        raise NotChecked("it takes an event that may be approved: --approve EVENTID")
    course = seen.approval
    if course.untouched is None:
        raise NotChecked(course.why_not())
    if course.untouched.event(course.id) == course.first:
        return
    taken = [name for name, outcome in course.answers.items() if name in REFUSED if _is_accepted(outcome)]
    if taken:
        raise NotChecked(f"what has to be refused was accepted: {', '.join(taken)}")
    raise Otherwise(f"event {course.id} has changed, though every approval was refused")


REFUSED = frozenset(
    {
        "no-header", "forwarded", "version-missing", "version-twice", "version-unsupported", "names",
        "malformed-and-right", "unknown-and-right", "put", "expect-refused",
    }
)  # fmt: skip
"""The requests that name the event, before the one that approves it."""


def _is_accepted(outcome: object) -> bool:
    return isinstance(outcome, Answer) and outcome.status < 400


def _row(id_: str, rule: str, check: Check, needs: Needs = Needs.NOTHING) -> Row:
    return Row(id=id_, section=SECTION, rule=rule, check=check, needs=needs)


def _bad_body(name: str) -> Row:
    return _row(f"body-{name}", BODY, posted(name, status(400), tells_error), Needs.APPROVE)


HEAD, OPTIONS = (Request(method=method) for method in ("HEAD", "OPTIONS"))
NOWHERE = get(f"/metadata/nowhere{SERVED}")

ROWS: Sequence[Row] = (
    _row("unknown-caller", "| the caller is no known VM | 403 (O) | |", _knows_its_callers, Needs.STRANGER),
    _row("rate", "the text `Too Many Requests`; `Retry-After: 1`.", _limits, Needs.BURST),
    _row("unknown-path", "| unknown path | 404 | |", answered(NOWHERE, status(404), tells_error)),
    _row(
        "method-head",
        "| another method, `HEAD` too | 405 | `Allow` |",
        answered(HEAD, _allows("GET", "POST"), _has_no_body),
    ),
    _row("method-options", "| another method, `HEAD` too | 405 | `Allow` |", answered(OPTIONS, _allows("GET", "POST"))),
    _row(
        "method-put",
        "| another method, `HEAD` too | 405 | `Allow` |",
        posted("put", _allows("GET", "POST")),
        Needs.APPROVE,
    ),
    _row(
        "method-delete",
        "| another method, `HEAD` too | 405 | `Allow` |",
        posted("delete", _allows("GET", "POST")),
        Needs.APPROVE,
    ),
    _row("forwarded", "| `X-Forwarded-For` is present |", answered(events(SERVED, FORWARDED), _is_refused)),
    _row(
        "forwarded-status",
        "| `X-Forwarded-For` is present | 400 (O) | |",
        answered(events(SERVED, FORWARDED), status(400)),
    ),
    _row("forwarded-approval", "| `X-Forwarded-For` is present |", posted("forwarded", _is_refused), Needs.APPROVE),
    _row(
        "no-header",
        f"| no `Metadata: true` | 400 | exactly `{NO_HEADER.decode()}` |",
        answered(with_headers(), is_refused_without_header),
    ),
    _row("version-missing", "| `api-version` missing or empty | 400 | as below |", answered(events(""), status(400))),
    _row("version-missing-body", VERSION_BODY, answered(events(""), _says_version_is_missing)),
    _row(
        "version-empty",
        "| `api-version` missing or empty | 400 | as below |",
        answered(events("?api-version="), status(400)),
    ),
    _row(
        "version-twice",
        "| `api-version` twice | 400 | as below |",
        answered(events(f"{SERVED}&api-version={VERSIONS[1]}"), status(400)),
    ),
    _row(
        "version-unsupported",
        UNSUPPORTED,
        answered(events("?api-version=2001-01-01"), status(404), _names_newest_versions),
    ),
    _row(
        "version-latest",
        UNSUPPORTED,
        answered(events("?api-version=latest"), status(404), _names_newest_versions),
    ),
    _row(
        "version-unsupported-instance",
        "on `/metadata/instance` too",
        answered(get("/metadata/instance?api-version=latest"), status(404), _names_newest_versions),
    ),
    _row(
        "version-missing-approval",
        "| `api-version` missing or empty | 400 | as below |",
        posted("version-missing", status(400)),
        Needs.APPROVE,
    ),
    _row(
        "version-twice-approval",
        "| `api-version` twice | 400 | as below |",
        posted("version-twice", status(400)),
        Needs.APPROVE,
    ),
    _row("version-unsupported-approval", UNSUPPORTED, posted("version-unsupported", status(404)), Needs.APPROVE),
    _row(
        "wait-wrong",
        "| `wait` or `format` is not what it may be | 400 (O) | |",
        every(*(answered(events(f"{SERVED}&wait={wait}"), status(400)) for wait in ("0", "61", "soon"))),
    ),
    _row(
        "format-wrong",
        "| `wait` or `format` is not what it may be | 400 (O) | |",
        answered(get(f"/metadata/instance?api-version={INSTANCE_VERSION}&format=xml"), status(400)),
    ),
    *map(_bad_body, ("no-json", "no-object", "no-start-requests", "no-list", "no-event-id")),
    _row(
        "unknown-event",
        "| an approval names an event that the scope never had, or forgot | 400 (O) | |",
        posted("unknown-id", status(400), tells_error),
        Needs.APPROVE,
    ),
    _row("order-path-method", ORDER, answered(Request(method="OPTIONS", target=NOWHERE.target), status(404))),
    _row("order-path-header", ORDER, answered(get(NOWHERE.target, metadata=False), status(404))),
    _row("order-method-header", ORDER, answered(Request(method="OPTIONS", headers=()), status(405))),
    _row("order-forwarded-header", ORDER, answered(with_headers(FORWARDED), _is_not_about_the_header)),
    _row("order-header-version", ORDER, answered(events("", metadata=False), is_refused_without_header)),
    _row("order-version-body", ORDER, posted("body-behind-version", status(404)), Needs.APPROVE),
    _row(
        "body-too-large",
        "a body over 64 KiB is refused with 413",
        every(posted("too-large", status(413)), _closes_after_too_much),
        Needs.APPROVE,
    ),
    _row(
        "head-too-large",
        "a head over 16 KiB with 431",
        _closed_after(
            Request(headers=(METADATA, ("X-Padding", "x" * LARGE_HEADER)), connection=None).head("169.254.169.254"), 431
        ),
    ),
    _row("not-http", "what is not HTTP with 400", _closed_after(NOT_HTTP, 400)),
    _row(
        "expect-other",
        "another expectation than `100-continue` with 417 (O)",
        answered(events(f"?api-version={NEWEST_VERSION}", ("Expect", "wonders")), status(417)),
    ),
    _row(
        "refused-nothing", "A request that was refused has approved nothing.", _refused_is_not_approved, Needs.APPROVE
    ),
)
