"""Maintenance by the operator's program with the real service: success, failure, interruption and probe."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.cli.output import moment_text
from forewarn.cli.views.event import blockers_text
from forewarn.core.event import EventType
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from tests.support.program import GUARD
from tests.support.serve_process import SETTINGS, ServeProcess, run_serve

SETTINGS = (
    SETTINGS.replace('"simulated"', '"command"') + '[command]\nprogram = ["{program}"]\nfirst_pause = "0.1s"\n{more}\n'
)


def settings(directory: Path, script: str, more: str = "") -> str:
    """Write the operator's program, and settings that name it."""
    program = directory / "maintain"
    program.write_text(f"#!/bin/sh\ncd {directory}\n{script}\n")
    program.chmod(0o755)
    return SETTINGS.format(program=program, more=more)


def fail(service: ServeProcess, vm: str, type_: EventType = EventType.REBOOT) -> str:
    """Schedule an event that starts immediately; return its id."""
    (made,) = service.api.fail(v1.Fail(vms=(vm,), type=type_)).created
    return made.id


def until(fact: Callable[[], object]) -> None:
    end = time.monotonic() + GUARD
    while not fact():
        assert time.monotonic() < end, "timeout: the condition never held"
        time.sleep(0.02)


def ended(service: ServeProcess, event: str) -> v1.EventDetail:
    until(lambda: service.api.event(event).outcome is not None)
    return service.api.event(event)


def stuck(service: ServeProcess, event: str, state: ImpactState) -> v1.Impact:
    def impact() -> v1.Impact | None:
        detail = service.api.event(event)
        return detail.event.impacts[0] if detail.event is not None and detail.event.impacts else None

    until(lambda: (now := impact()) is not None and now.state is state)
    found = impact()
    assert found is not None
    return found


def facts(detail: v1.EventDetail, did: EntryKind) -> list[dict[str, str]]:
    return [entry.facts for entry in detail.journal if entry.action is did]


def test_program_does_the_work_and_its_output_is_in_the_journal(tmp_path: Path) -> None:
    text = settings(tmp_path, r'printf "restarting %s\n\033[31mred\n" "$FOREWARN_VM"')
    with run_serve(tmp_path, text) as service:
        detail = ended(service, fail(service, "db"))
        (done,) = facts(detail, EntryKind.IMPACT_DONE)
        assert done["output"] == "restarting db\n [31mred"


def test_redeployed_vm_gets_the_host_that_the_program_prints(tmp_path: Path) -> None:
    with run_serve(tmp_path, settings(tmp_path, "echo moving; echo hv-9")) as service:
        ended(service, fail(service, "web-0", EventType.REDEPLOY))
        assert service.api.vm("web-0").host == "hv-9"


def test_program_that_exits_with_75_is_called_again(tmp_path: Path) -> None:
    script = 'echo . >> tries; [ "$(wc -l < tries)" -ge 3 ] || { echo busy; exit 75; }; echo done'
    with run_serve(tmp_path, settings(tmp_path, script)) as service:
        detail = ended(service, fail(service, "db"))
        assert [each["output"] for each in facts(detail, EntryKind.IMPACT_RETRY)] == ["busy", "busy"]
        assert len(facts(detail, EntryKind.IMPACT_BEGUN)) == 3


def test_postponed_work_shows_its_time_and_reason(tmp_path: Path) -> None:
    patient = settings(tmp_path, "exit 75").replace('first_pause = "0.1s"', 'first_pause = "1h"\nlongest_pause = "1h"')
    with run_serve(tmp_path, patient) as service:
        event = fail(service, "db")
        put_off = stuck(service, event, ImpactState.RETRY)
        (shown,) = service.api.events()
    assert put_off.retry_at is not None
    moment = moment_text(put_off.retry_at)
    assert blockers_text(shown) == f"the work on db, postponed until {moment}: maintain ended with 75; unannounced"


def test_operator_retries_and_resolves_a_failure(tmp_path: Path) -> None:
    script = "echo no such domain >&2; [ -e fixed ] || exit 3"
    with run_serve(tmp_path, settings(tmp_path, script)) as service:
        event = fail(service, "db")
        assert "ended with 3" in stuck(service, event, ImpactState.FAILED).reason
        service.api.retry(event, v1.RetryImpact())
        until(lambda: len(facts(service.api.event(event), EntryKind.IMPACT_FAILED)) == 2)
        (tmp_path / "fixed").touch()
        service.api.retry(event, v1.RetryImpact())
        detail = ended(service, event)
        assert [each["output"] for each in facts(detail, EntryKind.IMPACT_FAILED)] == ["no such domain"] * 2


