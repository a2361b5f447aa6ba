"""The service dies in every state of an event, and goes on: nothing is lost, done twice or forgotten."""

from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.event import EventType
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
from tests.service.town import Town, town

DONE = ["impact-begun", "impact-done", "completed"]

SETTINGS = """
platform = "command"
[command]
program = ["{program}"]
attempts = 2
first_pause = "5m"
"""

PROGRAM = """#!/bin/sh
cd {directory}
echo "$FOREWARN_PHASE $FOREWARN_VM" >> called
while [ -e "$FOREWARN_PHASE.$FOREWARN_VM.wait" ]; do sleep 0.02; done
exit "$(cat "$FOREWARN_PHASE.$FOREWARN_VM" 2>/dev/null || echo 0)"
"""


def schedule(place: Town, type_: EventType, vm: str, **more: object) -> str:
    ask = v1.ScheduleEvents(type=type_, vms=(vm,), **more)  # type: ignore[arg-type]  # as each test says
    (made,) = place.api.schedule(ask).made
    return made.id


def test_it_goes_on_from_every_state(tmp_path: Path) -> None:
    with town(tmp_path) as place:
        ended = schedule(place, EventType.FREEZE, "FrontEnd_IN_1", notice="0s", duration="1s")
        place.api.advance()
        place.api.hold(v1.CreateHold(reason="closing", scope="db-0"))
        held = schedule(place, EventType.REBOOT, "db-0")
        place.approve("db-0/db-0", held)
        scheduled = schedule(place, EventType.FREEZE, "BackEnd_IN_0", notice="20m")
        begun = schedule(place, EventType.REBOOT, "web-0", failure=True)
        place.wait_for(EntryKind.IMPACT_BEGUN, begun)
        # Two impacts never run on one VM at a time: this one has started, and its impact has not begun.
        started = schedule(place, EventType.REDEPLOY, "web-0", failure=True)
        before = {event.id: event for event in place.api.events()}
        documents = {vm: place.document(vm) for vm in ("db-0/db-0", "shop/BackEnd_IN_0", "web/web-0")}
        assert place.impact(started).state is ImpactState.PENDING

        place.killed_and_started()

        assert {vm: place.document(vm) for vm in documents} == documents
        assert place.told(ended) == ["scheduled", "started", *DONE]
        after = {event.id: event for event in place.api.events()}
        assert {id_: after[id_] for id_ in (held, scheduled, started)} == {
            id_: before[id_] for id_ in (held, scheduled, started)
        }
        place.api.advance("10m")
        # The simulated work of a service that has died has not been done: it is begun once more.
        assert place.told(begun) == ["started", "impact-begun", *DONE]
        assert place.told(started) == ["started", *DONE]
        assert [event.id for event in place.api.events()] == [held, scheduled]
        place.api.release(v1.ReleaseHold(scope="db-0"))
        place.api.advance("1h")
        assert place.told(held) == ["scheduled", "approved", "started", *DONE]
        assert place.told(scheduled) == ["scheduled", "started", *DONE]


def test_hold_on_all_and_what_waits_for_it_survive(tmp_path: Path) -> None:
    with town(tmp_path) as place:
        place.api.hold(v1.CreateHold(reason="audit"))
        event = schedule(place, EventType.FREEZE, "db-0")
        place.api.advance("1h")
        holds, now = place.api.holds(), place.api.clock().now

        place.killed_and_started()

        assert (place.api.holds(), place.api.clock().now) == (holds, now)
        place.api.advance("1h")
        (waiting,) = place.api.events()
        assert (waiting.status, waiting.explain) == ("Scheduled", ["all maintenance is held by admin: audit"])
        place.api.release(v1.ReleaseHold())
        place.api.advance("1h")
        assert place.told(event) == ["scheduled", "started", *DONE]


