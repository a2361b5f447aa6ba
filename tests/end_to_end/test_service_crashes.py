"""The service is killed in every state of an event and continues: nothing is lost or done twice."""

from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.event import EventType
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
from tests.end_to_end.service_process import ServiceProcess, run_service_process

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


def schedule(service: ServiceProcess, type_: EventType, vm: str, **more: object) -> str:
    ask = v1.ScheduleEvents(type=type_, vms=(vm,), **more)  # type: ignore[arg-type]  # fields chosen by each test
    (made,) = service.api.schedule(ask).created
    return made.id


def test_restarted_service_continues_from_every_state(tmp_path: Path) -> None:
    with run_service_process(tmp_path) as service:
        ended = schedule(service, EventType.FREEZE, "FrontEnd_IN_1", notice="0s", duration="1s")
        service.api.advance()
        service.api.hold(v1.CreateHold(reason="closing", scope="db-0"))
        held = schedule(service, EventType.REBOOT, "db-0")
        service.approve("db-0/db-0", held)
        scheduled = schedule(service, EventType.FREEZE, "BackEnd_IN_0", notice="20m")
        begun = schedule(service, EventType.REBOOT, "web-0", failure=True)
        service.wait_for(EntryKind.IMPACT_BEGUN, begun)
        # Two impacts never run on one VM at a time: this one has started, and its impact has not begun.
        started = schedule(service, EventType.REDEPLOY, "web-0", failure=True)
        before = {event.id: event for event in service.api.events()}
        documents = {vm: service.document(vm) for vm in ("db-0/db-0", "shop/BackEnd_IN_0", "web/web-0")}
        assert service.impact(started).state is ImpactState.PENDING

        service.crash_and_restart()

        assert {vm: service.document(vm) for vm in documents} == documents
        assert service.journal_kinds(ended) == ["scheduled", "started", *DONE]
        after = {event.id: event for event in service.api.events()}
        assert {id_: after[id_] for id_ in (held, scheduled, started)} == {
            id_: before[id_] for id_ in (held, scheduled, started)
        }
        service.api.advance("10m")
        # Simulated work is lost with the service, so it starts again.
        assert service.journal_kinds(begun) == ["started", "impact-begun", *DONE]
        assert service.journal_kinds(started) == ["started", *DONE]
        assert [event.id for event in service.api.events()] == [held, scheduled]
        service.api.release(v1.ReleaseHold(scope="db-0"))
        service.api.advance("1h")
        assert service.journal_kinds(held) == ["scheduled", "approved", "started", *DONE]
        assert service.journal_kinds(scheduled) == ["scheduled", "started", *DONE]


def test_global_hold_and_held_events_survive(tmp_path: Path) -> None:
    with run_service_process(tmp_path) as service:
        service.api.hold(v1.CreateHold(reason="audit"))
        event = schedule(service, EventType.FREEZE, "db-0")
        service.api.advance("1h")
        holds, now = service.api.holds(), service.api.clock().now

        service.crash_and_restart()

        assert (service.api.holds(), service.api.clock().now) == (holds, now)
        service.api.advance("1h")
        (waiting,) = service.api.events()
        assert (waiting.status, waiting.explanation) == ("Scheduled", ["all maintenance is held by admin: audit"])
        service.api.release(v1.ReleaseHold())
        service.api.advance("1h")
        assert service.journal_kinds(event) == ["scheduled", "started", *DONE]


