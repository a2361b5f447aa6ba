"""The state of each VM of a scope, the most urgent first."""

from collections import Counter
from datetime import timedelta

from forewarn.core.impact import Failed
from forewarn.operator.dashboard.vm_state import POLL_LIMIT, VmState, count_states, vm_states
from tests.operator.running_api import TEN, RunningApi, run_api, schedule_event


def states(service: RunningApi, scope: str = "web", *, knows_polls: bool = True) -> dict[str, str]:
    """Return the states of the VMs that are not silent."""
    fleet = service.fleet
    view, value, hold = fleet.replica.view(scope), fleet.replica.scope(scope), fleet.holds.current
    found = vm_states(view, value, hold, now=fleet.clock.now(), knows_polls=knows_polls)
    counted = count_states(view, value, hold, now=fleet.clock.now(), knows_polls=knows_polls)
    assert counted == Counter(found.values())
    return {name: state.value for name, state in found.items() if state is not VmState.SILENT}


async def test_vm_is_quiet_while_it_polls_and_its_scope_is_enabled() -> None:
    async with run_api() as service:
        view = service.fleet.replica.view("web")
        view.polled_at["web-0"] = TEN
        assert states(service) == {}
        noted = service.fleet.last_seen.record_request(view)
        assert noted is not None
        await noted
        view.polled_at["web-1"] = TEN - POLL_LIMIT + timedelta(seconds=1)
        view.polled_at["web-2"] = TEN - POLL_LIMIT
        assert states(service) == {"web-0": "quiet", "web-1": "quiet"}


async def test_polls_are_not_known_before_the_first_reports_of_hosts() -> None:
    async with run_api() as service:
        assert states(service, knows_polls=False) == {}  # its scope is not enabled: no VM polls
        view = service.fleet.replica.view("web")
        noted = service.fleet.last_seen.record_request(view)
        assert noted is not None
        await noted
        view.polled_at |= {"web-0": TEN, "web-1": TEN - POLL_LIMIT}
        others = {vm.name: "not known yet" for vm in view.roster or ()} | {"web-0": "quiet"}
        del others["web-1"]
        assert states(service, knows_polls=False) == others
        assert states(service) == {"web-0": "quiet"}


async def test_state_follows_the_event() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no"))
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        assert states(service) == {"web-0": "scheduled"}
        await service.request("POST", "/v1/holds", {"reason": "x"})
        assert states(service) == {"web-0": "held"}
        await service.request("POST", f"/v1/events/{event}/approve", {"vm": "web-0"})
        assert states(service) == {"web-0": "held"}
        await service.request("POST", "/v1/holds/release", {})
        assert states(service) == {"web-0": "in impact"}
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        assert states(service) == {"web-0": "failed"}


async def test_approved_event_that_waits_for_another_domain_is_approved() -> None:
    async with run_api() as service:
        first = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        second = await schedule_event(service, "Reboot", "web/web-1", notice="15m", unannounced=True)
        for event, vm in ((first, "web-0"), (second, "web-1")):
            await service.request("POST", f"/v1/events/{event}/approve", {"vm": vm})
        assert states(service) == {"web-0": "in impact", "web-1": "approved"}


def test_marks_are_names_of_the_style_sheet() -> None:
    assert {state.mark for state in VmState} == {
        "failed", "impact", "held", "approved", "scheduled", "silent", "quiet",
    }  # fmt: skip
