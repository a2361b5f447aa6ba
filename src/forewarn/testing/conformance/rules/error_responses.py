"""Conformance rules for refused requests and the order of the checks (section “Refusals”)."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from forewarn.testing.conformance.document import CheckSkipped, Mismatch, read_json
from forewarn.testing.conformance.evidence import (
    OUR_CHOICE,
    SECURITY,
    START_AN_EVENT,
    Evidence,
    documented,
    observed,
)
from forewarn.testing.conformance.probe import EVENTS_QUERY, TOO_MANY_REQUESTS, Probe
from forewarn.testing.conformance.raw_http import METADATA_HEADER, RawConnection, Request, RequestFailed, Response
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    DATE,
    NO_HEADER_BODY,
    ResponseAssertion,
    all_of,
    approval_response,
    body_is,
    events_request,
    expect_status,
    get_request,
    has_error_body,
    has_status,
    is_refused,
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
    "| 400 (D) |"
)
ERROR_BODY = 'Bodies are `{"error":"…"}` unless the table says otherwise (O).'
METHOD = "| another method, including `HEAD` (captured as 400) | 405 (O) | `Allow` (O) |"
FORWARDED_RULE = "| `X-Forwarded-For` is present | refused (D)"
MISSING = "| `api-version` missing | 400 (C) |"
TWICE = "| `api-version` twice | refused (D)"
UNSUPPORTED = "| `api-version` not supported | 404 (C)"
VERSION_BODY = "| `api-version` not supported | 404 (C), or the value of `unsupported_version_status` | as below (O) |"

BAD_BODIES = ("no-json", "no-object", "no-start-requests", "no-list", "no-event-id")

MISSING_VERSION = observed("captured responses to queries without api-version")
UNSUPPORTED_VERSION = observed("OpenShift's machine-api, which falls back on 404 and fails on any other status")
QUERY_PARAMETERS = documented("metadata", "Query parameters")


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


def _rate_limit_response(probe: Probe) -> Response:
    """Return the response to a request above the rate limit; raise CheckSkipped if there is none."""
    if probe.rate_limit_response is None and not probe.burst:
        raise CheckSkipped("the rule needs more than 5 requests in a second: --burst")
    refused = probe.rate_limit_response or _refused_in_a_burst(probe)
    probe.note_exchange(f"{EVENTS_QUERY} too often", refused)
    return refused


def _limits_rate(probe: Probe) -> None:
    expect_status(_rate_limit_response(probe), TOO_MANY_REQUESTS)


def _rate_response(probe: Probe) -> None:
    refused = _rate_limit_response(probe)
    if refused.body != b"Too Many Requests" or refused.header("retry-after") != "1":
        raise Mismatch(f"the response is {refused}, with Retry-After {refused.header('retry-after') or 'absent'}")


def _refused_in_a_burst(probe: Probe) -> Response:
    """Send all requests before reading a response, so that network delays cannot spread them.

    Each has its own connection, because an endpoint may close the connection after each response.
    """
    if probe.burst_responses is None:
        probe.burst_responses = _send_burst(probe)
    if not probe.burst_responses:
        raise CheckSkipped(f"none of the {BURST_SIZE} requests of the burst was answered")
    refused = [response for response in probe.burst_responses if response.status != 200]
    if not refused:
        count = len(probe.burst_responses)
        raise CheckSkipped(f"all {count} requests of the burst were served: no rate limit, as in an emulator")
    return next((response for response in refused if response.status == TOO_MANY_REQUESTS), refused[0])


def _send_burst(probe: Probe) -> list[Response]:
    with ExitStack() as stack:
        connections = [stack.enter_context(probe.connect(is_paced=not number)) for number in range(BURST_SIZE)]
        for connection in connections:
            connection.send(EVENTS_QUERY)
        deadline = probe.pace.now() + probe.timeout
        responses = []
        for connection in connections:
            with suppress(RequestFailed):
                responses.append(connection.read_response(within=max(0.1, deadline - probe.pace.now())))
        return responses


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
        "malformed-and-right", "unknown-and-right", "unknown-first", "put", "expect-refused",
    }
)  # fmt: skip
"""The invalid requests that name the event, sent before the valid approval."""


def _is_accepted(outcome: object) -> bool:
    return isinstance(outcome, Response) and outcome.status < 400


def _has_error_bodies(probe: Probe) -> None:
    for name in BAD_BODIES:
        response = approval_response(probe, name)
        if response.status == 400:
            has_error_body(response)


def _rule(id_: str, rule: str, evidence: Evidence, check: Check, needs: Precondition = Precondition.NOTHING) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=needs)


def _bad_body(name: str) -> Rule:
    return _rule(
        f"body-{name}", BODY, START_AN_EVENT, response_to_approval(name, has_status(400)), Precondition.APPROVE
    )


HEAD, OPTIONS = (Request(method=method) for method in ("HEAD", "OPTIONS"))
TWO_VERSIONS = f"{VERSION_QUERY}&api-version={VERSIONS[1]}"
UNKNOWN_PATH = get_request(f"/metadata/nowhere{VERSION_QUERY}")

RULES: Sequence[Rule] = (
    _rule(
        "unknown-caller",
        "| the caller is not a known VM | 403 (O) | |",
        OUR_CHOICE,
        _refuses_unknown_callers,
        Precondition.UNKNOWN_CALLER,
    ),
    _rule(
        "rate",
        "| more than 5 requests in a second from one VM; off in the emulator | 429 (D) |",
        documented("metadata", "Rate limiting"),
        _limits_rate,
        Precondition.BURST,
    ),
    _rule(
        "rate-response",
        "the text `Too Many Requests`; `Retry-After: 1` (O) |",
        OUR_CHOICE,
        _rate_response,
        Precondition.BURST,
    ),
    _rule(
        "unknown-path",
        "| unknown path | 404 (O) | |",
        OUR_CHOICE,
        response_to(UNKNOWN_PATH, has_status(404), has_error_body),
    ),
    _rule("method-head", METHOD, OUR_CHOICE, response_to(HEAD, _allows("GET", "POST"), _has_no_body)),
    _rule("method-options", METHOD, OUR_CHOICE, response_to(OPTIONS, _allows("GET", "POST"))),
    _rule("method-put", METHOD, OUR_CHOICE, response_to_approval("put", _allows("GET", "POST")), Precondition.APPROVE),
    _rule(
        "method-delete",
        METHOD,
        OUR_CHOICE,
        response_to_approval("delete", _allows("GET", "POST")),
        Precondition.APPROVE,
    ),
    _rule("forwarded", FORWARDED_RULE, SECURITY, response_to(events_request(VERSION_QUERY, FORWARDED), is_refused)),
    _rule(
        "forwarded-status",
        f"{FORWARDED_RULE} with 400 (O) | |",
        OUR_CHOICE,
        response_to(events_request(VERSION_QUERY, FORWARDED), has_status(400)),
    ),
    _rule(
        "forwarded-approval",
        FORWARDED_RULE,
        SECURITY,
        response_to_approval("forwarded", is_refused),
        Precondition.APPROVE,
    ),
    _rule(
        "no-header",
        f"| no `Metadata: true` | 400 (D) | exactly `{NO_HEADER_BODY.decode()}` (C) |",
        observed("a curl transcript in MicrosoftDocs/azure-docs, April 2022"),
        response_to(with_headers(), has_status(400), body_is(NO_HEADER_BODY)),
    ),
    _rule("version-missing", MISSING, MISSING_VERSION, response_to(events_request(""), has_status(400))),
    _rule(
        "version-missing-body",
        f"{MISSING} as below (O) |",
        OUR_CHOICE,
        response_to(events_request(""), _says_version_is_missing),
    ),
    _rule(
        "version-empty",
        "| `api-version` empty | 400 (O) | as below (O) |",
        OUR_CHOICE,
        response_to(events_request("?api-version="), has_status(400)),
    ),
    _rule(
        "version-twice",
        TWICE,
        QUERY_PARAMETERS,
        response_to(events_request(TWO_VERSIONS), is_refused),
    ),
    _rule(
        "version-twice-status",
        f"{TWICE} with 400 (O)",
        OUR_CHOICE,
        response_to(events_request(TWO_VERSIONS), has_status(400)),
    ),
    _rule(
        "version-unsupported",
        UNSUPPORTED,
        UNSUPPORTED_VERSION,
        response_to(events_request("?api-version=2001-01-01"), has_status(404)),
    ),
    _rule(
        "version-unsupported-body",
        VERSION_BODY,
        OUR_CHOICE,
        response_to(events_request("?api-version=2001-01-01"), _names_newest_versions),
    ),
    _rule(
        "version-latest",
        "| `api-version=latest` | refused (D)",
        documented("events", "Version and region availability"),
        response_to(events_request("?api-version=latest"), is_refused),
    ),
    _rule(
        "version-unsupported-instance",
        "| the same on `/metadata/instance` | 400 (C)",
        observed("cloud-init's Azure data source, which falls back on 400 and retries 404"),
        response_to(get_request("/metadata/instance?api-version=latest"), has_status(400)),
        Precondition.INSTANCE,
    ),
    _rule(
        "version-missing-approval",
        MISSING,
        MISSING_VERSION,
        response_to_approval("version-missing", is_refused),
        Precondition.APPROVE,
    ),
    _rule(
        "version-twice-approval",
        TWICE,
        QUERY_PARAMETERS,
        response_to_approval("version-twice", is_refused),
        Precondition.APPROVE,
    ),
    _rule(
        "version-unsupported-approval",
        UNSUPPORTED,
        UNSUPPORTED_VERSION,
        response_to_approval("version-unsupported", is_refused),
        Precondition.APPROVE,
    ),
    _rule(
        "wait-wrong",
        "| invalid `wait` or `format` | 400 (O) | |",
        OUR_CHOICE,
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
        OUR_CHOICE,
        response_to(get_request(f"/metadata/instance?api-version={INSTANCE_VERSION}&format=xml"), has_status(400)),
        Precondition.INSTANCE,
    ),
    *map(_bad_body, BAD_BODIES),
    _rule("body-error", ERROR_BODY, OUR_CHOICE, _has_error_bodies, Precondition.APPROVE),
    _rule(
        "unknown-event",
        "| an approval names an event that the scope never had, or that ended more than 24 hours ago | 400 (O) | |",
        OUR_CHOICE,
        response_to_approval("unknown-id", has_status(400), has_error_body),
        Precondition.APPROVE,
    ),
    _rule(
        "order-path-method",
        ORDER,
        OUR_CHOICE,
        response_to(Request(method="OPTIONS", target=UNKNOWN_PATH.target), has_status(404)),
    ),
    _rule(
        "order-path-header",
        ORDER,
        OUR_CHOICE,
        response_to(get_request(UNKNOWN_PATH.target, metadata=False), has_status(404)),
    ),
    _rule(
        "order-method-header", ORDER, OUR_CHOICE, response_to(Request(method="OPTIONS", headers=()), has_status(405))
    ),
    _rule("order-forwarded-header", ORDER, OUR_CHOICE, response_to(with_headers(FORWARDED), _is_not_about_the_header)),
    _rule(
        "order-header-version",
        ORDER,
        OUR_CHOICE,
        response_to(events_request("", metadata=False), has_status(400), body_is(NO_HEADER_BODY)),
    ),
    _rule(
        "order-version-body",
        ORDER,
        OUR_CHOICE,
        response_to_approval("body-behind-version", has_status(404)),
        Precondition.APPROVE,
    ),
    _rule(
        "body-too-large",
        "a body over 64 KiB is refused with 413 (O)",
        OUR_CHOICE,
        all_of(response_to_approval("too-large", has_status(413)), _closes_after_large_body),
        Precondition.APPROVE,
    ),
    _rule(
        "head-too-large",
        "a head over 16 KiB with 431 (O)",
        OUR_CHOICE,
        _closed_after(
            Request(headers=(METADATA_HEADER, ("X-Padding", "x" * LARGE_HEADER_BYTES)), connection=None).head(
                "169.254.169.254"
            ),
            431,
        ),
    ),
    _rule("not-http", "bytes that are not HTTP with 400 (O)", OUR_CHOICE, _closed_after(NOT_HTTP, 400)),
    _rule(
        "expect-other",
        "an `Expect` header other than `100-continue` with 417 (O)",
        OUR_CHOICE,
        response_to(events_request(f"?api-version={NEWEST_VERSION}", ("Expect", "wonders")), has_status(417)),
    ),
    _rule(
        "refused-nothing",
        "A refused request approves nothing (O).",
        OUR_CHOICE,
        _refused_approval_changes_nothing,
        Precondition.APPROVE,
    ),
)
