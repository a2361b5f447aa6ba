"""Why does my VM see nothing? Every thing that can be in the way is found."""

from collections.abc import Mapping

import msgspec

from forewarn.api import v1
from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.core.vm import Address, Roster
from tests.operator.running_api import FakeGuests, RunningApi, run_api


class LinkLocal(FakeGuests):
    """VMs that find their endpoint at 169.254.169.254, known by their address in a network."""

    networks: Mapping[str, str] = {"default": "virbr0"}
    ports = None


class Nowhere(LinkLocal):
    """A service that listens for no guests."""

    networks: Mapping[str, str] = {}


async def findings(service: RunningApi, vm: str) -> dict[str, tuple[bool, str]]:
    diagnosis = await service.client(lambda api: api.diagnosis(vm))
    return {check.question: (check.passed, check.message) for check in diagnosis.checks}


async def test_vm_that_is_well() -> None:
    async with run_api(guests=LinkLocal()) as service:
        service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        diagnosis = await service.client(lambda api: api.diagnosis("web-0"))
    assert (diagnosis.vm, {check.passed for check in diagnosis.checks}) == ("web/web-0", {True})
    assert [check.question for check in diagnosis.checks] == [
        "Is it known?",
        "Does the endpoint listen for it?",
        "Is its address known?",
        "Is its address its own?",
        "Is its scope enabled?",
        "Is there something to see?",
        "Does its maintenance go on?",
    ]


async def test_vm_with_a_port_of_its_own() -> None:
    async with run_api() as service:
        found = await findings(service, "web-0")
    assert found["Does the endpoint listen for it?"] == (True, "Yes, at its own port: http://web.web-0.")
    assert "Is its address known?" not in found


async def test_unknown_name_is_a_finding_with_what_may_be_meant() -> None:
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


async def test_ambiguous_name_is_a_finding_with_what_to_say() -> None:
    text = "".join(f'[[scopes]]\nname = "{name}"\nkind = "cloud-service"\nvms = [{{ name = "vm" }}]\n' for name in "ab")
    async with run_api(fleet_file=text) as service:
        diagnosis = await service.client(lambda api: api.diagnosis("vm"))
    assert [(check.passed, check.hint) for check in diagnosis.checks] == [(False, "Say which: a/vm or b/vm.")]


async def test_service_that_listens_nowhere() -> None:
    async with run_api(guests=Nowhere()) as service:
        found = await findings(service, "web-0")
        diagnosis = await service.client(lambda api: api.diagnosis("web-0"))
    assert found["Does the endpoint listen for it?"] == (False, "No: the service listens for no guests.")
    assert any(check.hint.startswith("Set listen_link_local to ") for check in diagnosis.checks)


async def test_address_that_is_missing_or_of_another_network() -> None:
    async with run_api(guests=LinkLocal()) as service:
        await service.request("POST", "/v1/vms", {"name": "bare"})
        await service.request("POST", "/v1/vms", {"name": "blue", "addresses": [{"ip": "10.1.1.1", "network": "blue"}]})
        bare, blue = await findings(service, "bare"), await findings(service, "blue")
    assert bare["Is its address known?"] == (False, "No: it has no address.")
    assert blue["Is its address known?"] == (False, "Not here: it has 10.1.1.1 in network blue.")


async def test_address_that_two_claim() -> None:
    async with run_api(guests=LinkLocal()) as service:
        address = service.fleet.replica.scope("web").vm("web-0").addresses[0]
        db = service.fleet.replica.scope("db-0")
        contested = msgspec.structs.replace(db.vm("db-0"), addresses=(Address(ip=address.ip),))
        service.fleet.replica.update("db-0", msgspec.structs.replace(db, roster=Roster((contested,))), 1_000_000)
        found = await findings(service, "web-0")
    claimed = f"No: {address.ip} in network default is also claimed by db-0/db-0."
    assert found["Is its address its own?"] == (False, claimed)


async def test_scope_that_has_never_asked_sees_nothing() -> None:
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
        "No: this VM has never asked; 1d of silence switch it off.",
    )
    assert off["Is there something to see?"][0] is False
    assert on["Is its scope enabled?"] == (True, "Yes: this VM last asked at 2026-03-02 10:00:00Z, 0s ago.")
    assert on["Is there something to see?"] == (True, "Yes: 1 open event, seen by every VM of the scope.")


async def test_of_several_vms_it_is_not_known_which_has_asked() -> None:
    async with run_api(guests=LinkLocal(), policy=PRODUCTION) as service:
        off = await findings(service, "web-0")
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        on = await findings(service, "web-0")
        vm = service.fleet.replica.scope("web").vm("web-0")
        vms = len(service.fleet.replica.scope("web").roster)
    assert off["Is its scope enabled?"][1].startswith(f"No: none of its {vms} VMs has ever asked;")
    assert on["Is its scope enabled?"] == (
        True,
        f"Yes: one of its {vms} VMs (which is not kept) last asked at 2026-03-02 10:00:00Z, 0s ago.",
    )
    assert on["Is its address its own?"] == (True, f"Yes: {vm.addresses[0].ip} in network default.")


async def test_type_that_old_versions_do_not_show_and_hold_are_told() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.PREEMPT, vms=["batch_0"])))
        await service.fleet.holds.set(by="ann", reason="a demonstration", scope="batch")
        found = await findings(service, "batch_1")
    assert found["Is there something to see?"] == (
        True,
        "Yes: 1 open event, seen by every VM of the scope; Preempt only with api-version 2017-11-01 or later.",
    )
    assert found["Does its maintenance go on?"] == (
        True,
        "Nothing planned starts: ann holds its scope: a demonstration",
    )
