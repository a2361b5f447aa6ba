"""Two VMs behind HAProxy reboot together under constant traffic: no request fails, even if agents are killed."""

from collections.abc import Iterator
from threading import Event

import pytest

from tests.end_to_end.agent.lab import ALL, PAIR, PHASES, Lab, run_lab
from tests.end_to_end.agent.traffic import Traffic
from tests.support.haproxy import ServerStatus
from tests.support.processes import GUARD, wait_until

LEADER, OTHER = PAIR
DRAINED = ServerStatus("DRAIN", 0)
HANDLER_CALLS = ("prepare", "recover")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Traffic]]:
    with run_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture
def place(built: tuple[Lab, Traffic]) -> Lab:
    place, _ = built
    place.checkpoints.clear_calls()
    place.rebooted.clear()
    return place


@pytest.fixture
def traffic(place: Lab, built: tuple[Lab, Traffic]) -> Iterator[Traffic]:
    """Constant traffic without a failed request, from before the test until every VM has responded after it."""
    _, traffic = built
    traffic.wait_for_answers_of(*ALL)
    yield traffic
    place.wait_until_all_serve()
    traffic.wait_for_answers_of(*ALL)
    assert traffic.failures == []
    assert place.checkpoints.errors == []


def wait_for_completion(place: Lab, event: str) -> None:
    """Wait until the pair has rebooted and serves again; check that it was drained."""
    place.wait_until_over(event)
    for vm in PAIR:
        place.checkpoints.wait_for("recover", vm)
    place.wait_until_all_serve()
    assert place.rebooted == dict.fromkeys(PAIR, DRAINED)


@pytest.mark.usefixtures("traffic")
def test_both_vms_are_drained_and_rebooted_without_a_failed_request(place: Lab) -> None:
    event = place.announce_reboot(*PAIR)
    wait_for_completion(place, event)
    assert place.approvals(event) == [f"vm:{LEADER}"]
    assert {call.vm for call in place.checkpoints.calls} == set(PAIR)


@pytest.mark.usefixtures("traffic")
def test_leader_approves_only_when_both_are_ready(place: Lab) -> None:
    may_go_on = Event()
    place.checkpoints.on_next("prepare", OTHER, lambda _: assert_(may_go_on.wait(GUARD)))
    event = place.announce_reboot(*PAIR)
    place.checkpoints.wait_for("ready", LEADER)
    wait_until(lambda: OTHER in place.approval_reason(LEADER), "the leader to see that its peer is not ready")
    assert place.approvals(event) == []
    may_go_on.set()
    wait_for_completion(place, event)
    assert place.approvals(event) == [f"vm:{LEADER}"]


@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize(
    ("vm", "phase"),
    [
        *((LEADER, phase) for phase in PHASES),
        *(pytest.param(OTHER, phase, marks=pytest.mark.long) for phase in PHASES if phase != "approve"),
    ],
)
def test_agent_killed_in_a_phase_resumes_it(place: Lab, vm: str, phase: str) -> None:
    place.checkpoints.on_next(phase, vm, place.kill_agent)
    if phase in {"approve", "impact"}:
        # Kill the agent before the reboot, which would end it anyway.
        place.checkpoints.on_next("reboot", vm, lambda _: place.checkpoints.wait_for(phase, vm))
    event = place.announce_reboot(*PAIR)
    place.checkpoints.wait_for(phase, vm)
    wait_for_completion(place, event)
    if phase in HANDLER_CALLS:
        killed, again = (call.attempt for call in place.checkpoints.calls if (call.what, call.vm) == (phase, vm))
        assert killed < again


@pytest.mark.usefixtures("traffic")
def test_agent_restarted_during_the_impact_leaves_its_vm_prepared(place: Lab) -> None:
    """The agent is killed and restarted before the reboot: its handlers are notified again, and nothing is undone."""
    place.checkpoints.on_next("impact", LEADER, place.kill_agent)
    place.checkpoints.on_next("reboot", LEADER, lambda _: place.checkpoints.wait_for("impact", LEADER, times=2))
    event = place.announce_reboot(*PAIR)
    wait_for_completion(place, event)


@pytest.mark.long
@pytest.mark.usefixtures("traffic")
def test_both_agents_can_be_killed_in_every_phase(place: Lab) -> None:
    for vm in PAIR:
        for phase in ("notice", "prepare", "ready", "recover"):
            place.checkpoints.on_next(phase, vm, place.kill_agent)
    event = place.announce_reboot(*PAIR)
    wait_for_completion(place, event)


@pytest.mark.usefixtures("traffic")
def test_withdrawn_event_leaves_nothing_drained(place: Lab) -> None:
    may_go_on = Event()
    place.checkpoints.on_next("prepare", OTHER, lambda _: assert_(may_go_on.wait(GUARD)))
    event = place.announce_reboot(*PAIR)
    place.checkpoints.wait_for("ready", LEADER)
    place.checkpoints.wait_for("prepare", OTHER)
    assert place.balancer.statuses(*PAIR) == ("DRAIN", "DRAIN")
    place.cancel(event)
    may_go_on.set()
    for vm in PAIR:
        place.checkpoints.wait_for("recover", vm)
    place.wait_until_all_serve()
    assert place.rebooted == {}


def test_reboot_without_draining_fails_requests(place: Lab, built: tuple[Lab, Traffic]) -> None:
    """Without this, the other tests would prove nothing."""
    _, traffic = built

    def is_noticed() -> bool:
        place.vms["web-2"].reboot()
        return bool(traffic.failures)

    wait_until(is_noticed, "a failed request")
    place.wait_until_all_serve()
    traffic.forget_failures()


def assert_(fact: bool) -> None:
    """Assert a condition inside a lambda."""
    assert fact
