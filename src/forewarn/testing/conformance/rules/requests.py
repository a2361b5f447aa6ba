"""Conformance rules for request headers, paths, parameters and HTTP versions (section “Requests”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import Mismatch
from forewarn.testing.conformance.evidence import OUR_CHOICE, SECURITY, Evidence, documented, observed
from forewarn.testing.conformance.probe import CLOSE_TIMEOUT, EVENTS_QUERY, Probe
from forewarn.testing.conformance.raw_http import EVENTS_PATH, METADATA_HEADER, RawConnection, Request, Response
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    DATE,
    all_of,
    approval_accepted,
    events_request,
    expect_document,
    expect_status,
    get_request,
    has_status,
    is_refused,
    json_object,
    quoted,
    response_to,
    response_to_approval,
    serves_document,
    with_headers,
)
from forewarn.wire.protocol import NEWEST_VERSION, PREVIEW_VERSION

SECTION = "Requests"
INSTANCE_VERSION = "2021-02-01"
VERSION = f"api-version={NEWEST_VERSION}"
VERSION_QUERY = f"?{VERSION}"

WHOLE_INSTANCE = get_request(f"/metadata/instance?api-version={INSTANCE_VERSION}")
VERSIONS = get_request("/metadata/versions")

HEADER = "Every request needs the header `Metadata: true` (D)"
HEADER_CASE = "Name and value are compared without case (O)"
HEADER_INVALID = "`false`, an empty value or anything else counts as missing (O)."
HEADER_TWICE = "If the header is sent more than once, each value must be `true` (O)."
PATH_CODES = "Percent-encoding is decoded; paths with `.`, `..`, empty segments or an encoded slash get 404 (O)."
HTTP = "HTTP/1.0 and 1.1 are served (O)."
ANY_TYPE = "An approval may have any `Content-Type`, or none (C)."
EXPECT = "The response to `Expect: 100-continue` is `100 Continue`, or the refusal (O)."

CONTENT_TYPES = observed("approvals of curl, urllib and requests, which differ in their Content-Type")


def _names_the_vm(response: Response) -> None:
    compute = json_object(response).get("compute")
    if not isinstance(compute, dict) or not isinstance(compute.get("name"), str) or not compute["name"]:
        raise Mismatch(f"compute.name is not a name: {quoted(response.body)}")


def _lists_versions(response: Response) -> None:
    versions = json_object(response).get("apiVersions")
    if not isinstance(versions, list) or not all(isinstance(each, str) and DATE.fullmatch(each) for each in versions):
        raise Mismatch(f"apiVersions is not a list of dates: {quoted(response.body)}")
    if versions != sorted(versions) or versions[:1] != [PREVIEW_VERSION]:
        raise Mismatch(f"the versions are not sorted, starting with {PREVIEW_VERSION}: {quoted(response.body)}")


def _serves_until_close(probe: Probe) -> None:
    """Check that a connection is either closed as announced, or serves the next request."""
    request = Request(connection=None)

    def exchange(connection: RawConnection) -> tuple[list[Response], bool]:
        connection.send(request)
        first = probe.receive(connection)
        if first.announces_close:
            return [first], connection.read_until_close(CLOSE_TIMEOUT)[1]
        connection.send(request)
        return [first, probe.receive(connection)], True

    responses, is_right = probe.with_retries(exchange)
    if len(responses) > 1:
        probe.pace.wait()
    for response in responses:
        probe.note_exchange(f"{request} on the same connection", response)
        expect_document(probe, response)
    if not is_right:
        raise Mismatch("the response announces that the connection closes, but it stays open")


def _closes(probe: Probe) -> None:
    def exchange(connection: RawConnection) -> tuple[Response, bytes, bool]:
        connection.send(EVENTS_QUERY)
        return probe.receive(connection), *connection.read_until_close(probe.timeout)

    response, extra_bytes, is_closed = probe.with_retries(exchange)
    probe.note_exchange(EVENTS_QUERY, response)
    expect_status(response, 200)
    connection_header = response.header("connection") or ""
    if connection_header.lower() != "close":
        raise Mismatch(f"the response's Connection header is {quoted(connection_header)}")
    if not is_closed or extra_bytes:
        raise Mismatch("the connection is not closed after the response")


def _rule(id_: str, rule: str, evidence: Evidence, check: Check, needs: Precondition = Precondition.NOTHING) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    _rule(
        "query",
        "| query | `GET /metadata/scheduledevents?api-version=V` | the [document](#the-document) (D) |",
        documented("events", "Query for events"),
        serves_document(EVENTS_QUERY),
    ),
    _rule(
        "instance",
        "| who am I | `GET /metadata/instance?api-version=V`, or a path below it "
        "| the [instance document](#the-instance-document), or a part of it (D) |",
        documented("metadata", "Instance metadata"),
        response_to(WHOLE_INSTANCE, _names_the_vm),
    ),
    _rule(
        "versions",
        "| versions | `GET /metadata/versions` | the api-versions of the document, oldest first (D) |",
        documented("metadata", "Versions"),
        response_to(VERSIONS, _lists_versions),
    ),
    _rule(
        "versions-header",
        HEADER,
        SECURITY,
        response_to(get_request(VERSIONS.target, metadata=False), is_refused),
        Precondition.VERSIONS,
    ),
    _rule(
        "instance-header",
        HEADER,
        SECURITY,
        response_to(get_request(WHOLE_INSTANCE.target, metadata=False), is_refused),
        Precondition.INSTANCE,
    ),
    _rule(
        "preview-query-header",
        "also a query with `2017-03-01` (O)",
        OUR_CHOICE,
        response_to(events_request(f"?api-version={PREVIEW_VERSION}", metadata=False), has_status(400)),
    ),
    _rule("header-name-case", HEADER_CASE, OUR_CHOICE, serves_document(with_headers(("mEtAdAtA", "true")))),
    _rule("header-value-case", HEADER_CASE, OUR_CHOICE, serves_document(with_headers(("Metadata", "TRUE")))),
    _rule(
        "header-false", HEADER_INVALID, OUR_CHOICE, response_to(with_headers(("Metadata", "false")), has_status(400))
    ),
    _rule("header-empty", HEADER_INVALID, OUR_CHOICE, response_to(with_headers(("Metadata", "")), has_status(400))),
    _rule("header-other", HEADER_INVALID, OUR_CHOICE, response_to(with_headers(("Metadata", "1")), has_status(400))),
    _rule(
        "header-twice",
        HEADER_TWICE,
        OUR_CHOICE,
        all_of(
            serves_document(with_headers(METADATA_HEADER, METADATA_HEADER)),
            response_to(with_headers(METADATA_HEADER, ("Metadata", "false")), has_status(400)),
        ),
    ),
    _rule(
        "path-case",
        "The path `/metadata/scheduledEvents` is served too (C)",
        observed("requests of a Microsoft sample, which writes scheduledEvents"),
        serves_document(get_request(f"/metadata/scheduledEvents{VERSION_QUERY}")),
    ),
    _rule(
        "path-any-case",
        "all paths are compared without case (O).",
        OUR_CHOICE,
        serves_document(get_request(f"/Metadata/SCHEDULEDEVENTS{VERSION_QUERY}")),
    ),
    _rule(
        "path-slash",
        "One trailing slash is allowed (O).",
        OUR_CHOICE,
        serves_document(get_request(f"{EVENTS_PATH}/{VERSION_QUERY}")),
    ),
    _rule(
        "path-encoded",
        PATH_CODES,
        OUR_CHOICE,
        serves_document(get_request(f"/metadata/%73cheduled%65vents{VERSION_QUERY}")),
    ),
    _rule(
        "path-nowhere",
        PATH_CODES,
        OUR_CHOICE,
        all_of(
            *(
                response_to(get_request(f"{path}{VERSION_QUERY}"), has_status(404))
                for path in (
                    "/metadata/./scheduledevents",
                    "/metadata/instance/../scheduledevents",
                    "/metadata//scheduledevents",
                    "/metadata%2Fscheduledevents",
                )
            )
        ),
    ),
    _rule(
        "parameter-case",
        "The names `api-version`, `format` and `wait` are also compared without case (O)",
        OUR_CHOICE,
        serves_document(events_request(f"?Api-Version={NEWEST_VERSION}")),
    ),
    _rule(
        "parameter-other",
        "Other parameters are ignored (O).",
        OUR_CHOICE,
        serves_document(events_request(f"{VERSION_QUERY}&colour=blue&colour=red&flag")),
    ),
    _rule(
        "target-absolute",
        "An absolute target such as `GET http://169.254.169.254/metadata/… HTTP/1.1` is served (C)",
        observed("requests of clients with http_proxy set"),
        serves_document(get_request(f"http://169.254.169.254{EVENTS_QUERY.target}")),
    ),
    _rule(
        "target-any-host",
        "with any host name (O)",
        OUR_CHOICE,
        serves_document(get_request(f"http://metadata.example:8080{EVENTS_QUERY.target}")),
    ),
    _rule("http-1.0", HTTP, OUR_CHOICE, serves_document(Request(http_version="1.0", connection=None))),
    _rule(
        "http-1.0-keep-alive", HTTP, OUR_CHOICE, serves_document(Request(http_version="1.0", connection="keep-alive"))
    ),
    _rule(
        "keep-alive",
        "A connection serves several requests until a response has `Connection: close` (O)",
        OUR_CHOICE,
        _serves_until_close,
    ),
    _rule(
        "connection-close",
        "The response to `Connection: close` has the same header (C).",
        observed("Node's HTTP client, which fails without it"),
        _closes,
    ),
    _rule(
        "approve-no-content-type",
        ANY_TYPE,
        CONTENT_TYPES,
        approval_accepted("no-content-type"),
        Precondition.APPROVE_ANY,
    ),
    _rule("approve-form", ANY_TYPE, CONTENT_TYPES, approval_accepted("form"), Precondition.APPROVE_ANY),
    _rule("approve-text", ANY_TYPE, CONTENT_TYPES, approval_accepted("text"), Precondition.APPROVE_ANY),
    _rule(
        "expect-continue",
        EXPECT,
        OUR_CHOICE,
        all_of(response_to_approval("expect", has_status(100)), approval_accepted("expect-after")),
        Precondition.APPROVE_ANY,
    ),
    _rule(
        "expect-refused",
        EXPECT,
        OUR_CHOICE,
        response_to_approval("expect-refused", has_status(400)),
        Precondition.APPROVE,
    ),
    _rule(
        "approve-if-none-match",
        "`If-None-Match` has no effect on an approval (C).",
        observed("approvals of clients that send it"),
        approval_accepted("if-none-match"),
        Precondition.APPROVE_ANY,
    ),
)
