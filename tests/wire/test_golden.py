"""Every kind of response, byte for byte, in readable files. `pytest tests/wire --rewrite-golden` rewrites them."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.core.event import Cause, EventType, Source, State
from forewarn.core.fault import FaultKind
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Address, Os, Priority, Roster, Traits
from forewarn.wire import error_responses
from forewarn.wire.approval import parse_approval
from forewarn.wire.document import encode_document
from forewarn.wire.error_responses import ErrorResponse, status_line
from forewarn.wire.fault_responses import BODY_FAULTS, fault_response
from forewarn.wire.instance import encode_instance, encode_versions
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS
from forewarn.wire.request import InstanceRequest, RequestHead, route
from tests.wire.samples import EVENTS, METADATA, event, get, numbered_id, scope, vm

Golden = Callable[[str, bytes], None]

PLATFORM = {"source": Source.PLATFORM, "cause": Cause.MAINTENANCE, "description": "The host is maintained."}

SCOPES: dict[str, Scope] = {
    "quiet": scope(incarnation=1),
    "restart-by-user": scope(event()),
    "every-type": scope(
        *(event(id=numbered_id(n), type=type_, **PLATFORM) for n, type_ in enumerate(EventType, start=1)), incarnation=6
    ),
    "started-and-scheduled": scope(
        event(id=numbered_id(1), state=State.STARTED, vms=("web_0", "web_1")),
        event(id=numbered_id(2), type=EventType.REDEPLOY, vms=("web_1",)),
        incarnation=4,
    ),
    "cloud-service": scope(
        event(
            vms=("FrontEnd_IN_0", "classic-0", "BackEnd_IN_0"),
            role_instances=("FrontEnd_IN_0", "BackEnd_IN_0"),
            **PLATFORM,
        ),
        kind=ScopeKind.CLOUD_SERVICE,
    ),
    "unannounced": scope(event(id=numbered_id(1), announced=False), event(id=numbered_id(2)), incarnation=2),
    "durations": scope(
        *(
            event(id=numbered_id(n), type=EventType.FREEZE, duration=duration, **PLATFORM)
            for n, duration in enumerate((None, timedelta(0), timedelta(seconds=5), timedelta(milliseconds=8001)))
        ),
        incarnation=5,
    ),
    "texts": scope(
        event(id=numbered_id(1), description=""),
        event(id=numbered_id(2), description='Umzug nach Köln: "sofort" \\ 再起動 \t <b>&amp;'),
        incarnation=3,
    ),
}

MACHINE = scope(
    id="batch",
    kind=ScopeKind.PLACEMENT_GROUP,
    scale_set="batch",
    placement_group="F67C14AB-E92C-408C-AE2D-DA15866EC79A",
    roster=Roster(
        (
            vm(
                "batch_0",
                update_domain=4,
                fault_domain=2,
                addresses=(
                    Address(ip="10.0.0.4", mac="00:0d:3a:f8:06:ec"),
                    Address(ip="10.0.0.5", mac="00-0D-3A-F8-06-EC"),
                    Address(ip="fd00::4", mac="000d3af806ec"),
                    Address(ip="192.168.7.4", network="storage"),
                ),
                traits=Traits(priority=Priority.LOW, tags={"role": "worker", "team": "render"}),
            ),
        )
    ),
    traits=Traits(
        location="home", zone="1", resource_group="lab", subscription="s-1", os=Os.WINDOWS, tags={"env": "t:e;st"}
    ),
)
NOBODY = scope(id="db-0", kind=ScopeKind.STANDALONE, roster=Roster((vm("db-0"),)))

PARTS: dict[str, tuple[Scope, InstanceRequest]] = {
    "whole.json": (MACHINE, InstanceRequest("2021-02-01")),
    "nothing-known.json": (NOBODY, InstanceRequest("2021-02-01")),
    "compute.json": (MACHINE, InstanceRequest("2021-02-01", ("compute",))),
    "tagsList.json": (MACHINE, InstanceRequest("2021-02-01", ("compute", "tagsList"))),
    "network.json": (MACHINE, InstanceRequest("2021-02-01", ("network",))),
    "name.json": (MACHINE, InstanceRequest("2021-02-01", ("compute", "name"))),
    "whole.txt": (MACHINE, InstanceRequest("2021-02-01", (), "text")),
    "compute.txt": (MACHINE, InstanceRequest("2021-02-01", ("compute",), "text")),
    "interface.txt": (MACHINE, InstanceRequest("2021-02-01", ("network", "interface"), "text")),
    "interface-0.txt": (MACHINE, InstanceRequest("2021-02-01", ("network", "interface", "0"), "text")),
    "name.txt": (MACHINE, InstanceRequest("2021-02-01", ("compute", "name"), "text")),
}

REFUSALS: dict[str, object] = {
    "unknown-caller": error_responses.UNKNOWN_CALLER,
    "rate": error_responses.TOO_MANY_REQUESTS,
    "unknown-path": route(get("/metadata/nowhere?api-version=2020-07-01")),
    "identity": route(get("/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r")),
    "attested": route(get("/metadata/attested/document?api-version=2020-10-01")),
    "load-balancer": route(get("/metadata/loadbalancer?api-version=2020-10-01")),
    "unknown-instance-path": encode_instance(NOBODY, vm("db-0"), InstanceRequest("2021-02-01", ("compute", "colour"))),
    "method": route(RequestHead("DELETE", f"{EVENTS}?api-version=2020-07-01", [METADATA])),
    "method-of-instance": route(RequestHead("POST", "/metadata/instance?api-version=2021-02-01", [METADATA])),
    "forwarded": route(get(f"{EVENTS}?api-version=2020-07-01", ("X-Forwarded-For", "10.0.0.1"))),
    "no-metadata-header": route(RequestHead("GET", f"{EVENTS}?api-version=2020-07-01")),
    "version-missing": route(get(EVENTS)),
    "version-twice": route(get(f"{EVENTS}?api-version=2020-07-01&api-version=2017-08-01")),
    "version-unsupported": route(get(f"{EVENTS}?api-version=latest")),
    "version-of-instance": route(get("/metadata/instance?api-version=latest")),
    "wait": route(get(f"{EVENTS}?api-version=2020-07-01&wait=61")),
    "format": route(get("/metadata/instance?api-version=2021-02-01&format=xml")),
    "body-is-no-json": parse_approval(b"StartRequests"),
    "body-is-no-object": parse_approval(b"[]"),
    "body-has-no-start-requests": parse_approval(b"{}"),
    "start-requests-is-no-list": parse_approval(b'{"StartRequests":{}}'),
    "entry-has-no-event-id": parse_approval(b'{"StartRequests":[{"EventId":7}]}'),
    "event-id-is-no-guid": parse_approval(b'{"StartRequests":[{"EventId":"all"}]}'),
    "unknown-event": error_responses.event_not_found(numbered_id(9)),
    "body-too-large": error_responses.BODY_TOO_LARGE,
    "header-too-large": error_responses.HEADER_TOO_LARGE,
    "malformed-http": error_responses.malformed_request("invalid HTTP version"),
    "unknown-expectation": error_responses.EXPECTATION_FAILED,
    "too-slow": error_responses.REQUEST_TIMEOUT,
    "too-many-connections": error_responses.TOO_MANY_CONNECTIONS,
    "not-saved": error_responses.NOT_SAVED,
    "outcome-unknown": error_responses.OUTCOME_UNKNOWN,
    "fault-410": fault_response(FaultKind.STATUS_410),
    "fault-429": fault_response(FaultKind.STATUS_429),
    "fault-500": fault_response(FaultKind.STATUS_500),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", SCOPES)
def test_document(case: str, version: str, golden: Golden) -> None:
    golden(f"{version}/{case}.json", encode_document(SCOPES[case], version))


@pytest.mark.parametrize("kind", BODY_FAULTS)
def test_faulty_document(kind: FaultKind, golden: Golden) -> None:
    right = encode_document(SCOPES["restart-by-user"], NEWEST_VERSION)
    golden(f"faulty/{kind.value}", BODY_FAULTS[kind](right))


@pytest.mark.parametrize("case", PARTS)
def test_instance(case: str, golden: Golden) -> None:
    of, request = PARTS[case]
    answer = encode_instance(of, of.roster.vms[0], request)
    assert isinstance(answer, tuple)
    body, content_type = answer
    golden(f"instance/{case}", body)
    assert content_type == {"json": error_responses.JSON, "text": error_responses.TEXT}[request.format]


def test_versions(golden: Golden) -> None:
    golden("versions.json", encode_versions())


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(case: str, golden: Golden) -> None:
    refusal = REFUSALS[case]
    assert isinstance(refusal, ErrorResponse)
    fields = [("Content-Type", refusal.content_type), *refusal.headers, *[("Connection", "close")] * refusal.close]
    head = b"".join(f"{name}: {value}\n".encode() for name, value in fields)
    golden(f"refusals/{case}.http", status_line(refusal.status).replace(b"\r\n", b"\n") + head + b"\n" + refusal.body)


def test_no_golden_file_is_left_over() -> None:
    root = Path(__file__).parent / "golden"
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    documents = {f"{version}/{case}.json" for version in VERSIONS for case in SCOPES}
    others = {f"instance/{case}" for case in PARTS} | {f"refusals/{case}.http" for case in REFUSALS}
    faulty = {f"faulty/{kind.value}" for kind in BODY_FAULTS}
    assert there == documents | others | faulty | {"versions.json"}


def test_every_reason_has_its_golden_refusal() -> None:
    assert {refusal.reason for refusal in REFUSALS.values() if isinstance(refusal, ErrorResponse)} == set(
        error_responses.ErrorReason
    )