def test_missing_program_is_a_failure_that_can_be_retried(tmp_path: Path) -> None:
    text = settings(tmp_path, "echo here I am")
    (tmp_path / "maintain").rename(tmp_path / "away")
    with run_serve(tmp_path, text) as service:
        event = fail(service, "db")
        stuck(service, event, ImpactState.FAILED)
        (failed,) = [each for each in service.api.event(event).journal if each.action is EntryKind.IMPACT_FAILED]
        assert failed.reason == f"maintain cannot be started: No such file or directory ({tmp_path / 'maintain'})"
        (tmp_path / "away").rename(tmp_path / "maintain")
        service.api.retry(event, v1.RetryImpact())
        ended(service, event)


def test_reload_changes_the_program(tmp_path: Path) -> None:
    with run_serve(tmp_path, settings(tmp_path, "exit 3")) as service:
        event = fail(service, "db")
        stuck(service, event, ImpactState.FAILED)
        other = tmp_path / "other"
        other.write_text("#!/bin/sh\necho the other one\n")
        other.chmod(0o755)
        (tmp_path / "forewarn.toml").write_text(SETTINGS.format(program=other, more=""))
        service.process.send_signal(signal.SIGHUP)
        assert service.wait_for("settings reloaded")["changed"] == ["command.program"]
        service.api.retry(event, v1.RetryImpact())
        assert [each["output"] for each in facts(ended(service, event), EntryKind.IMPACT_DONE)] == ["the other one"]


LASTING = """
echo "$FOREWARN_PHASE" >> calls
if [ "$FOREWARN_PHASE" = probe ]; then cat answer-said 2>/dev/null; exit "$(cat answer)"; fi
touch begun
while ! test -e go; do sleep 0.02; done
echo finished
"""


def interrupted(directory: Path, number: int, answer: str, *, finish: bool) -> tuple[str, str]:
    """Start work on a VM, and stop the service while the program runs; return settings and event."""
    (directory / "answer").write_text(answer)
    text = settings(directory, LASTING)
    with run_serve(directory, text) as service:
        event = fail(service, "db")
        until((directory / "begun").exists)
        assert service.stop(number) == (0 if number == signal.SIGTERM else -number)
    assert len(programs(directory)) == 1, "the program was ended with its service"
    if finish:
        (directory / "go").touch()
        until(lambda: not programs(directory))
    return text, event


def programs(directory: Path) -> list[str]:
    """Return the processes of the operator's program, without forks of its shell that are about to exec `sleep`."""
    listed = subprocess.run(["ps", "-ewwo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [
        line for line in listed.splitlines() if str(directory / "maintain") in line and re.match("[^Z][<N]?s", line)
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("finish", [True, False], ids=["program exited", "program still runs"])
def test_work_finished_during_the_downtime_is_not_repeated(tmp_path: Path, number: int, finish: bool) -> None:
    text, event = interrupted(tmp_path, number, "0", finish=finish)
    with run_serve(tmp_path, text) as service:
        if not finish:
            assert (tmp_path / "calls").read_text().split() == ["carry-out"]
            (tmp_path / "go").touch()
        detail = ended(service, event)
        assert [each["output"] for each in facts(detail, EntryKind.IMPACT_DONE)] == ["finished"]
    assert (tmp_path / "calls").read_text().split() == ["carry-out", "probe"]


def test_work_that_had_not_begun_is_carried_out(tmp_path: Path) -> None:
    text, event = interrupted(tmp_path, signal.SIGKILL, "75", finish=True)
    with run_serve(tmp_path, text) as service:
        ended(service, event)
    assert (tmp_path / "calls").read_text().split() == ["carry-out", "probe", "carry-out"]


def test_unknown_outcome_waits_for_an_operator(tmp_path: Path) -> None:
    text, event = interrupted(tmp_path, signal.SIGKILL, "1", finish=True)
    with run_serve(tmp_path, text) as service:
        assert "the probe by maintain ended with 1" in stuck(service, event, ImpactState.UNKNOWN).reason
        service.api.resolve(event, v1.ResolveImpact(reason="looked at it: it has been restarted", done=True))
        assert ended(service, event).outcome == "completed"
    assert (tmp_path / "calls").read_text().split() == ["carry-out", "probe"]


def test_unknown_outcome_is_repeated_if_the_program_is_repeatable(tmp_path: Path) -> None:
    text, event = interrupted(tmp_path, signal.SIGKILL, "1", finish=True)
    with run_serve(tmp_path, text + "repeatable = true\n") as service:
        ended(service, event)
    assert (tmp_path / "calls").read_text().split() == ["carry-out", "probe", "carry-out"]
