"""Conformance rules for refused requests and the order of the checks (section “Refusals”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import CheckSkipped, Mismatch, read_json
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe
from forewarn.testing.conformance.raw_http import METADATA_HEADER, RawConnection, Request, Response
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    DATE,
    NO_HEADER_BODY,
    ResponseAssertion,
    all_of,
    events_request,
    expect_status,
    get_request,
    has_error_body,
    has_status,
    is_refused_without_header,
    quoted,
    response_to,
    response_to_approval,
    with_headers,
)
from forewarn.testing.conformance.rules.requests import INSTANCE_VERSION, VERSION_QUERY
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS

SECTION = "Refusals"

VERSION_MISSING = (
    "Bad request. api-version was not specified in the request. For more information refer to aka.ms/azureimds"
)
FORWARDED = ("X-Forwarded-For", "203.0.113.7")
BURST_SIZE = 12
"""How many requests are sent together: more than the limit of two seconds, so that not all can be within it."""

LARGE_HEADER_BYTES = 24 * 1024
NOT_HTTP = b"this is not HTTP\r\n\r\n"

ORDER = "Requests are checked in the order of this table, and the first error determines the response (O)."
BODY = (
    "the body of an approval is not a JSON object with a list `StartRequests`, or an entry has no GUID as `EventId` "
    "| 400 |"
)
UNSUPPORTED = "| `api-version` not supported | 404, or the value of `unsupported_version_status`"
VERSION_BODY = (
    '{"error":"Bad request. api-version was not specified in the request. For more information refer to '
    'aka.ms/azureimds","newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
)


def _names_newest_versions(response: Response) -> None:
    content = read_json(response.body)
    newest = content.get("newest-versions") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(content.get("error"), str) or not isinstance(newest, list):
        raise Mismatch(f'the body is not {{"error":"…","newest-versions":[…]}} but {quoted(response.body)}')
    days = [each for each in newest if isinstance(each, str) and DATE.fullmatch(each)]
    if len(newest) != 3 or newest != sorted(days, reverse=True):
        raise Mismatch(f"newest-versions does not have three versions, newest first: {quoted(newest)}")


def _says_version_is_missing(response: Response) -> None:
    _names_newest_versions(response)
    content = read_json(response.body)
    if not isinstance(content, dict) or content["error"] != VERSION_MISSING:
        raise Mismatch(f"the error is not “{VERSION_MISSING}”: {quoted(response.body)}")


def _is_refused(response: Response) -> None:
    if not 400 <= response.status < 500:
        raise Mismatch(f"the request is not refused: the status is {response.status}")


def _allows(*methods: str) -> ResponseAssertion:
    def look(response: Response) -> None:
        expect_status(response, 405)
        allowed = {method.strip() for method in (response.header("allow") or "").split(",")}
        if allowed != set(methods):
            raise Mismatch(f"Allow is {response.header('allow') or 'absent'}, not {', '.join(methods)}")

    return look


def _closes_after_large_body(probe: Probe) -> None:
    if probe.approval is not None and not probe.approval.is_closed_after_large_body:
        raise Mismatch("the connection is not closed after the response")


def _has_no_body(response: Response) -> None:
    if response.body:
        raise Mismatch(f"the response to HEAD has a body: {quoted(response.body)}")


def _is_not_about_the_header(response: Response) -> None:
    expect_status(response, 400)
    if response.body == NO_HEADER_BODY:
        raise Mismatch("the endpoint reports the missing header first")


def _closed_after(sent: bytes, expected: int) -> Check:
    """Return a check that invalid bytes are refused with this status and the connection is closed."""

    def exchange(connection: RawConnection, probe: Probe) -> tuple[Response, bool]:
        connection.send_bytes(sent)
        response = probe.receive(connection)
        return response, response.status == expected and connection.read_until_close(probe.timeout)[1]

    def check(probe: Probe) -> None:
        response, is_closed = probe.with_retries(lambda connection: exchange(connection, probe))
        probe.note_exchange(f"{quoted(sent[:60])}, {len(sent)} bytes", response)
        expect_status(response, expected)
        if not is_closed:
            raise Mismatch("the connection is not closed after the response")

    return check


def _limits_rate(probe: Probe) -> None:
    if not probe.burst and probe.rate_limit_response is None:
        raise CheckSkipped("the rule needs more than 5 requests in a second: --burst")
    refused = probe.rate_limit_response or _refused_in_a_burst(probe)
    if refused is None:
        raise CheckSkipped(f"all {BURST_SIZE} requests of the burst were served: no rate limit, as in an emulator")
    probe.note_exchange(f"{EVENTS_QUERY} too often", refused)
    if refused.body != b"Too Many Requests" or refused.header("retry-after") != "1":
        raise Mismatch(f"the response is {refused}, with Retry-After {refused.header('retry-after') or 'absent'}")


def _refused_in_a_burst(probe: Probe) -> Response | None:
    """Send all requests before reading a response, so that network delays cannot spread them."""
    with probe.connect() as connection:
        for _ in range(BURST_SIZE):
            connection.send(Request(connection=None))
        responses = [connection.read_response() for _ in range(BURST_SIZE)]
    return next((response for response in responses if response.status == 429), None)


def _refuses_unknown_callers(probe: Probe) -> None:
    response = probe.send_once(EVENTS_QUERY)
    if response.status != 403:
        raise CheckSkipped("the endpoint knows this machine")
    has_error_body(response)


def _refused_approval_changes_nothing(probe: Probe) -> None:
    if probe.approval is None:
        raise CheckSkipped("the rule needs an event to approve: --approve EVENTID")
    trace = probe.approval
    if trace.before_approval is None:
        raise CheckSkipped(trace.skip_reason())
    if trace.before_approval.event(trace.id) == trace.initial:
        return
    taken = [name for name, outcome in trace.responses.items() if name in REFUSED if _is_accepted(outcome)]
    if taken:
        raise CheckSkipped(f"invalid approvals were accepted: {', '.join(taken)}")
    raise Mismatch(f"event {trace.id} has changed, although every approval was refused")


REFUSED = frozenset(
    {
        "no-header", "forwarded", "version-missing", "version-twice", "version-unsupported", "names",
        "malformed-and-right", "unknown-and-right", "put", "expect-refused",
    }
)  # fmt: skip
"""The invalid requests that name the event, sent before the valid approval."""


def _is_accepted(outcome: object) -> bool:
    return isinstance(outcome, Response) and outcome.status < 400


def _rule(id_: str, rule: str, check: Check, needs: Precondition = Precondition.NOTHING) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, check=check, precondition=needs)


def _bad_body(name: str) -> Rule:
    return _rule(
        f"body-{name}", BODY, response_to_approval(name, has_status(400), has_error_body), Precondition.APPROVE
    )


HEAD, OPTIONS = (Request(method=method) for method in ("HEAD", "OPTIONS"))
UNKNOWN_PATH = get_request(f"/metadata/nowhere{VERSION_QUERY}")

RULES: Sequence[Rule] = (
    _rule(
        "unknown-caller",
        "| the caller is not a known VM | 403 (O) | |",
        _refuses_unknown_callers,
        Precondition.UNKNOWN_CALLER,
    ),
    _rule("rate", "the text `Too Many Requests`; `Retry-After: 1`.", _limits_rate, Precondition.BURST),
    _rule("unknown-path", "| unknown path | 404 | |", response_to(UNKNOWN_PATH, has_status(404), has_error_body)),
    _rule(
        "method-head",
        "| another method, including `HEAD` | 405 | `Allow` |",
        response_to(HEAD, _allows("GET", "POST"), _has_no_body),
    ),
    _rule(
        "method-options",
        "| another method, including `HEAD` | 405 | `Allow` |",
        response_to(OPTIONS, _allows("GET", "POST")),
    ),
    _rule(
        "method-put",
        "| another method, including `HEAD` | 405 | `Allow` |",
        response_to_approval("put", _allows("GET", "POST")),
        Precondition.APPROVE,
    ),
    _rule(
        "method-delete",
        "| another method, including `HEAD` | 405 | `Allow` |",
        response_to_approval("delete", _allows("GET", "POST")),
        Precondition.APPROVE,
    ),
    _rule(
        "forwarded",
        "| `X-Forwarded-For` is present |",
        response_to(events_request(VERSION_QUERY, FORWARDED), _is_refused),
    ),
    _rule(
        "forwarded-status",
        "| `X-Forwarded-For` is present | 400 (O) | |",
        response_to(events_request(VERSION_QUERY, FORWARDED), has_status(400)),
    ),
    _rule(
        "forwarded-approval",
        "| `X-Forwarded-For` is present |",
        response_to_approval("forwarded", _is_refused),
        Precondition.APPROVE,
    ),
    _rule(
        "no-header",
        f"| no `Metadata: true` | 400 | exactly `{NO_HEADER_BODY.decode()}` |",
        response_to(with_headers(), is_refused_without_header),
    ),
    _rule(
        "version-missing",
        "| `api-version` missing or empty | 400 | as below |",
        response_to(events_request(""), has_status(400)),
    ),
    _rule("version-missing-body", VERSION_BODY, response_to(events_request(""), _says_version_is_missing)),
    _rule(
        "version-empty",
        "| `api-version` missing or empty | 400 | as below |",
        response_to(events_request("?api-version="), has_status(400)),
    ),
    _rule(
        "version-twice",
        "| `api-version` twice | 400 | as below |",
        response_to(events_request(f"{VERSION_QUERY}&api-version={VERSIONS[1]}"), has_status(400)),
    ),
    _rule(
        "version-unsupported",
        UNSUPPORTED,
        response_to(events_request("?api-version=2001-01-01"), has_status(404), _names_newest_versions),
    ),
    _rule(
        "version-latest",
        UNSUPPORTED,
        response_to(events_request("?api-version=latest"), has_status(404), _names_newest_versions),
    ),
    _rule(
        "version-unsupported-instance",
        "always 400 on `/metadata/instance`",
        response_to(get_request("/metadata/instance?api-version=latest"), has_status(400), _names_newest_versions),
    ),
    _rule(
        "version-missing-approval",
        "| `api-version` missing or empty | 400 | as below |",
        response_to_approval("version-missing", has_status(400)),
        Precondition.APPROVE,
    ),
    _rule(
        "version-twice-approval",
        "| `api-version` twice | 400 | as below |",
        response_to_approval("version-twice", has_status(400)),
        Precondition.APPROVE,
    ),
    _rule(
        "version-unsupported-approval",
        UNSUPPORTED,
        response_to_approval("version-unsupported", has_status(404)),
        Precondition.APPROVE,
    ),
    _rule(
        "wait-wrong",
        "| invalid `wait` or `format` | 400 (O) | |",
        all_of(
            *(
                response_to(events_request(f"{VERSION_QUERY}&wait={wait}"), has_status(400))
                for wait in ("0", "61", "soon")
            )
        ),
    ),
    _rule(
        "format-wrong",
        "| invalid `wait` or `format` | 400 (O) | |",
        response_to(get_request(f"/metadata/instance?api-version={INSTANCE_VERSION}&format=xml"), has_status(400)),
    ),
    *map(_bad_body, ("no-json", "no-object", "no-start-requests", "no-list", "no-event-id")),
    _rule(
        "unknown-event",
        "| an approval names an event that the scope never had, or that ended more than 24 hours ago | 400 (O) | |",
        response_to_approval("unknown-id", has_status(400), has_error_body),
        Precondition.APPROVE,
    ),
    _rule(
        "order-path-method", ORDER, response_to(Request(method="OPTIONS", target=UNKNOWN_PATH.target), has_status(404))
    ),
    _rule("order-path-header", ORDER, response_to(get_request(UNKNOWN_PATH.target, metadata=False), has_status(404))),
    _rule("order-method-header", ORDER, response_to(Request(method="OPTIONS", headers=()), has_status(405))),
    _rule("order-forwarded-header", ORDER, response_to(with_headers(FORWARDED), _is_not_about_the_header)),
    _rule("order-header-version", ORDER, response_to(events_request("", metadata=False), is_refused_without_header)),
    _rule(
        "order-version-body", ORDER, response_to_approval("body-behind-version", has_status(404)), Precondition.APPROVE
    ),
    _rule(
        "body-too-large",
        "a body over 64 KiB is refused with 413",
        all_of(response_to_approval("too-large", has_status(413)), _closes_after_large_body),
        Precondition.APPROVE,
    ),
    _rule(
        "head-too-large",
        "a head over 16 KiB with 431",
        _closed_after(
            Request(headers=(METADATA_HEADER, ("X-Padding", "x" * LARGE_HEADER_BYTES)), connection=None).head(
                "169.254.169.254"
            ),
            431,
        ),
    ),
    _rule("not-http", "bytes that are not HTTP with 400", _closed_after(NOT_HTTP, 400)),
    _rule(
        "expect-other",
        "an `Expect` header other than `100-continue` with 417 (O)",
        response_to(events_request(f"?api-version={NEWEST_VERSION}", ("Expect", "wonders")), has_status(417)),
    ),
    _rule(
        "refused-nothing",
        "A refused request approves nothing.",
        _refused_approval_changes_nothing,
        Precondition.APPROVE,
    ),
)