def test_person_decides_what_has_failed_or_is_unknown_across_crashes(tmp_path: Path) -> None:
    def answer(phase: str, vm: str, code: int) -> None:
        (tmp_path / f"{phase}.{vm}").write_text(str(code))

    def calls(vm: str) -> list[str]:
        lines = (tmp_path / "called").read_text().split("\n")
        return [line.partition(" ")[0] for line in lines if line.endswith(f" {vm}")]

    program = tmp_path / "maintain"
    program.write_text(PROGRAM.format(directory=tmp_path))
    program.chmod(0o755)
    settings = tmp_path / "forewarn.toml"
    settings.write_text(SETTINGS.format(program=program))
    with town(tmp_path, "--config", str(settings)) as place:
        answer("carry-out", "db-0", 3)
        failed = schedule(place, EventType.REBOOT, "db-0", failure=True)
        place.wait_for(EntryKind.IMPACT_FAILED, failed)
        answer("carry-out", "FrontEnd_IN_0", 75)
        waiting = schedule(place, EventType.REBOOT, "FrontEnd_IN_0", failure=True)
        retry_at = place.wait_for(EntryKind.IMPACT_RETRY, waiting).facts["retry_at"]
        answer("probe", "web-0", 1)
        (tmp_path / "carry-out.web-0.wait").touch()
        unknown = schedule(place, EventType.REBOOT, "web-0", failure=True)
        place.wait_for(EntryKind.IMPACT_BEGUN, unknown)

        place.kill()
        (tmp_path / "carry-out.web-0.wait").unlink()
        place.start()
        place.wait_for(EntryKind.IMPACT_UNKNOWN, unknown)
        place.killed_and_started()

        assert place.impact(failed).state is ImpactState.FAILED
        assert place.impact(waiting).state is ImpactState.RETRY
        assert place.impact(unknown).state is ImpactState.UNKNOWN
        assert place.wait_for(EntryKind.IMPACT_RETRY, waiting).facts["retry_at"] == retry_at
        answer("carry-out", "FrontEnd_IN_0", 0)
        place.api.advance("10m")
        assert place.api.event(waiting).outcome is EventOutcome.COMPLETED
        assert calls("FrontEnd_IN_0") == ["carry-out", "carry-out"]

        place.api.resolve(unknown, v1.ResolveImpact(done=True, why="it is up, I looked"))
        assert place.api.event(unknown).outcome is EventOutcome.COMPLETED
        assert calls("web-0") == ["carry-out", "probe"]

        place.api.retry(failed, v1.RetryImpact(why="once more"), key="again")
        place.api.advance("1s")
        assert (place.impact(failed).state, calls("db-0")) == (ImpactState.FAILED, ["carry-out", "carry-out"])
        place.killed_and_started()
        place.api.retry(failed, v1.RetryImpact(why="once more"), key="again")
        place.api.advance("1s")
        assert calls("db-0") == ["carry-out", "carry-out"]
        given_up = place.api.resolve(failed, v1.ResolveImpact(done=False, why="scrapped"))
        assert given_up.outcome is EventOutcome.FAILED
        assert place.document("db-0/db-0")["Events"] == []


def _asked(place: Town) -> list[tuple[int, EntryKind]]:
    """What the journal has of the requests; the clock is moved by the test, and not by them."""
    entries = (entry for entry in place.api.history() if entry.by == "admin")
    return [(entry.position, entry.did) for entry in entries if entry.did is not EntryKind.CLOCK_MOVED]


def test_requests_said_again_after_a_crash_do_nothing_twice(tmp_path: Path) -> None:
    with town(tmp_path) as place:
        freeze = v1.ScheduleEvents(type=EventType.FREEZE, vms=("web-0",), notice="20m")

        def say_all(made: str | None) -> str:
            """Say every request with its key; return the event that was made."""
            api = place.api
            scheduled = api.schedule(freeze, key="schedule").made[0].id
            restarted = api.restart(v1.Operate(vm="web-1"), key="restart").made[0].id
            api.cancel(restarted, v1.CancelEvent(why="after all not"), key="cancel")
            api.approve(scheduled, v1.ApproveEvent(vm="web-5"), key="approve")
            api.hold(v1.CreateHold(reason="audit"), key="hold-all")
            api.release(v1.ReleaseHold(), key="release-all")
            api.hold(v1.CreateHold(reason="closing", scope="shop"), key="hold")
            api.release(v1.ReleaseHold(scope="shop"), key="release")
            api.delete(v1.Operate(vm="db-0"), key="delete")
            assert made in (None, scheduled)
            return scheduled

        first = say_all(None)
        lines = _asked(place)
        place.killed_and_started()
        assert say_all(first) == first
        place.api.advance("1h")
        assert say_all(first) == first

        assert _asked(place) == lines
        assert place.told(first).count("completed") == 1
        with pytest.raises(NotFound):
            place.api.vm("db-0")
        with pytest.raises(RequestRefused, match="was used for another request"):
            place.api.restart(v1.Operate(vm="web-2"), key="restart")
