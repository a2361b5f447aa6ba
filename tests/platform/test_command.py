"""The command platform: real programs, and what becomes of each way in which they end."""

import asyncio
import errno
import json
import os
import re
import signal
import stat
import textwrap
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn import process
from forewarn.core.event import EventType
from forewarn.core.impact import Done, Failed, NotStarted, Retry, Unknown
from forewarn.platform import command, processes
from forewarn.platform.command import CommandPlatform
from forewarn.platform.limiter import ConcurrencyLimiter
from forewarn.platform.port import Work
from forewarn.settings.schema import CommandSettings

pytestmark = pytest.mark.process

EVENT = "11111111-2222-4333-8444-555555555555"
WORK = Work(
    id=f"{EVENT}/web-0",
    attempt=1,
    event=EVENT,
    type=EventType.REBOOT,
    scope="web",
    vm="web-0",
    vm_id="aaaaaaaa-2222-4333-8444-555555555555",
    host="hv-1",
    duration=timedelta(seconds=9),
    description="New kernel;\n$(reboot) 'now'",
)
REDEPLOY = msgspec.structs.replace(WORK, type=EventType.REDEPLOY)
GUARD = 60

Make = Callable[..., CommandPlatform]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a platform of a shell script; `$HERE` is a directory in which it can leave something."""

    def make(script: str, environ: dict[str, str] | None = None, **settings: Any) -> CommandPlatform:
        program = tmp_path / "maintain"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        found = CommandSettings(program=(str(program), "an argument"))
        known = {"PATH": os.environ["PATH"], "HERE": str(tmp_path)}
        return CommandPlatform(msgspec.structs.replace(found, **settings), tmp_path / "work", known | (environ or {}))

    return make


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD):
        while not fact():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.01)


async def test_program_gets_event_and_vm_as_json_and_as_variables(make: Make, tmp_path: Path) -> None:
    platform = make('cat > "$HERE/given"; env > "$HERE/env"; echo "$0|$1|$#" > "$HERE/arguments"')
    assert await platform.carry_out(WORK) == Done()
    assert json.loads((tmp_path / "given").read_text()) == {
        "phase": "carry-out",
        "impact": f"{EVENT}/web-0",
        "attempt": 1,
        "event": {
            "id": EVENT,
            "type": "Reboot",
            "description": "New kernel;\n$(reboot) 'now'",
            "duration_seconds": 9.0,
        },
        "vm": {"scope": "web", "name": "web-0", "vm_id": WORK.vm_id, "host": "hv-1"},
    }
    variables = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {name: value for name, value in variables.items() if name.startswith("FOREWARN_")} == {
        "FOREWARN_PHASE": "carry-out",
        "FOREWARN_IMPACT": f"{EVENT}/web-0",
        "FOREWARN_ATTEMPT": "1",
        "FOREWARN_EVENT_ID": EVENT,
        "FOREWARN_EVENT_TYPE": "Reboot",
        "FOREWARN_EVENT_DURATION": "9",
        "FOREWARN_EVENT_DESCRIPTION": "New kernel; $(reboot) 'now'",
        "FOREWARN_SCOPE": "web",
        "FOREWARN_VM": "web-0",
        "FOREWARN_VM_ID": WORK.vm_id,
        "FOREWARN_HOST": "hv-1",
    }
    assert (tmp_path / "arguments").read_text() == f"{tmp_path / 'maintain'}|an argument|1\n"


async def test_every_variable_is_in_the_guide(make: Make, tmp_path: Path) -> None:
    platform = make('env > "$HERE/env"')
    await platform.carry_out(WORK)
    guide = (Path(__file__).parents[2] / "docs/howto/run-your-own-program.md").read_text()
    names = [line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()]
    assert [name for name in names if name.startswith("FOREWARN_") and f"`{name}`" not in guide] == []


async def test_program_gets_no_secrets_or_settings_of_the_service(make: Make, tmp_path: Path) -> None:
    own = {"FOREWARN_TOKEN": "secret", "NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "LANG": "C"}
    platform = make('env > "$HERE/env"', environ=own)
    await platform.carry_out(WORK)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names & set(own) == {"LANG"}


ENDINGS = [
    pytest.param(WORK, "exit 0", Done(), id="done"),
    pytest.param(WORK, "echo all is well", Done(output="all is well\n"), id="done, and says so"),
    pytest.param(REDEPLOY, "echo moving; echo hv-7", Done("hv-7", "moving\nhv-7\n"), id="redeployed"),
    pytest.param(REDEPLOY, "exit 0", Done(), id="redeployed to an unknown host"),
    pytest.param(
        REDEPLOY,
        "echo 'host 7'",
        Failed(
            "{program} succeeded, but host 'host 7': use 1 to 128 letters, digits, '.', '_', '-', beginning with a "
            "letter or digit: correct the VM's host, then resolve the event as done",
            "host 7\n",
        ),
        id="redeployed to what is no host",
    ),
    pytest.param(
        WORK,
        "echo one; echo two >&2; echo no such domain >&2; exit 3",
        Failed("{program} ended with 3: no such domain", "one\ntwo\nno such domain\n"),
        id="failed",
    ),
    pytest.param(WORK, "kill -KILL $$", Failed("{program} was ended by SIGKILL"), id="killed"),
    pytest.param(WORK, "kill -40 $$", Failed("{program} was ended by signal 40"), id="ended by a nameless signal"),
    pytest.param(
        WORK,
        "echo host is busy; exit 75",
        Retry(timedelta(seconds=10), "{program} ended with 75: host is busy", "host is busy\n", unavailable=True),
        id="not now",
    ),
]


@pytest.mark.parametrize(("work", "script", "expected"), ENDINGS)
async def test_exit_of_the_program_determines_the_outcome(
    make: Make, tmp_path: Path, work: Work, script: str, expected: Done | Failed | Retry
) -> None:
    outcome = await make(script).carry_out(work)
    if not isinstance(expected, Done):
        expected = msgspec.structs.replace(expected, why=expected.why.format(program="maintain"))
    assert outcome == expected
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda program: program.unlink(), "No such file or directory"),
        (lambda program: program.chmod(0o644), "Permission denied"),
        (lambda program: program.write_bytes(b"\x7fELF"), "Exec format error"),
    ],
    ids=["missing", "not executable", "no program"],
)
async def test_program_that_cannot_be_started_is_a_failure_with_a_reason(
    make: Make, tmp_path: Path, break_it: Callable[[Path], object], why: str
) -> None:
    platform = make("exit 0")
    break_it(tmp_path / "maintain")
    assert await platform.carry_out(WORK) == Failed(
        f"maintain cannot be started: {why} ({tmp_path / 'maintain'})", unavailable=True
    )
    assert await platform.probe(WORK) == Unknown(f"cannot probe with maintain: {why} ({tmp_path / 'maintain'})")


async def test_pauses_double_up_to_the_longest_and_attempts_are_limited(make: Make) -> None:
    platform = make("exit 75", attempts=6, first_pause=timedelta(seconds=10), longest_pause=timedelta(minutes=1))
    outcomes = [await platform.carry_out(msgspec.structs.replace(WORK, attempt=n)) for n in range(1, 7)]
    pauses = [outcome.after.total_seconds() if isinstance(outcome, Retry) else None for outcome in outcomes]
    assert pauses == [10, 20, 40, 60, 60, None]
    assert isinstance(outcomes[-1], Failed)
    assert outcomes[-1].why.endswith("ended with 75, in attempt 6 of 6")


async def test_manual_retry_has_all_attempts_again(make: Make) -> None:
    platform = make("exit 75", attempts=2)
    kinds = [type(await platform.carry_out(msgspec.structs.replace(WORK, attempt=n))) for n in range(1, 6)]
    assert kinds == [Retry, Failed, Retry, Failed, Retry]


PROBES = [
    pytest.param("exit 0", Done(), id="done"),
    pytest.param("echo hv-9", Done("hv-9", "hv-9\n"), id="done elsewhere"),
    pytest.param("exit 75", NotStarted(), id="not begun"),
    pytest.param(
        "echo who knows >&2; exit 1",
        Unknown("the probe by {program} ended with 1: who knows", "who knows\n"),
        id="unknown",
    ),
]


@pytest.mark.parametrize(("script", "expected"), PROBES)
async def test_program_is_probed_after_a_crash(
    make: Make, tmp_path: Path, script: str, expected: Done | NotStarted | Unknown
) -> None:
    platform = make(f'[ "$FOREWARN_PHASE" = probe ] || exit 9\ngrep -q \'"phase":"probe"\' || exit 9\n{script}')
    if isinstance(expected, Unknown):
        expected = msgspec.structs.replace(expected, why=expected.why.format(program="maintain"))
    assert await platform.probe(REDEPLOY) == expected


TIMED_OUT = """
if [ "$FOREWARN_PHASE" = probe ]; then exit $ANSWER; fi
echo begun
trap '' TERM
(trap '' TERM; sleep 1000) &
echo $! > "$HERE/child"
wait; sleep 1000
"""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("0", Done(output="begun\n")),
        ("75", Failed("{why}; the work had not begun", "begun\n")),
        ("1", Unknown("{why}; whether the work was done is unknown", "begun\n")),
    ],
    ids=["done", "not begun", "unknown"],
)
async def test_program_above_its_time_limit_is_ended_with_its_children_and_probed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: Done | Failed | Unknown
) -> None:
    monkeypatch.setattr(processes, "GRACE", timedelta(seconds=0.1))
    platform = make(TIMED_OUT, environ={"ANSWER": answer}, time_limit=timedelta(seconds=1))
    outcome = await platform.carry_out(WORK)
    why = "maintain took longer than 1s and was ended"
    if not isinstance(expected, Done):
        expected = msgspec.structs.replace(expected, why=expected.why.format(why=why))
    assert outcome == expected
    child = int((tmp_path / "child").read_text())
    await until(lambda: not process._is_alive(child))


async def test_probe_above_its_time_limit_is_unknown(make: Make, tmp_path: Path) -> None:
    platform = make("exec sleep 1000", probe_limit=timedelta(milliseconds=200))
    why = "maintain did not answer within 0.2s"
    assert await platform.probe(WORK) == Unknown(why)


LASTING = """
if [ "$FOREWARN_PHASE" = probe ]; then test -e "$HERE/done" || exit 75; exit 0; fi
echo begun
echo $$ > "$HERE/pid.tmp"; mv "$HERE/pid.tmp" "$HERE/pid"
while ! test -e "$HERE/go"; do sleep 0.02; done
echo still here
touch "$HERE/done"
"""


async def test_program_outlives_the_service_and_is_waited_for_by_the_next(make: Make, tmp_path: Path) -> None:
    first = asyncio.create_task(make(LASTING).carry_out(WORK))
    await until((tmp_path / "pid").exists)
    first.cancel()
    await asyncio.wait([first])
    assert process._is_alive(int((tmp_path / "pid").read_text()))
    second = asyncio.create_task(make(LASTING).probe(WORK))
    await asyncio.sleep(0)
    assert not second.done()
    (tmp_path / "go").touch()
    async with asyncio.timeout(GUARD):
        assert await second == Done(output="begun\nstill here\n")
    assert list((tmp_path / "work").iterdir()) == []


async def test_program_that_outlives_its_service_still_has_its_time_limit(make: Make, tmp_path: Path) -> None:
    first = asyncio.create_task(make(LASTING).carry_out(WORK))
    await until((tmp_path / "pid").exists)
    first.cancel()
    await asyncio.wait([first])
    async with asyncio.timeout(GUARD):
        assert await make(LASTING, time_limit=timedelta(milliseconds=10)).probe(WORK) == NotStarted()
    assert not process._is_alive(int((tmp_path / "pid").read_text()))


async def test_another_program_with_the_same_pid_is_not_waited_for(make: Make, tmp_path: Path) -> None:
    platform = make("exit 75")
    (tmp_path / "work").mkdir()
    note = {"pid": os.getpid(), "born": "1", "since": "2026-03-02T10:00:00Z", "attempt": 1}
    (tmp_path / "work" / f"{EVENT}.web-0.carry-out.note").write_text(json.dumps(note))
    async with asyncio.timeout(GUARD):
        assert await platform.probe(WORK) == NotStarted()


async def test_number_of_running_programs_is_limited(make: Make, tmp_path: Path) -> None:
    platform = make('touch "$HERE/begun-$FOREWARN_VM"; while ! test -e "$HERE/go"; do sleep 0.02; done', at_once=2)
    works = [msgspec.structs.replace(WORK, vm=f"web-{n}", id=f"{EVENT}/web-{n}") for n in range(5)]
    running = [asyncio.create_task(platform.carry_out(work)) for work in works]
    await until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    platform.reload(msgspec.structs.replace(platform.settings, at_once=3))
    await until(lambda: len(list(tmp_path.glob("begun-*"))) == 3)
    (tmp_path / "go").touch()
    async with asyncio.timeout(GUARD):
        assert await asyncio.gather(*running) == [Done()] * 5


async def test_cancelled_waiter_leaves_its_slot_to_the_next() -> None:
    places, order = ConcurrencyLimiter(1), []

    async def take(name: str) -> None:
        async with places.slot():
            order.append(name)

    async with asyncio.timeout(GUARD), places.slot():
        first, second = asyncio.create_task(take("first")), asyncio.create_task(take("second"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
    async with asyncio.timeout(GUARD):
        await second
    assert order == ["second"]


async def test_endless_output_is_kept_short(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_OUTPUT", 10_000)
    monkeypatch.setattr(process, "KEPT_OUTPUT", 100)
    platform = make('yes | head -c 100000; touch "$HERE/written"; while ! test -e "$HERE/go"; do sleep 0.02; done')
    running = asyncio.create_task(platform.carry_out(WORK))
    await until((tmp_path / "written").exists)
    output = next((tmp_path / "work").glob("*.out"))
    await until(lambda: output.stat().st_blocks * 512 <= 10_000)
    (tmp_path / "go").touch()
    outcome = await running
    assert isinstance(outcome, Done)
    assert len(outcome.output) <= 101


async def test_files_are_readable_only_by_their_owner(make: Make, tmp_path: Path) -> None:
    platform = make('while ! test -e "$HERE/go"; do sleep 0.02; done')
    running = asyncio.create_task(platform.carry_out(WORK))
    await until(lambda: any((tmp_path / "work").glob("*.note")))
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) == 0o700
    (tmp_path / "go").touch()
    await running


async def test_program_has_default_signal_handlers(make: Make, tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a pipeline in the operator's script must end as it does in a shell."""
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    outcome = await make("yes | head -n 1 > /dev/null; grep SigIgn /proc/$$/status").carry_out(WORK)
    assert isinstance(outcome, Done)
    ignored = int(outcome.output.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


VIRSH = """#!/bin/sh
echo "$@" >> "$HERE/calls"
[ "$1" != domstate ] || [ ! -e "$HERE/busy" ]
"""

CALLS = {
    EventType.FREEZE: ["suspend web-0", "resume web-0"],
    EventType.REBOOT: ["reboot web-0"],
    EventType.REDEPLOY: ["migrate --live web-0 qemu+ssh://hv-9/system"],
    EventType.PREEMPT: ["destroy web-0"],
    EventType.TERMINATE: ["destroy web-0"],
}


@pytest.fixture
def guide(make: Make, tmp_path: Path) -> CommandPlatform:
    """The program of the guide, with a virsh that only writes down what it is asked for."""
    page = (Path(__file__).parents[2] / "docs/howto/run-your-own-program.md").read_text()
    (script,) = re.findall(r"^   ```sh\n   #!/bin/sh\n(.*?)^   ```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/virsh").write_text(VIRSH)
    (tmp_path / "bin/virsh").chmod(0o755)
    environ = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "STATE_DIRECTORY": str(tmp_path),
        "SPARE_HOST": "hv-9",
    }
    return make(textwrap.dedent(script), environ=environ)


