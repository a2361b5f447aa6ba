"""Diagnosis of a VM that does not see its events."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from forewarn.api import v1
from forewarn.core.event import EventType
from forewarn.core.fault import Fault, FaultKind
from forewarn.core.policy import PRODUCTION
from forewarn.core.vm import Address, Roster, Vm
from forewarn.wire.error_responses import JSON
from forewarn.wire.preview import ResponsePreview
from tests.core.sample_scopes import TEN
from tests.operator.running_api import FakeGuests, RunningApi, run_api


class LinkLocal(FakeGuests):
    """An endpoint at 169.254.169.254 that identifies VMs by their address."""

    networks: Mapping[str, str] = {"default": "virbr0"}
    ports = None


class Nowhere(LinkLocal):
    """A service without a guest endpoint."""

    networks: Mapping[str, str] = {}


async def diagnose(service: RunningApi, vm: str) -> v1.Diagnosis:
    return await service.client(lambda api: api.diagnosis(vm))


async def findings(service: RunningApi, vm: str) -> dict[str, tuple[bool, str]]:
    diagnosis = await diagnose(service, vm)
    return {check.question: (check.passed, check.message) for check in diagnosis.checks}


async def test_diagnosis_of_a_working_vm() -> None:
    async with run_api(guests=LinkLocal()) as service:
        service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        diagnosis = await service.client(lambda api: api.diagnosis("web-0"))
    assert (diagnosis.vm, {check.passed for check in diagnosis.checks}) == ("web/web-0", {True})
    assert [check.question for check in diagnosis.checks] == [
        "Is it known?",
        "Does the endpoint listen for it?",
        "Is its address known?",
        "Is its address unique?",
        "Is its scope enabled?",
        "Are there events to see?",
        "Are faults active?",
        "Can its maintenance start?",
    ]
    assert diagnosis.response is None


async def test_diagnosis_of_a_vm_with_its_own_port() -> None:
    async with run_api() as service:
        found = await findings(service, "web-0")
    assert found["Does the endpoint listen for it?"] == (True, "Yes, at its own port: http://web.web-0.")
    assert "Is its address known?" not in found


class SharedPort(Nowhere):
    """An endpoint that serves all VMs on one port."""

    shared_url = "http://127.0.0.1:8180"


async def test_diagnosis_of_a_vm_at_the_port_of_all_vms() -> None:
    async with run_api(guests=SharedPort()) as service:
        found = await findings(service, "web-0")
    assert found["Does the endpoint listen for it?"] == (True, "Yes, at the port of all VMs: http://web.web-0.")


class BusyPort(FakeGuests):
    """An endpoint that cannot open the port of a VM."""

    def url(self, scope: str, vm: Vm) -> str | None:
        return None if vm.name == "web-0" else super().url(scope, vm)

    def port_problem(self, scope: str, vm: Vm) -> str | None:
        return "its port is in use" if (scope, vm.name) == ("web", "web-0") else None


async def test_port_in_use_is_a_finding() -> None:
    async with run_api(guests=BusyPort()) as service:
        found = [(await findings(service, name))["Does the endpoint listen for it?"] for name in ("web-0", "web-1")]
    assert found == [(False, "No: its port is in use."), (True, "Yes, at its own port: http://web.web-1.")]


async def test_unknown_name_is_a_finding_with_suggestions() -> None:
    async with run_api() as service:
        diagnosis = await service.client(lambda api: api.diagnosis("web_0"))
        far = await service.client(lambda api: api.diagnosis("nowhere/at-all"))
    assert diagnosis.checks == [
        v1.DiagnosisCheck(
            question="Is it known?",
            passed=False,
            message="No: there is no VM web_0.",
            hint=diagnosis.checks[0].hint,
        )
    ]
    assert "web/web-0" in diagnosis.checks[0].hint
    assert far.checks[0].hint == "Add it with `forewarn vm add`."


async def test_ambiguous_name_is_a_finding_with_candidates() -> None:
    text = "".join(f'[[scopes]]\nname = "{name}"\nkind = "cloud-service"\nvms = [{{ name = "vm" }}]\n' for name in "ab")
    async with run_api(fleet_file=text) as service:
        diagnosis = await service.client(lambda api: api.diagnosis("vm"))
    assert [(check.passed, check.hint) for check in diagnosis.checks] == [(False, "Specify one: a/vm or b/vm.")]


async def test_service_without_guest_endpoint_is_a_finding() -> None:
    async with run_api(guests=Nowhere()) as service:
        found = await findings(service, "web-0")
        diagnosis = await service.client(lambda api: api.diagnosis("web-0"))
    assert found["Does the endpoint listen for it?"] == (False, "No: the service does not listen for guests.")
    assert any(check.hint.startswith("Set listen_link_local to ") for check in diagnosis.checks)


async def test_missing_address_or_wrong_network_is_a_finding() -> None:
    async with run_api(guests=LinkLocal()) as service:
        await service.request("POST", "/v1/vms", {"name": "bare"})
        await service.request("POST", "/v1/vms", {"name": "blue", "addresses": [{"ip": "10.1.1.1", "network": "blue"}]})
        bare, blue = await findings(service, "bare"), await findings(service, "blue")
    assert bare["Is its address known?"] == (False, "No: it has no address.")
    assert blue["Is its address known?"] == (False, "No, not in a served network: it has 10.1.1.1 in network blue.")


async def test_duplicate_address_is_a_finding() -> None:
    async with run_api(guests=LinkLocal()) as service:
        address = service.fleet.replica.scope("web").vm("web-0").addresses[0]
        db = service.fleet.replica.scope("db-0")
        contested = msgspec.structs.replace(db.vm("db-0"), addresses=(Address(ip=address.ip),))
        service.fleet.replica.update("db-0", msgspec.structs.replace(db, roster=Roster((contested,))), 1_000_000)
        found = await findings(service, "web-0")
    claimed = f"No: {address.ip} in network default is also claimed by db-0/db-0."
    assert found["Is its address unique?"] == (False, claimed)


async def test_scope_that_never_polled_is_a_finding() -> None:
    async with run_api(guests=LinkLocal(), policy=PRODUCTION) as service:
        ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=["db-0"], notice="1h", unannounced=True)
        await service.client(lambda api: api.schedule(ask))
        off = await findings(service, "db-0")
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("db-0"))
        assert noted is not None
        await noted
        on = await findings(service, "db-0")
    assert off["Is its scope enabled?"] == (
        False,
        "No: this VM has never polled; 1d without a request disable it.",
    )
    assert off["Are there events to see?"][0] is False
    assert on["Is its scope enabled?"] == (True, "Yes: this VM last polled at 2026-03-02 10:00:00Z, 0s ago.")
    assert on["Are there events to see?"] == (True, "Yes: 1 open event, seen by every VM of the scope.")


async def test_last_poll_of_a_vm_is_known_once_it_has_polled_since_the_start() -> None:
    async with run_api(guests=LinkLocal(), policy=PRODUCTION) as service:
        off = await findings(service, "web-0")
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        on = await findings(service, "web-0")
        service.fleet.replica.view("web").polled_at["web-0"] = TEN
        own = await findings(service, "web-0")
        vm = service.fleet.replica.scope("web").vm("web-0")
        vms = len(service.fleet.replica.scope("web").roster)
    assert off["Is its scope enabled?"][1].startswith(f"No: none of its {vms} VMs has ever polled;")
    assert on["Is its scope enabled?"] == (
        True,
        f"Yes: one of its {vms} VMs (not this one since the service started) last polled at {TEN:%F %TZ}, 0s ago.",
    )
    assert own["Is its scope enabled?"] == (True, "Yes: this VM last polled at 2026-03-02 10:00:00Z, 0s ago.")
    assert on["Is its address unique?"] == (True, f"Yes: {vm.addresses[0].ip} in network default.")


async def test_api_version_of_event_types_and_hold_are_shown() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.PREEMPT, vms=["batch_0"])))
        await service.fleet.holds.set(by="ann", reason="a demonstration", scope="batch")
        found = await findings(service, "batch_1")
        (check,) = (check for check in (await diagnose(service, "batch_1")).checks if "maintenance" in check.question)
    assert found["Are there events to see?"] == (
        True,
        "Yes: 1 open event, seen by every VM of the scope; Preempt only with api-version 2017-11-01 or later.",
    )
    assert check == v1.DiagnosisCheck(
        question="Can its maintenance start?",
        passed=True,
        message="No planned maintenance: ann holds its scope: a demonstration",
        hint="`forewarn release --scope batch` ends the hold.",
        warning=True,
    )


async def test_every_hold_is_shown_with_its_release() -> None:
    async with run_api() as service:
        await service.fleet.holds.set(by="ann", reason="rack 4", scope="batch")
        await service.fleet.holds.set(by="bob", reason="audit")
        (check,) = (check for check in (await diagnose(service, "batch_1")).checks if "maintenance" in check.question)
    assert (check.warning, check.message, check.hint) == (
        True,
        "No planned maintenance: ann holds its scope: rack 4; bob holds the whole fleet: audit",
        "`forewarn release --scope batch` and `forewarn release` end the holds.",
    )


async def response_check(response: ResponsePreview) -> v1.DiagnosisCheck:
    guests = FakeGuests()
    guests.response = response
    async with run_api(guests=guests) as service:
        diagnosis = await diagnose(service, "web-0")
    assert diagnosis.response == v1.GuestResponse(
        status=response.status,
        content_type=response.content_type,
        body=response.body.decode(),
        delay="5s" if response.delay else "0s",
        faults=[fault.id for fault in response.faults],
    )
    (check,) = (check for check in diagnosis.checks if check.question == "What does it get if it polls now?")
    return check


def fault(kind: FaultKind) -> Fault:
    return Fault(id="F1", kind=kind, by="ann", set_at=TEN)


EVENT = b'{"EventId":"E1","EventStatus":"Scheduled","EventType":"Reboot","Resources":["web-0"]}'


@pytest.mark.parametrize(
    ("response", "passed", "warning", "message"),
    [
        (ResponsePreview(200, JSON, b'{"Events":[]}'), True, False, "A document with no events."),
        (
            ResponsePreview(200, JSON, b'{"Events":[' + EVENT + b"]}"),
            True,
            False,
            "A document with 1 event: Reboot of web-0 (Scheduled).",
        ),
        (
            ResponsePreview(200, JSON, b'{"Events":[]}', timedelta(seconds=5), (fault(FaultKind.SLOW),)),
            True,
            False,
            "A document with no events after 5s.",
        ),
        (
            ResponsePreview(200, JSON, b'{"Events":[]}', faults=(fault(FaultKind.EXTRA_FIELD),)),
            True,
            True,
            "A document with no events, because of fault F1 (extra-field).",
        ),
        (
            ResponsePreview(200, JSON, b"", faults=(fault(FaultKind.EMPTY_BODY),)),
            False,
            False,
            "Status 200, because of fault F1 (empty-body), without a document: an empty body",
        ),
        (
            ResponsePreview(410, JSON, b"Gone", faults=(fault(FaultKind.STATUS_410),)),
            False,
            False,
            "Status 410, because of fault F1 (status-410), without a document: Gone",
        ),
        (
            ResponsePreview(None, faults=(fault(FaultKind.HANG),)),
            False,
            False,
            "No response, because of fault F1 (hang).",
        ),
        (ResponsePreview(403, JSON, b"unknown"), False, False, "Status 403, without a document: unknown"),
    ],
)
async def test_response_of_the_vm_is_checked(
    response: ResponsePreview, passed: bool, warning: bool, message: str
) -> None:
    check = await response_check(response)
    assert (check.passed, check.warning, check.message) == (passed, warning, message)
    assert bool(check.hint) == (warning or not passed)


async def test_active_faults_are_a_warning() -> None:
    async with run_api() as service:
        for body in ({"vm": "web-0"}, {"vm": "web-1"}, {}):
            await service.request("POST", "/v1/faults", {"kind": "slow"} | body)
        (check,) = (check for check in (await diagnose(service, "web-0")).checks if "faults" in check.question)
    assert (check.passed, check.warning) == (True, True)
    assert check.message == "Yes: F1 (slow, for web/web-0), F3 (slow, for all VMs)."


async def test_scope_that_is_not_enabled_is_a_warning_even_if_events_are_always_announced() -> None:
    async with run_api() as service:
        (check,) = (check for check in (await diagnose(service, "web-0")).checks if "enabled" in check.question)
    assert (check.passed, check.warning, check.message) == (
        True,
        True,
        "No: none of its 6 VMs has ever polled, but here events are announced all the same.",
    )


async def test_service_that_is_not_ready_may_not_save_an_approval() -> None:
    async with run_api() as service:
        service.fleet.health.add_check(lambda: "the store cannot write")
        diagnosis = await service.client(lambda api: api.diagnosis("web-0"))
    assert [(check.question, check.message) for check in diagnosis.checks if not check.passed] == [
        ("Can the service save its approval?", "Perhaps not: the store cannot write.")
    ]
