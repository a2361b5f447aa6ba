"""What can be asked, and in how many ways (section “Requests”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import Otherwise
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import (
    DAY,
    accepted,
    answered,
    as_object,
    events,
    every,
    expect_document,
    expect_status,
    get,
    is_refused_without_header,
    posted,
    quoted,
    served,
    status,
    with_headers,
)
from forewarn.testing.conformance.seen import QUERY, Seen
from forewarn.testing.conformance.talking import METADATA, SCHEDULED_EVENTS, Answer, Line, Request
from forewarn.wire.protocol import NEWEST_VERSION, PREVIEW_VERSION

SECTION = "Requests"
INSTANCE_VERSION = "2021-02-01"
VERSION = f"api-version={NEWEST_VERSION}"
SERVED = f"?{VERSION}"

WHOLE_INSTANCE = get(f"/metadata/instance?api-version={INSTANCE_VERSION}")
VERSIONS = get("/metadata/versions")

HEADER = "Every request needs the header `Metadata: true`."
HEADER_CASE = "The name matches in any case, and so does the value"
HEADER_OTHERWISE = "`false`, an empty value or anything else counts as missing."
HEADER_TWICE = "Where the header is given more than once, each must be `true` (O)."
PATH_CODES = "Percent-encoding is understood; `.`, `..`, empty segments and an encoded slash lead nowhere: 404 (O)."
HTTP = "HTTP/1.0 and 1.1, with or without keep-alive."
ANY_TYPE = "An approval may have any `Content-Type`, or none."
EXPECT = "`Expect: 100-continue` is answered with `100 Continue`, or with the refusal."


def _names_the_vm(answer: Answer) -> None:
    compute = as_object(answer).get("compute")
    if not isinstance(compute, dict) or not isinstance(compute.get("name"), str) or not compute["name"]:
        raise Otherwise(f"compute.name is no name: {quoted(answer.body)}")


def _lists_versions(answer: Answer) -> None:
    told = as_object(answer).get("apiVersions")
    if not isinstance(told, list) or not all(isinstance(each, str) and DAY.fullmatch(each) for each in told):
        raise Otherwise(f"apiVersions is no list of days: {quoted(answer.body)}")
    if told != sorted(told) or told[:1] != [PREVIEW_VERSION]:
        raise Otherwise(f"the versions do not go from {PREVIEW_VERSION} to the newest: {quoted(answer.body)}")


def _twice_on_one_line(request: Request) -> Check:
    def check(seen: Seen) -> None:
        def talk(line: Line) -> list[Answer]:
            answers = []
            for _ in range(2):
                line.send(request)
                answers.append(seen.hear(line))
            return answers

        answers = seen.converse(talk)
        seen.pace.next()
        for answer in answers:
            seen.note(f"{request} on the same connection", answer)
            expect_document(seen, answer)

    return check


def _closes(seen: Seen) -> None:
    def talk(line: Line) -> tuple[Answer, bytes, bool]:
        line.send(QUERY)
        return seen.hear(line), *line.rest(seen.timeout)

    answer, too_much, is_closed = seen.converse(talk)
    seen.note(QUERY, answer)
    expect_status(answer, 200)
    said = answer.header("connection") or ""
    if said.lower() != "close":
        raise Otherwise(f"the answer's Connection is {quoted(said)}")
    if not is_closed or too_much:
        raise Otherwise("the connection is not closed after the answer")


ROWS: Sequence[Row] = (
    Row(
        id="query",
        section=SECTION,
        rule="| query | `GET /metadata/scheduledevents?api-version=V` | the [document](#the-document) |",
        check=served(QUERY),
    ),
    Row(
        id="instance",
        section=SECTION,
        rule=(
            "| who am I | `GET /metadata/instance?api-version=V`, or a path below it "
            "| the [instance document](#the-instance-document), or a part of it |"
        ),
        check=answered(WHOLE_INSTANCE, _names_the_vm),
    ),
    Row(
        id="versions",
        section=SECTION,
        rule="| versions | `GET /metadata/versions` | the api-versions of the document, oldest first |",
        check=answered(VERSIONS, _lists_versions),
    ),
    Row(
        id="versions-header",
        section=SECTION,
        rule=HEADER,
        check=answered(get("/metadata/versions", metadata=False), is_refused_without_header),
    ),
    Row(
        id="instance-header",
        section=SECTION,
        rule=HEADER,
        check=answered(get(WHOLE_INSTANCE.target, metadata=False), is_refused_without_header),
    ),
    Row(
        id="preview-query-header",
        section=SECTION,
        rule=HEADER,
        check=answered(events(f"?api-version={PREVIEW_VERSION}", metadata=False), is_refused_without_header),
    ),
    Row(
        id="header-name-case",
        section=SECTION,
        rule=HEADER_CASE,
        check=served(with_headers(("mEtAdAtA", "true"))),
    ),
    Row(id="header-value-case", section=SECTION, rule=HEADER_CASE, check=served(with_headers(("Metadata", "TRUE")))),
    Row(
        id="header-false",
        section=SECTION,
        rule=HEADER_OTHERWISE,
        check=answered(with_headers(("Metadata", "false")), is_refused_without_header),
    ),
    Row(
        id="header-empty",
        section=SECTION,
        rule=HEADER_OTHERWISE,
        check=answered(with_headers(("Metadata", "")), is_refused_without_header),
    ),
    Row(
        id="header-other",
        section=SECTION,
        rule=HEADER_OTHERWISE,
        check=answered(with_headers(("Metadata", "1")), is_refused_without_header),
    ),
    Row(
        id="header-twice",
        section=SECTION,
        rule=HEADER_TWICE,
        check=every(
            served(with_headers(METADATA, METADATA)),
            answered(with_headers(METADATA, ("Metadata", "false")), is_refused_without_header),
        ),
    ),
    Row(
        id="path-case",
        section=SECTION,
        rule="Paths match in any case.",
        check=every(
            served(get(f"/metadata/scheduledEvents{SERVED}")), served(get(f"/Metadata/SCHEDULEDEVENTS{SERVED}"))
        ),
    ),
    Row(
        id="path-slash",
        section=SECTION,
        rule="One trailing slash is tolerated (O).",
        check=served(get(f"{SCHEDULED_EVENTS}/{SERVED}")),
    ),
    Row(
        id="path-encoded",
        section=SECTION,
        rule=PATH_CODES,
        check=served(get(f"/metadata/%73cheduled%65vents{SERVED}")),
    ),
    Row(
        id="path-nowhere",
        section=SECTION,
        rule=PATH_CODES,
        check=every(
            *(
                answered(get(f"{path}{SERVED}"), status(404))
                for path in (
                    "/metadata/./scheduledevents",
                    "/metadata/instance/../scheduledevents",
                    "/metadata//scheduledevents",
                    "/metadata%2Fscheduledevents",
                )
            )
        ),
    ),
    Row(
        id="parameter-case",
        section=SECTION,
        rule="The names `api-version`, `format` and `wait` match in any case too (O)",
        check=served(events(f"?Api-Version={NEWEST_VERSION}")),
    ),
    Row(
        id="parameter-other",
        section=SECTION,
        rule="Other parameters are ignored (O).",
        check=served(events(f"{SERVED}&colour=blue&colour=red&flag")),
    ),
    Row(
        id="target-absolute",
        section=SECTION,
        rule="An absolute target such as `GET http://169.254.169.254/metadata/… HTTP/1.1` is served",
        check=served(get(f"http://169.254.169.254{QUERY.target}")),
    ),
    Row(
        id="target-any-host",
        section=SECTION,
        rule="is served, whatever host it names (O)",
        check=served(get(f"http://metadata.example:8080{QUERY.target}")),
    ),
    Row(id="http-1.0", section=SECTION, rule=HTTP, check=served(Request(http="1.0", connection=None))),
    Row(
        id="http-1.0-keep-alive",
        section=SECTION,
        rule=HTTP,
        check=served(Request(http="1.0", connection="keep-alive")),
    ),
    Row(id="keep-alive", section=SECTION, rule=HTTP, check=_twice_on_one_line(Request(connection=None))),
    Row(
        id="connection-close",
        section=SECTION,
        rule="`Connection: close` is answered with the same.",
        check=_closes,
    ),
    Row(
        id="approve-no-content-type",
        section=SECTION,
        rule=ANY_TYPE,
        check=accepted("no-content-type"),
        needs=Needs.KNOWN,
    ),
    Row(id="approve-form", section=SECTION, rule=ANY_TYPE, check=accepted("form"), needs=Needs.KNOWN),
    Row(id="approve-text", section=SECTION, rule=ANY_TYPE, check=accepted("text"), needs=Needs.KNOWN),
    Row(
        id="expect-continue",
        section=SECTION,
        rule=EXPECT,
        check=every(posted("expect", status(100)), accepted("expect-after")),
        needs=Needs.KNOWN,
    ),
    Row(
        id="expect-refused",
        section=SECTION,
        rule=EXPECT,
        check=posted("expect-refused", is_refused_without_header),
        needs=Needs.APPROVE,
    ),
    Row(
        id="approve-if-none-match",
        section=SECTION,
        rule="`If-None-Match` has no effect on it.",
        check=accepted("if-none-match"),
        needs=Needs.KNOWN,
    ),
)
