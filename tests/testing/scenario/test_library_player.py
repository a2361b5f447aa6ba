"""Scenarios played through the operator API of a real service: verdicts, live results, clean-up and cancellation."""

from collections.abc import Iterator

import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.core.access import Role
from forewarn.operator.errors import InvalidScenario
from forewarn.testing import Forewarn
from forewarn.testing.scenario.library_player import MAX_STEPS, LibraryPlayer

RESTART = """# Mine.
scope web availability-set
vm web-0 domain 0
query web-0
fault 410 web-0 times 3
hold all "quarter end"
restart web-0
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Forewarn]:
    """A service that the tests share; each must leave it as it was."""
    with Forewarn() as running:
        yield running


@pytest.fixture
def unchanged(service: Forewarn) -> Iterator[Forewarn]:
    """The service, which must have the same scopes, faults and holds afterwards."""

    def contents() -> tuple[list[str], int, int]:
        api = service.api
        return [scope.id for scope in api.scopes()], len(api.faults().faults), len(api.holds().holds)

    before = contents()
    yield service
    assert contents() == before


def play(service: Forewarn, name: str, text: str | None = None) -> v1.ScenarioRun:
    """Play a scenario to its end."""
    started = service.api.play_scenario(v1.PlayScenario(name=name, text=text))
    *_, ended = service.api.follow_scenario_run(started.id)
    return ended


def test_shipped_scenario_passes_beside_the_fleet(unchanged: Forewarn) -> None:
    run = play(unchanged, "user-restart")
    assert (run.verdict, run.finished_step_count, list(run.scopes)) == ("passed", run.step_count, ["web-2"])
    assert [step.passed for step in run.steps] == [True] * run.step_count
    assert unchanged.api.scenario_runs().runs[0].id == run.id


def test_failed_step_shows_what_was_expected(unchanged: Forewarn) -> None:
    run = play(unchanged, "mine", f"{RESTART}expect E1 Started within 1m\n")
    assert (run.verdict, run.steps[-1].passed, run.steps[-1].awaited) == ("failed", False, "E1 Started within 1m")


def test_scenario_that_names_something_unknown_is_invalid(unchanged: Forewarn) -> None:
    run = play(unchanged, "mine", f"{RESTART}approve E9 by web-0\n")
    assert (run.verdict, run.finished_step_count < run.step_count) == ("invalid", True)
    assert "E9" in run.reason


def test_canceled_scenario_removes_what_it_added() -> None:
    """In real time at a high speed, it waits for the clock."""
    with Forewarn(manual_time=False, speed=60) as service:
        before = [scope.id for scope in service.api.scopes()]
        run = service.api.play_scenario(v1.PlayScenario(name="mine", text=f"{RESTART}wait 9h\n"))
        for now in service.api.follow_scenario_run(run.id):
            if now.current_step == "wait 9h":
                break
        assert [scope.id for scope in service.api.scopes()] != before
        ended = service.api.cancel_scenario(run.id, v1.CancelScenario(reason="enough"))
        assert (ended.verdict, ended.reason) == ("canceled", "canceled by admin: enough")
        assert [scope.id for scope in service.api.scopes()] == before
        assert (service.api.faults().faults, service.api.holds().holds) == ([], [])


def test_wrong_text_is_refused_with_its_place(unchanged: Forewarn) -> None:
    with pytest.raises(RequestRefused) as refusal:
        play(unchanged, "mine", "# T.\nscope web availability-set\nbreak everything\n")
    assert (refusal.value.status, refusal.value.code) == (422, "invalid-scenario")
    assert (refusal.value.details["line"], refusal.value.details["word"]) == ("3", "break")


def test_scenario_with_its_own_policy_is_refused_and_marked_in_the_list(unchanged: Forewarn) -> None:
    listed = {scenario.name: scenario.problem for scenario in unchanged.api.scenarios().scenarios}
    assert listed["user-restart"] is None
    assert listed["service-off-for-a-day"]
    with pytest.raises(RequestRefused) as refusal:
        play(unchanged, "service-off-for-a-day")
    assert refusal.value.code == "scenario-refused"


def test_scenario_with_too_little_notice_for_the_speed_is_refused_and_marked_in_the_list() -> None:
    with Forewarn(manual_time=False, speed=60, settings={"policy.shortest_notice": "10s"}) as service:
        before = {scenario.name for scenario in service.api.scenarios().scenarios if scenario.problem is None}
        with pytest.raises(RequestRefused) as refusal:
            service.api.play_scenario(v1.PlayScenario(name="eviction-8s"))
        service.api.set_speed(v1.SetSpeed(speed=10))
        after = {scenario.name for scenario in service.api.scenarios().scenarios if scenario.problem is None}
    assert (refusal.value.code, "set the speed to at most 1" in str(refusal.value)) == ("scenario-refused", True)
    assert before - after == {"predicted-failure"}
    assert after - before == {"terminate-on-scale-in"}
    assert "eviction-8s" not in before | after


def test_viewer_sees_runs_but_plays_none(unchanged: Forewarn) -> None:
    from forewarn.api.client import ApiClient

    created = unchanged.api.create_token(v1.CreateToken(name="eve", role=Role.VIEWER))
    eve = ApiClient(unchanged.url, created.secret)
    run = play(unchanged, "user-restart")
    assert run.id in [seen.id for seen in eve.scenario_runs().runs]
    with pytest.raises(RequestRefused) as refusal:
        eve.play_scenario(v1.PlayScenario(name="user-restart"))
    assert refusal.value.status == 403


def test_number_of_steps_is_limited() -> None:
    text = "# T.\nscope web availability-set\n" + "wait 1s\n" * MAX_STEPS
    with pytest.raises(InvalidScenario, match="at most 1000 steps"):
        LibraryPlayer().prepare("mine", text)
