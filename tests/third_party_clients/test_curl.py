"""curl as users and scripts call it: every response of the endpoint."""

import json
import re
from pathlib import Path

import pytest

from forewarn.core.event import EventType
from forewarn.core.scope import ScopeKind
from tests.support.emulator import GUARD, EmulatorProcess, Vm, events_path, run_emulator
from tests.third_party_clients.curl import Curl

METADATA = ("--header", "Metadata: true")
NO_SUCH_EVENT = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def curl(tmp_path: Path) -> Curl:
    return Curl(tmp_path)


@pytest.fixture(scope="module")
def any_vm(service: EmulatorProcess) -> Vm:
    """A VM for requests that change nothing."""
    return service.scope_to_itself(ScopeKind.AVAILABILITY_SET)[0]


def approving(*events: str) -> tuple[str, ...]:
    body = json.dumps({"StartRequests": [{"EventId": event} for event in events]})
    return (*METADATA, "--data", body)


class TestAsking:
    def test_document_matches_the_protocol_exactly(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        quiet = curl(*METADATA, vm.events())
        (event,) = service.schedule(EventType.REBOOT, vm)
        response = curl(*METADATA, vm.events())
        assert (quiet.status, quiet.body) == (200, b'{"DocumentIncarnation":1,"Events":[]}')
        not_before = re.search(rb'"NotBefore":"(\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)"', response.body)
        assert not_before is not None
        assert response.body == (
            b'{"DocumentIncarnation":2,"Events":[{"EventId":"%b","EventStatus":"Scheduled","EventType":"Reboot",'
            b'"ResourceType":"VirtualMachine","Resources":["vm-0"],"NotBefore":"%b",'
            b'"Description":"The VM restarts because its host is maintained.","EventSource":"Platform",'
            b'"DurationInSeconds":-1}]}' % (event.encode(), not_before[1])
        )

    def test_response_headers(self, vm: Vm, curl: Curl) -> None:
        answer = curl(*METADATA, vm.events())
        patterns = {
            "content-type": r"application/json; charset=utf-8",
            "content-length": str(len(answer.body)),
            "etag": r'"\w+\.1\.2020-07-01"',
            "forewarn-wait": "60",
            "date": r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT",
            "server": r"IMDS/\d+\.\d+\.\d+\.\d+",
            "x-ms-request-id": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        }
        assert set(answer.headers) == set(patterns)
        for name, pattern in patterns.items():
            assert re.fullmatch(pattern, answer.headers[name]), name

    def test_instance_name(self, vm: Vm, curl: Curl) -> None:
        response = curl(*METADATA, f"{vm.url}/metadata/instance/compute/name?api-version=2017-08-01&format=text")
        assert (response.status, response.body) == (200, b"vm-0")

    def test_supported_versions(self, vm: Vm, curl: Curl) -> None:
        response = curl(*METADATA, f"{vm.url}/metadata/versions")
        versions = ("2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01")
        assert json.loads(response.body) == {"apiVersions": list(versions)}

    @pytest.mark.parametrize("path", ["/Metadata/ScheduledEvents?", "/metadata/scheduledevents/?"])
    def test_path_ignores_case_and_trailing_slash(self, vm: Vm, curl: Curl, path: str) -> None:
        response = curl("--header", "METADATA: True", f"{vm.url}{path}api-version=2020-07-01")
        assert (response.status, response.body) == (200, b'{"DocumentIncarnation":1,"Events":[]}')

    def test_one_connection_serves_many_requests(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        (event,) = service.schedule(EventType.FREEZE, vm)
        ask, approve = (*METADATA, vm.events()), (*approving(event), vm.events())
        answers = curl.start(ask, ask, approve, ask).answers()
        assert [answer.status for answer in answers] == [200] * 4
        assert [answer.connects for answer in answers] == [1, 0, 0, 0]
        assert [b"Started" in answer.body for answer in answers] == [False, False, False, True]

    def test_http_1_0_is_answered_and_closed(self, vm: Vm, curl: Curl) -> None:
        ask = ("--http1.0", *METADATA, vm.events())
        answers = curl.start(ask, ask).answers()
        assert [answer.body for answer in answers] == [b'{"DocumentIncarnation":1,"Events":[]}'] * 2
        assert [answer.headers["connection"] for answer in answers] == ["close"] * 2
        assert [answer.connects for answer in answers] == [1, 1]

    def test_http_1_0_supports_keep_alive(self, vm: Vm, curl: Curl) -> None:
        ask = ("--http1.0", "--header", "Connection: keep-alive", *METADATA, vm.events())
        answers = curl.start(ask, ask).answers()
        assert [answer.headers["connection"] for answer in answers] == ["keep-alive"] * 2
        assert [answer.connects for answer in answers] == [1, 0]

    def test_connection_close_is_confirmed(self, vm: Vm, curl: Curl) -> None:
        response = curl("--header", "Connection: close", *METADATA, vm.events())
        assert (response.status, response.headers["connection"]) == (200, "close")

    def test_http_2_upgrade_is_ignored(self, vm: Vm, curl: Curl) -> None:
        """Java's client sends this upgrade offer with its first request."""
        offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
        headers = [option for line in offer for option in ("--header", line)]
        offered, plain = curl.start((*METADATA, *headers, vm.events()), (*METADATA, vm.events())).answers()
        assert [offered.status, plain.status] == [200, 200]
        assert offered.body == plain.body
        assert plain.connects == 0

    def test_endpoint_serves_proxy_requests_for_itself(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        url = "http://169.254.169.254" + events_path()
        seen = curl(*METADATA, url, http_proxy=vm.url)
        approved = curl(*approving(event), url, http_proxy=vm.url)
        assert [one["EventId"] for one in json.loads(seen.body)["Events"]] == [event]
        assert approved.status == 200
        assert service.statuses(vm) == {event: "Started"}


class TestConditions:
    def test_matching_etag_gets_304_until_the_document_changes(
        self, service: EmulatorProcess, vm: Vm, curl: Curl
    ) -> None:
        etag = curl(*METADATA, vm.events()).headers["etag"]
        ask = (*METADATA, "--header", f"If-None-Match: {etag}", vm.events())
        same = curl(*ask)
        service.schedule(EventType.REBOOT, vm)
        changed = curl(*ask)
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
        assert (changed.status, json.loads(changed.body)["DocumentIncarnation"]) == (200, 2)

    def test_etag_has_no_effect_on_an_approval(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        etag = curl(*METADATA, vm.events()).headers["etag"]
        response = curl(*approving(event), "--header", f"If-None-Match: {etag}", vm.events())
        assert (response.status, response.body) == (200, b"")

    def test_long_poll_ends_with_the_next_change(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        etag = curl(*METADATA, vm.events()).headers["etag"]
        held = curl.start((*METADATA, "--header", f"If-None-Match: {etag}", vm.events() + "&wait=60"))
        (event,) = service.schedule(EventType.REBOOT, vm)
        (response,) = held.answers()
        assert response.status == 200
        assert [one["EventId"] for one in json.loads(response.body)["Events"]] == [event]

    def test_long_poll_ends_after_its_wait_time(self, vm: Vm, curl: Curl) -> None:
        etag = curl(*METADATA, vm.events()).headers["etag"]
        response = curl(*METADATA, "--header", f"If-None-Match: {etag}", vm.events() + "&wait=1")
        assert (response.status, response.headers["etag"]) == (304, etag)
        assert response.seconds > 0.9


class TestApproving:
    @pytest.mark.parametrize(
        "options",
        [
            (),
            ("--http1.0",),
            ("--header", "Content-Type: application/json"),
            ("--header", "Content-Type:"),
            ("--header", "Transfer-Encoding: chunked"),
        ],
        ids=["form", "HTTP-1.0", "json", "no-content-type", "chunked"],
    )
    def test_an_approved_event_starts(
        self, service: EmulatorProcess, vm: Vm, curl: Curl, options: tuple[str, ...]
    ) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        response = curl(*approving(event), *options, vm.events())
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "0")
        assert service.statuses(vm) == {event: "Started"}

    @pytest.mark.parametrize("coding", ["", " chunked"], ids=["length", "chunked"])
    def test_expect_header_gets_100_continue(self, service: EmulatorProcess, vm: Vm, curl: Curl, coding: str) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        waiting = ("--header", "Expect: 100-continue", "--expect100-timeout", str(GUARD))
        response = curl(*approving(event), *waiting, "--header", f"Transfer-Encoding:{coding}", vm.events())
        assert (response.status, response.body, response.continued) == (200, b"", True)
        assert service.statuses(vm) == {event: "Started"}

    def test_one_unknown_id_rejects_the_whole_request(self, service: EmulatorProcess, vm: Vm, curl: Curl) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        response = curl(*approving(event, NO_SUCH_EVENT), vm.events())
        assert (response.status, response.body) == (
            400,
            b'{"error":"Bad request: there is no event %b"}' % NO_SUCH_EVENT.encode(),
        )
        assert service.statuses(vm) == {event: "Scheduled"}

    def test_event_of_another_scope_is_unknown(
        self, service: EmulatorProcess, vm: Vm, role_instance: Vm, curl: Curl
    ) -> None:
        (event,) = service.schedule(EventType.REBOOT, role_instance)
        response = curl(*approving(event), vm.events())
        assert (response.status, response.body) == (
            400,
            b'{"error":"Bad request: there is no event %b"}' % event.encode(),
        )
        assert service.statuses(role_instance) == {event: "Scheduled"}


EVENTS = events_path()
NEWEST_VERSIONS = b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'


def error(text: str) -> bytes:
    return b'{"error":"%b"}' % text.encode()


def version_error(text: str) -> bytes:
    return b'{"error":"%b. For more information refer to aka.ms/azureimds",%b' % (text.encode(), NEWEST_VERSIONS)


VERSION_MISSING = version_error("Bad request. api-version was not specified in the request")
VERSION_TWICE = version_error("Bad request. api-version was specified more than once in the request")

REFUSALS: dict[str, tuple[tuple[str, ...], str, int, bytes]] = {
    "no Metadata header": ((), EVENTS, 400, NO_HEADER),
    "Metadata: false": (("--header", "Metadata: false"), EVENTS, 400, NO_HEADER),
    "Metadata without a value": (("--header", "Metadata;"), EVENTS, 400, NO_HEADER),
    "POST without the header": (("--data", "{}"), events_path("2017-08-01"), 400, NO_HEADER),
    "GET without the header at the preview": ((), events_path("2017-03-01"), 400, NO_HEADER),
    "X-Forwarded-For": (
        (*METADATA, "--header", "X-Forwarded-For: 10.0.0.1"),
        EVENTS,
        400,
        error("Bad request: requests with X-Forwarded-For are not served"),
    ),
    "api-version missing": (METADATA, "/metadata/scheduledevents", 400, VERSION_MISSING),
    "api-version empty": (METADATA, "/metadata/scheduledevents?api-version=", 400, VERSION_MISSING),
    "api-version twice": (METADATA, EVENTS + "&api-version=2020-07-01", 400, VERSION_TWICE),
    "api-version not supported": (
        METADATA,
        events_path("2021-01-01"),
        404,
        version_error("The api-version 2021-01-01 is not supported"),
    ),
    "api-version latest": (
        METADATA,
        events_path("latest"),
        404,
        version_error("The api-version latest is not supported"),
    ),
    "unknown path": (
        METADATA,
        "/metadata/events?api-version=2020-07-01",
        404,
        error("Not found: here are /metadata/scheduledevents, /metadata/instance and /metadata/versions"),
    ),
    "DELETE": (
        (*METADATA, "--request", "DELETE"),
        EVENTS,
        405,
        error("Method not allowed: DELETE is not served here, only GET, POST"),
    ),
    "POST to the instance": (
        (*METADATA, "--data", "{}"),
        "/metadata/instance?api-version=2020-07-01",
        405,
        error("Method not allowed: POST is not served here, only GET"),
    ),
    "wait for too long": (
        METADATA,
        EVENTS + "&wait=61",
        400,
        error("Bad request: wait is given once, as a whole number of seconds from 1 to 60"),
    ),
    "no body": ((*METADATA, "--request", "POST"), EVENTS, 400, error("Bad request: the body is not JSON")),
    "body is not JSON": (
        (*METADATA, "--data", "StartRequests"),
        EVENTS,
        400,
        error("Bad request: the body is not JSON"),
    ),
    "body is not an object": (
        (*METADATA, "--data", "[]"),
        EVENTS,
        400,
        error("Bad request: the body is not a JSON object"),
    ),
    "no StartRequests": ((*METADATA, "--data", "{}"), EVENTS, 400, error("Bad request: the body has no StartRequests")),
    "StartRequests is not a list": (
        (*METADATA, "--data", '{"StartRequests":{}}'),
        EVENTS,
        400,
        error("Bad request: StartRequests is not a list"),
    ),
    "no EventId": (
        (*METADATA, "--data", '{"StartRequests":[{"eventid":"x"}]}'),
        EVENTS,
        400,
        error("Bad request: an entry of StartRequests has no string EventId"),
    ),
    "EventId is not a GUID": (
        approving("x"),
        EVENTS,
        400,
        error("Bad request: EventId x is not a GUID"),
    ),
    "path is checked before the method": (
        ("--request", "DELETE"),
        "/",
        404,
        error("Not found: here are /metadata/scheduledevents, /metadata/instance and /metadata/versions"),
    ),
    "header is checked before the version": ((), "/metadata/scheduledevents", 400, NO_HEADER),
    "version is checked before the body": (
        (*METADATA, "--data", "x"),
        "/metadata/scheduledevents",
        400,
        VERSION_MISSING,
    ),
}

ENDINGS: dict[str, tuple[tuple[str, ...], int, bytes]] = {
    "body too large": (("--data", "x" * 65_537), 413, error("Payload too large")),
    "body too large, and not sent": (
        ("--header", "Expect: 100-continue", "--data", "x" * 65_537),
        413,
        error("Payload too large"),
    ),
    "header too large": (("--header", f"X-Long: {'x' * 16_384}"), 431, error("Request header fields too large")),
    "unknown expectation": (
        ("--header", "Expect: a miracle", "--data", "{}"),
        417,
        error("Expectation failed: only 100-continue can be expected"),
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("case", REFUSALS)
    def test_error_keeps_the_connection_open(self, any_vm: Vm, curl: Curl, case: str) -> None:
        options, path, status, body = REFUSALS[case]
        refused, then = curl.start((*options, any_vm.url + path), (*METADATA, any_vm.events())).answers()
        assert (refused.status, refused.body) == (status, body)
        assert refused.headers["content-type"] == "application/json; charset=utf-8"
        assert (then.status, then.connects) == (200, 0)

    @pytest.mark.parametrize("case", ENDINGS)
    def test_error_closes_the_connection(self, any_vm: Vm, curl: Curl, case: str) -> None:
        options, status, body = ENDINGS[case]
        refused = curl(*METADATA, *options, any_vm.events())
        assert (refused.status, refused.body, refused.headers["connection"]) == (status, body, "close")
        assert not refused.continued

    def test_invalid_http_is_refused(self, any_vm: Vm, curl: Curl) -> None:
        refused = curl(*METADATA, "--request", "GET /metadata", any_vm.events())
        assert (refused.status, refused.headers["connection"]) == (400, "close")
        assert refused.body.startswith(b'{"error":"Bad request: ')

    def test_head_is_refused_without_a_body(self, any_vm: Vm, curl: Curl) -> None:
        """curl would take a body for the start of the next response."""
        refused, then = curl.start((*METADATA, "--head", any_vm.events()), (*METADATA, any_vm.events())).answers()
        assert (refused.status, refused.headers["allow"]) == (405, "GET, POST")
        assert (then.status, then.connects) == (200, 0)

    def test_refused_method_lists_allowed_methods(self, any_vm: Vm, curl: Curl) -> None:
        assert curl(*METADATA, "--request", "PUT", any_vm.events()).headers["allow"] == "GET, POST"

    def test_deleted_vm_is_not_identified(
        self, service: EmulatorProcess, scale_set: tuple[Vm, ...], curl: Curl
    ) -> None:
        leaving, staying = scale_set
        service.schedule(EventType.PREEMPT, leaving, notice="30s")
        service.advance("41s")
        refused = curl(*METADATA, leaving.events())
        assert (refused.status, refused.body) == (403, error(f"Forbidden: there is no VM {leaving} any more"))
        assert curl(*METADATA, staying.events()).status == 200

    def test_rate_limited_client_gets_retry_after(self, tmp_path: Path, curl: Curl) -> None:
        with run_emulator(tmp_path, FOREWARN_GUEST_REQUESTS_PER_SECOND="1") as strict:
            vm, other, _ = strict.scope_to_itself(ScopeKind.AVAILABILITY_SET)
            answers = curl.start(*[(*METADATA, vm.events())] * 100).answers()
            refused = next(answer for answer in answers if answer.status != 200)
            assert (refused.status, refused.body) == (429, b"Too Many Requests")
            assert refused.headers["retry-after"] == "1"
            assert curl(*METADATA, other.events()).status == 200
