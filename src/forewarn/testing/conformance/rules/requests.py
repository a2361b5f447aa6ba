"""Conformance rules for request headers, paths, parameters and HTTP versions (section “Requests”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import Mismatch
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe
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
    is_refused_without_header,
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

HEADER = "Every request needs the header `Metadata: true`."
HEADER_CASE = "Name and value are compared without case"
HEADER_INVALID = "`false`, an empty value or anything else counts as missing."
HEADER_TWICE = "If the header is sent more than once, each value must be `true` (O)."
PATH_CODES = "Percent-encoding is decoded; paths with `.`, `..`, empty segments or an encoded slash get 404 (O)."
HTTP = "HTTP/1.0 and 1.1, with or without keep-alive."
ANY_TYPE = "An approval may have any `Content-Type`, or none."
EXPECT = "The response to `Expect: 100-continue` is `100 Continue`, or the refusal."


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


def _reuses_connection(request: Request) -> Check:
    def check(probe: Probe) -> None:
        def exchange(connection: RawConnection) -> list[Response]:
            responses = []
            for _ in range(2):
                connection.send(request)
                responses.append(probe.receive(connection))
            return responses

        responses = probe.with_retries(exchange)
        probe.pace.wait()
        for response in responses:
            probe.note_exchange(f"{request} on the same connection", response)
            expect_document(probe, response)

    return check


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


RULES: Sequence[Rule] = (
    Rule(
        id="query",
        section=SECTION,
        text="| query | `GET /metadata/scheduledevents?api-version=V` | the [document](#the-document) |",
        check=serves_document(EVENTS_QUERY),
    ),
    Rule(
        id="instance",
        section=SECTION,
        text=(
            "| who am I | `GET /metadata/instance?api-version=V`, or a path below it "
            "| the [instance document](#the-instance-document), or a part of it |"
        ),
        check=response_to(WHOLE_INSTANCE, _names_the_vm),
    ),
    Rule(
        id="versions",
        section=SECTION,
        text="| versions | `GET /metadata/versions` | the api-versions of the document, oldest first |",
        check=response_to(VERSIONS, _lists_versions),
    ),
    Rule(
        id="versions-header",
        section=SECTION,
        text=HEADER,
        check=response_to(get_request("/metadata/versions", metadata=False), is_refused_without_header),
    ),
    Rule(
        id="instance-header",
        section=SECTION,
        text=HEADER,
        check=response_to(get_request(WHOLE_INSTANCE.target, metadata=False), is_refused_without_header),
    ),
    Rule(
        id="preview-query-header",
        section=SECTION,
        text=HEADER,
        check=response_to(events_request(f"?api-version={PREVIEW_VERSION}", metadata=False), is_refused_without_header),
    ),
    Rule(
        id="header-name-case",
        section=SECTION,
        text=HEADER_CASE,
        check=serves_document(with_headers(("mEtAdAtA", "true"))),
    ),
    Rule(
        id="header-value-case",
        section=SECTION,
        text=HEADER_CASE,
        check=serves_document(with_headers(("Metadata", "TRUE"))),
    ),
    Rule(
        id="header-false",
        section=SECTION,
        text=HEADER_INVALID,
        check=response_to(with_headers(("Metadata", "false")), is_refused_without_header),
    ),
    Rule(
        id="header-empty",
        section=SECTION,
        text=HEADER_INVALID,
        check=response_to(with_headers(("Metadata", "")), is_refused_without_header),
    ),
    Rule(
        id="header-other",
        section=SECTION,
        text=HEADER_INVALID,
        check=response_to(with_headers(("Metadata", "1")), is_refused_without_header),
    ),
    Rule(
        id="header-twice",
        section=SECTION,
        text=HEADER_TWICE,
        check=all_of(
            serves_document(with_headers(METADATA_HEADER, METADATA_HEADER)),
            response_to(with_headers(METADATA_HEADER, ("Metadata", "false")), is_refused_without_header),
        ),
    ),
    Rule(
        id="path-case",
        section=SECTION,
        text="Paths are compared without case.",
        check=all_of(
            serves_document(get_request(f"/metadata/scheduledEvents{VERSION_QUERY}")),
            serves_document(get_request(f"/Metadata/SCHEDULEDEVENTS{VERSION_QUERY}")),
        ),
    ),
    Rule(
        id="path-slash",
        section=SECTION,
        text="One trailing slash is allowed (O).",
        check=serves_document(get_request(f"{EVENTS_PATH}/{VERSION_QUERY}")),
    ),
    Rule(
        id="path-encoded",
        section=SECTION,
        text=PATH_CODES,
        check=serves_document(get_request(f"/metadata/%73cheduled%65vents{VERSION_QUERY}")),
    ),
    Rule(
        id="path-nowhere",
        section=SECTION,
        text=PATH_CODES,
        check=all_of(
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
    Rule(
        id="parameter-case",
        section=SECTION,
        text="The names `api-version`, `format` and `wait` are also compared without case (O)",
        check=serves_document(events_request(f"?Api-Version={NEWEST_VERSION}")),
    ),
    Rule(
        id="parameter-other",
        section=SECTION,
        text="Other parameters are ignored (O).",
        check=serves_document(events_request(f"{VERSION_QUERY}&colour=blue&colour=red&flag")),
    ),
    Rule(
        id="target-absolute",
        section=SECTION,
        text="An absolute target such as `GET http://169.254.169.254/metadata/… HTTP/1.1` is served",
        check=serves_document(get_request(f"http://169.254.169.254{EVENTS_QUERY.target}")),
    ),
    Rule(
        id="target-any-host",
        section=SECTION,
        text="is served with any host name (O)",
        check=serves_document(get_request(f"http://metadata.example:8080{EVENTS_QUERY.target}")),
    ),
    Rule(
        id="http-1.0", section=SECTION, text=HTTP, check=serves_document(Request(http_version="1.0", connection=None))
    ),
    Rule(
        id="http-1.0-keep-alive",
        section=SECTION,
        text=HTTP,
        check=serves_document(Request(http_version="1.0", connection="keep-alive")),
    ),
    Rule(id="keep-alive", section=SECTION, text=HTTP, check=_reuses_connection(Request(connection=None))),
    Rule(
        id="connection-close",
        section=SECTION,
        text="The response to `Connection: close` has the same header.",
        check=_closes,
    ),
    Rule(
        id="approve-no-content-type",
        section=SECTION,
        text=ANY_TYPE,
        check=approval_accepted("no-content-type"),
        precondition=Precondition.APPROVE_ANY,
    ),
    Rule(
        id="approve-form",
        section=SECTION,
        text=ANY_TYPE,
        check=approval_accepted("form"),
        precondition=Precondition.APPROVE_ANY,
    ),
    Rule(
        id="approve-text",
        section=SECTION,
        text=ANY_TYPE,
        check=approval_accepted("text"),
        precondition=Precondition.APPROVE_ANY,
    ),
    Rule(
        id="expect-continue",
        section=SECTION,
        text=EXPECT,
        check=all_of(response_to_approval("expect", has_status(100)), approval_accepted("expect-after")),
        precondition=Precondition.APPROVE_ANY,
    ),
    Rule(
        id="expect-refused",
        section=SECTION,
        text=EXPECT,
        check=response_to_approval("expect-refused", is_refused_without_header),
        precondition=Precondition.APPROVE,
    ),
    Rule(
        id="approve-if-none-match",
        section=SECTION,
        text="`If-None-Match` has no effect on it.",
        check=approval_accepted("if-none-match"),
        precondition=Precondition.APPROVE_ANY,
    ),
)
