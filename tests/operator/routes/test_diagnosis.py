"""Diagnosis of a VM that does not see its events."""

from collections.abc import Mapping

import msgspec

from forewarn.api import v1
from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.core.vm import Address, Roster
from tests.operator.running_api import FakeGuests, RunningApi, run_api


class LinkLocal(FakeGuests):
    """An endpoint at 169.254.169.254 that identifies VMs by their address."""

    networks: Mapping[str, str] = {"default": "virbr0"}
    ports = None


class Nowhere(LinkLocal):
    """A service without a guest endpoint."""

    networks: Mapping[str, str] = {}


async def findings(service: RunningApi, vm: str) -> dict[str, tuple[bool, str]]:
    diagnosis = await service.client(lambda api: api.diagnosis(vm))
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
        "Can its maintenance start?",
    ]


async def test_diagnosis_of_a_vm_with_its_own_port() -> None:
    async with run_api() as service:
        found = await findings(service, "web-0")
    assert found["Does the endpoint listen for it?"] == (True, "Yes, at its own port: http://web.web-0.")
    assert "Is its address known?" not in found


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
        ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=["db-0"], notice="1h")
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


async def test_last_poll_is_known_only_per_scope() -> None:
    async with run_api(guests=LinkLocal(), policy=PRODUCTION) as service:
        off = await findings(service, "web-0")
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        on = await findings(service, "web-0")
        vm = service.fleet.replica.scope("web").vm("web-0")
        vms = len(service.fleet.replica.scope("web").roster)
    assert off["Is its scope enabled?"][1].startswith(f"No: none of its {vms} VMs has ever polled;")
    assert on["Is its scope enabled?"] == (
        True,
        f"Yes: one of its {vms} VMs (which one is not recorded) last polled at 2026-03-02 10:00:00Z, 0s ago.",
    )
    assert on["Is its address unique?"] == (True, f"Yes: {vm.addresses[0].ip} in network default.")


async def test_api_version_of_event_types_and_hold_are_shown() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.PREEMPT, vms=["batch_0"])))
        await service.fleet.holds.set(by="ann", reason="a demonstration", scope="batch")
        found = await findings(service, "batch_1")
    assert found["Are there events to see?"] == (
        True,
        "Yes: 1 open event, seen by every VM of the scope; Preempt only with api-version 2017-11-01 or later.",
    )
    assert found["Can its maintenance start?"] == (
        True,
        "No planned maintenance: ann holds its scope: a demonstration",
    )