def test_operator_resolves_failed_and_unknown_impacts_across_crashes(tmp_path: Path) -> None:
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
    with run_service_process(tmp_path, "--config", str(settings)) as service:
        answer("carry-out", "db-0", 3)
        failed = schedule(service, EventType.REBOOT, "db-0", failure=True)
        service.wait_for(EntryKind.IMPACT_FAILED, failed)
        answer("carry-out", "FrontEnd_IN_0", 75)
        waiting = schedule(service, EventType.REBOOT, "FrontEnd_IN_0", failure=True)
        retry_at = service.wait_for(EntryKind.IMPACT_RETRY, waiting).facts["retry_at"]
        answer("probe", "web-0", 1)
        (tmp_path / "carry-out.web-0.wait").touch()
        unknown = schedule(service, EventType.REBOOT, "web-0", failure=True)
        service.wait_for(EntryKind.IMPACT_BEGUN, unknown)

        service.kill()
        (tmp_path / "carry-out.web-0.wait").unlink()
        service.start()
        service.wait_for(EntryKind.IMPACT_UNKNOWN, unknown)
        service.crash_and_restart()

        assert service.impact(failed).state is ImpactState.FAILED
        assert service.impact(waiting).state is ImpactState.RETRY
        assert service.impact(unknown).state is ImpactState.UNKNOWN
        assert service.wait_for(EntryKind.IMPACT_RETRY, waiting).facts["retry_at"] == retry_at
        answer("carry-out", "FrontEnd_IN_0", 0)
        service.api.advance("10m")
        assert service.api.event(waiting).outcome is EventOutcome.COMPLETED
        assert calls("FrontEnd_IN_0") == ["carry-out", "carry-out"]

        service.api.resolve(unknown, v1.ResolveImpact(done=True, reason="it is up, I looked"))
        assert service.api.event(unknown).outcome is EventOutcome.COMPLETED
        assert calls("web-0") == ["carry-out", "probe"]

        service.api.retry(failed, v1.RetryImpact(reason="once more"), key="again")
        service.api.advance("1s")
        assert (service.impact(failed).state, calls("db-0")) == (ImpactState.FAILED, ["carry-out", "carry-out"])
        service.crash_and_restart()
        service.api.retry(failed, v1.RetryImpact(reason="once more"), key="again")
        service.api.advance("1s")
        assert calls("db-0") == ["carry-out", "carry-out"]
        given_up = service.api.resolve(failed, v1.ResolveImpact(done=False, reason="scrapped"))
        assert given_up.outcome is EventOutcome.FAILED
        assert service.document("db-0/db-0")["Events"] == []


def _asked(service: ServiceProcess) -> list[tuple[int, EntryKind]]:
    """Return the journal lines of the requests, without those of the clock, which the test advances."""
    entries = (entry for entry in service.api.journal() if entry.actor == "admin")
    return [(entry.position, entry.action) for entry in entries if entry.action is not EntryKind.CLOCK_MOVED]


def test_requests_repeated_after_a_crash_have_one_effect(tmp_path: Path) -> None:
    with run_service_process(tmp_path) as service:
        freeze = v1.ScheduleEvents(type=EventType.FREEZE, vms=("web-0",), notice="20m")

        def say_all(made: str | None) -> str:
            """Send every request with its idempotency key; return the event."""
            api = service.api
            scheduled = api.schedule(freeze, key="schedule").created[0].id
            restarted = api.restart(v1.Operate(vm="web-1"), key="restart").created[0].id
            api.cancel(restarted, v1.CancelEvent(reason="after all not"), key="cancel")
            api.approve(scheduled, v1.ApproveEvent(vm="web-5"), key="approve")
            api.hold(v1.CreateHold(reason="audit"), key="hold-all")
            api.release(v1.ReleaseHold(), key="release-all")
            api.hold(v1.CreateHold(reason="closing", scope="shop"), key="hold")
            api.release(v1.ReleaseHold(scope="shop"), key="release")
            api.delete(v1.Operate(vm="db-0"), key="delete")
            assert made in (None, scheduled)
            return scheduled

        first = say_all(None)
        lines = _asked(service)
        service.crash_and_restart()
        assert say_all(first) == first
        service.api.advance("1h")
        assert say_all(first) == first

        assert _asked(service) == lines
        assert service.journal_kinds(first).count("completed") == 1
        with pytest.raises(NotFound):
            service.api.vm("db-0")
        with pytest.raises(RequestRefused, match="was used for another request"):
            service.api.restart(v1.Operate(vm="web-2"), key="restart")