@pytest.mark.parametrize("type_", CALLS)
async def test_program_of_the_guide_carries_out_the_event(
    guide: CommandPlatform, tmp_path: Path, type_: EventType
) -> None:
    work = msgspec.structs.replace(WORK, type=type_, duration=timedelta(milliseconds=10))
    assert await guide.probe(work) == NotStarted()
    host = "hv-9" if type_ is EventType.REDEPLOY else None
    done = await guide.carry_out(work)
    assert (type(done), getattr(done, "host", "")) == (Done, host), done
    assert (tmp_path / "calls").read_text().splitlines() == ["domstate web-0", *CALLS[type_]]
    probed = await guide.probe(work)
    assert isinstance(probed, Done)
    assert probed.host == host


async def test_program_of_the_guide_waits_for_a_vm_that_cannot_be_asked(guide: CommandPlatform, tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    assert isinstance(await guide.carry_out(WORK), Retry)
    assert await guide.probe(WORK) == NotStarted()


async def test_program_whose_note_cannot_be_written_is_still_waited_for(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs: to call it one that cannot be started would have a person start it twice."""
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.suffix == ".note":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert await make('touch "$HERE/done"; echo well').carry_out(WORK) == Done(output="well\n")
    assert (tmp_path / "done").exists()


async def test_files_that_cannot_be_removed_do_not_fail_completed_work(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Path.unlink

    def read_only(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            raise OSError(errno.EROFS, "Read-only file system")
        remove(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", read_only)
    assert await make("exit 0").carry_out(WORK) == Done()


async def test_variables_of_the_service_that_are_not_utf_8_reach_the_program_as_they_are(
    make: Make, tmp_path: Path
) -> None:
    platform = make('printf %s "$CITY" > "$HERE/city"', environ={"CITY": "Z\udcfcrich"})
    assert await platform.carry_out(WORK) == Done()
    assert (tmp_path / "city").read_bytes() == b"Z\xfcrich"


async def test_work_without_a_free_slot_is_postponed_and_loses_no_attempt(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, after a day in the queue, its outcome would count as unknown."""
    platform = make(LASTING, at_once=1, attempts=1)
    running = asyncio.create_task(platform.carry_out(WORK))
    await until((tmp_path / "pid").exists)
    other = msgspec.structs.replace(WORK, vm="web-1", id=f"{EVENT}/web-1")
    monkeypatch.setattr(command, "QUEUE_TIMEOUT", 0.01)
    put_off = [await platform.carry_out(msgspec.structs.replace(other, attempt=n)) for n in (1, 2)]
    assert put_off == [Retry(platform.settings.first_pause, "the limit of 1 running programs is reached")] * 2
    (tmp_path / "go").touch()
    async with asyncio.timeout(GUARD):
        assert await running == Done(output="begun\nstill here\n")
    monkeypatch.setattr(command, "QUEUE_TIMEOUT", GUARD)
    assert platform._retry_later(msgspec.structs.replace(other, attempt=3), "busy", "") == Failed(
        "busy, in attempt 1 of 1", "", unavailable=True
    )


async def test_thousands_of_cancelled_waiters_leave_no_trace() -> None:
    places = ConcurrencyLimiter(1)

    async def take() -> None:
        async with places.slot():
            pass

    async with asyncio.timeout(GUARD):
        async with places.slot():
            waiting = [asyncio.create_task(take()) for _ in range(20_000)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        await take()
    assert not places._waiting
