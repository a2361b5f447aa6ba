"""The exec handler: input of programs, exit codes, and that no program outlives its time limit."""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn import process
from forewarn.agent.handlers.base import CallResult, Done, Failed, Phase, Retry
from forewarn.agent.handlers.env import event_variables
from forewarn.agent.handlers.exec import ExecHandler, hooks_of
from forewarn.agent.handlers.programs import HandlerPrograms
from forewarn.agent.settings import ExecSettings
from forewarn.client.document import Status
from forewarn.clock import ManualClock
from tests.agent.handlers.handler_contexts import EVENT, NO_NOTES, NOW, PREPARE, RECOVER, handler_context

GUARD = 60

Make = Callable[..., ExecHandler]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Create handlers of shell scripts; `$HERE` is a directory for their output."""

    def make(prepare: str = "", recover: str = "", **environ: str) -> ExecHandler:
        scripts = {"prepare": prepare, "recover": recover}
        own: dict[str, Any] = {
            call: (str(script(tmp_path / call, text)), "an argument") for call, text in scripts.items() if text
        }
        known = {"PATH": os.environ["PATH"], "HERE": str(tmp_path)} | environ
        programs = HandlerPrograms(tmp_path / "programs", "own")
        return ExecHandler(ExecSettings(name="own", **own), programs, environ=known, clock=ManualClock(NOW))

    return make


@pytest.fixture
def hooks(tmp_path: Path) -> ExecHandler:
    environ = {"PATH": os.environ["PATH"], "HERE": str(tmp_path)}
    settings = ExecSettings(name="hooks", hooks=tmp_path / "hooks.d")
    programs = HandlerPrograms(tmp_path / "programs", "hooks")
    return ExecHandler(settings, programs, environ=environ, clock=ManualClock(NOW))


def variables(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD):
        while not fact():  # noqa: ASYNC110  # files can only be polled
            await asyncio.sleep(0.01)


@pytest.mark.process
async def test_program_gets_the_event_as_json_on_stdin(make: Make, tmp_path: Path) -> None:
    assert await make('cat > "$HERE/given"').prepare(PREPARE) == Done()
    assert json.loads((tmp_path / "given").read_text()) == {
        "EventId": EVENT.id,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0", "web_1"],
        "NotBefore": "Mon, 16 Nov 2026 10:15:00 GMT",
        "Description": EVENT.description,
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }


@pytest.mark.process
async def test_program_gets_the_event_in_environment_variables(make: Make, tmp_path: Path) -> None:
    handler = make('env > "$HERE/env"; echo "$1" > "$HERE/argument"')
    context = msgspec.structs.replace(PREPARE, attempt=3)
    assert await handler.prepare(context) == Done()
    assert (tmp_path / "argument").read_text() == "an argument\n"
    received = variables(tmp_path / "env")
    expected = event_variables(context, NOW)
    assert {name: received.get(name) for name in expected} == expected


@pytest.mark.process
async def test_unknown_values_are_empty(make: Make, tmp_path: Path) -> None:
    event = msgspec.structs.replace(
        EVENT, status=Status.STARTED, not_before=None, duration=None, source=None, description=None
    )
    handler = make(recover='cat > "$HERE/given"; env > "$HERE/env"')
    assert await handler.recover(handler_context(Phase.RECOVER, event=event, deadline=None, is_leader=False)) == Done()
    told = variables(tmp_path / "env")
    empty = ("EVENT_NOTBEFORE", "EVENT_SOURCE", "EVENT_DESCRIPTION", "FOREWARN_DEADLINE", "FOREWARN_SECONDS_LEFT")
    assert [told[name] for name in empty] == [""] * 5
    assert (told["EVENT_DURATION"], told["EVENT_STATUS"], told["FOREWARN_LEADER"]) == ("-1", "Started", "no")
    given = json.loads((tmp_path / "given").read_text())
    assert (given["NotBefore"], given["DurationInSeconds"]) == ("", -1)


@pytest.mark.process
async def test_agent_settings_are_not_passed_to_programs(make: Make, tmp_path: Path) -> None:
    own = {"FOREWARN_TOKEN": "t0ken", "FOREWARN_AGENT_STATE": "/x", "NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1"}
    handler = make('env > "$HERE/env"', **own, EVENT_OTHER="of somebody else", LANG="C.UTF-8")
    assert await handler.prepare(PREPARE) == Done()
    told = variables(tmp_path / "env")
    assert not {*own, "EVENT_OTHER"} & set(told)
    assert told["LANG"] == "C.UTF-8"


ENDS: dict[str, tuple[str, CallResult]] = {
    "0 is done": ("exit 0", Done()),
    "75 is retried": ("echo busy; exit 75", Retry("prepare ended with 75: busy")),
    "1 is failed": ("echo first; echo 'no disk' >&2; exit 1", Failed("prepare ended with 1: no disk")),
    "any other code is failed": ("exit 200", Failed("prepare ended with 200")),
    "a signal is failed": ("kill -9 $$", Failed("prepare was ended by SIGKILL")),
    "output is reduced to one printable line": (
        "printf 'a\\033[31mb\\001c\\n'; exit 1",
        Failed("prepare ended with 1: a [31mb c"),
    ),
    "errors may be written to /dev/stderr": (
        "echo 'no disk' > /dev/stderr; exit 1",
        Failed("prepare ended with 1: no disk"),
    ),
}


@pytest.mark.process
@pytest.mark.parametrize(("text", "ended"), ENDS.values(), ids=ENDS)
async def test_exit_code_decides_the_result(make: Make, text: str, ended: CallResult) -> None:
    assert await make(text).prepare(PREPARE) == ended


async def test_call_without_a_program_does_nothing(make: Make) -> None:
    handler = make("exit 1")
    assert (await handler.recover(RECOVER), await handler.notify(handler_context(Phase.NOTICE))) == (Done(), Done())


@pytest.mark.process
async def test_missing_program_fails(tmp_path: Path) -> None:
    handler = ExecHandler(ExecSettings(name="own", prepare=(str(tmp_path / "nothing"),)), NO_NOTES)
    ended = await handler.prepare(PREPARE)
    assert isinstance(ended, Failed)
    assert f"cannot start {tmp_path / 'nothing'}" in ended.reason


@pytest.mark.process
async def test_file_that_is_not_executable_fails(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    path.chmod(0o755)
    assert isinstance(
        await ExecHandler(ExecSettings(name="own", prepare=(str(path),)), NO_NOTES).prepare(PREPARE), Failed
    )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.process
async def test_cancelled_program_is_ended_with_its_children(make: Make, tmp_path: Path) -> None:
    handler = make('sleep 1000 & echo "$$ $!" > "$HERE/new"; mv "$HERE/new" "$HERE/pids"; wait')
    running = asyncio.create_task(handler.prepare(PREPARE))
    await until((tmp_path / "pids").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await until(lambda: not any(map(is_alive, pids)))


@pytest.mark.process
async def test_program_that_ignores_sigterm_is_killed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", timedelta(seconds=0.05))
    handler = make('trap "" TERM; echo $$ > "$HERE/new"; mv "$HERE/new" "$HERE/pid"; while :; do sleep 1000; done')
    running = asyncio.create_task(handler.prepare(PREPARE))
    await until((tmp_path / "pid").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_alive(int((tmp_path / "pid").read_text()))


@pytest.mark.process
async def test_program_is_killed_even_if_the_wait_is_cancelled(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", timedelta(seconds=0.5))
    handler = make('trap "" TERM; echo $$ > "$HERE/new"; mv "$HERE/new" "$HERE/pid"; while :; do sleep 1000; done')
    running = asyncio.create_task(handler.prepare(PREPARE))
    await until((tmp_path / "pid").exists)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # it was reaped, too


@pytest.mark.process
async def test_unkillable_program_does_not_block_the_agent(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", timedelta(seconds=0.01))
    is_released = False
    has_exited = process.Process.has_exited
    monkeypatch.setattr(process.Process, "has_exited", lambda program: is_released and has_exited(program))
    handler = make('touch "$HERE/begun"; exec sleep 1000')
    running = asyncio.create_task(handler.prepare(PREPARE))
    await until((tmp_path / "begun").exists)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=0.2)
    assert not done
    is_released = True
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.process
async def test_cancelled_program_may_clean_up(make: Make, tmp_path: Path) -> None:
    handler = make('trap \'touch "$HERE/tidy"; exit 0\' TERM; touch "$HERE/begun"; while :; do sleep 0.01; done')
    running = asyncio.create_task(handler.prepare(PREPARE))
    await until((tmp_path / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (tmp_path / "tidy").exists()


@pytest.mark.process
async def test_background_child_is_not_waited_for_and_keeps_running(make: Make, tmp_path: Path) -> None:
    handler = make('(until [ -e "$HERE/go" ]; do sleep 0.01; done; echo late; touch "$HERE/lived") & exit 0')
    async with asyncio.timeout(GUARD):
        assert await handler.prepare(PREPARE) == Done()
    (tmp_path / "go").touch()
    await until((tmp_path / "lived").exists)


@pytest.mark.process
async def test_output_of_a_background_child_is_discarded(make: Make, tmp_path: Path) -> None:
    late = 'until [ -e "$HERE/go" ]; do sleep 0.01; done; /bin/echo late && touch "$HERE/kept"; touch "$HERE/lived"'
    assert await make(f"({late}) & exit 0").prepare(PREPARE) == Done()
    (tmp_path / "go").touch()
    await until((tmp_path / "lived").exists)
    assert not (tmp_path / "kept").exists()


@pytest.mark.process
async def test_large_output_is_harmless(make: Make) -> None:
    assert await make("seq 1 500000; echo the last; exit 1").prepare(PREPARE) == Failed(
        "prepare ended with 1: the last"
    )


@pytest.mark.process
async def test_event_with_a_thousand_vms_is_passed_completely(make: Make, tmp_path: Path) -> None:
    event = msgspec.structs.replace(EVENT, resources=tuple(f"{'web' * 20}_{n}" for n in range(1000)))
    handler = make("sleep 0.05; wc -c > $HERE/size")
    assert await handler.prepare(handler_context(event=event)) == Done()
    assert int((tmp_path / "size").read_text()) > 65_536


@pytest.mark.process
async def test_hooks_of_a_phase_run_in_name_order(hooks: ExecHandler, tmp_path: Path) -> None:
    for name in ("20-second", "10-first", "90-last.sh"):
        script(tmp_path / "hooks.d/prepare" / name, 'echo "$(basename "$0") $FOREWARN_PHASE" >> "$HERE/ran"')
    assert await hooks.prepare(PREPARE) == Done()
    assert (tmp_path / "ran").read_text().splitlines() == [
        "10-first prepare",
        "20-second prepare",
        "90-last.sh prepare",
    ]


@pytest.mark.process
async def test_hooks_run_once_per_phase(hooks: ExecHandler, tmp_path: Path) -> None:
    for phase in Phase:
        script(tmp_path / "hooks.d" / phase.value / "10-note", 'echo "$FOREWARN_PHASE" >> "$HERE/ran"')
    for phase in Phase:
        assert await hooks.notify(handler_context(phase)) == Done()
        if phase is Phase.PREPARE:
            assert await hooks.prepare(PREPARE) == Done()
        if phase is Phase.RECOVER:
            assert await hooks.recover(RECOVER) == Done()
    assert (tmp_path / "ran").read_text().split() == [phase.value for phase in Phase]


@pytest.mark.process
async def test_first_failing_hook_ends_the_phase(hooks: ExecHandler, tmp_path: Path) -> None:
    script(tmp_path / "hooks.d/prepare/10-done", 'touch "$HERE/done"')
    script(tmp_path / "hooks.d/prepare/20-busy", "exit 75")
    script(tmp_path / "hooks.d/prepare/30-never", 'touch "$HERE/never"')
    assert await hooks.prepare(PREPARE) == Retry("20-busy ended with 75")
    assert ((tmp_path / "done").exists(), (tmp_path / "never").exists()) == (True, False)


def test_files_without_a_hook_name_are_ignored(tmp_path: Path) -> None:
    others = ("README", "10-a~", "10-a.bak", ".10-a", "10-a.sh.dpkg-old", "1-a", "100-a", "10-", "10-a.swp2x", "x10-a")
    for name in (*others, "10-a", "11-b.py", "12-c_d"):
        script(tmp_path / "notice" / name, "exit 0")
    assert [path.name for path in hooks_of(tmp_path, Phase.NOTICE)] == ["10-a", "11-b.py", "12-c_d"]


async def test_check_accepts_runnable_programs(make: Make, hooks: ExecHandler, tmp_path: Path) -> None:
    script(tmp_path / "hooks.d/prepare/10-a", "touch $HERE/ran")
    assert (await make("touch $HERE/ran").check(), await hooks.check()) == ([], [])
    assert not (tmp_path / "ran").exists()


async def test_check_finds_unusable_hooks(hooks: ExecHandler, tmp_path: Path) -> None:
    assert await hooks.check() == [f"cannot read {tmp_path}/hooks.d: No such file or directory"]
    script(tmp_path / "hooks.d/prepare/10-a", "").chmod(0o644)
    script(tmp_path / "hooks.d/recover/10-b", "").chmod(0o777 | stat.S_ISVTX)
    (tmp_path / "hooks.d/preparing").mkdir()
    here = tmp_path / "hooks.d"
    phases = "notice, prepare, ready, approve, impact, recover"
    writable = f"{here}/recover/10-b is world-writable: chmod o-w {here}/recover/10-b"
    assert await hooks.check() == [
        f"{here}/preparing: unknown phase preparing; use {phases}",
        f"{here}/prepare/10-a is not executable: run chmod +x {here}/prepare/10-a",
        writable,
    ]


async def test_check_finds_a_missing_program() -> None:
    handler = ExecHandler(ExecSettings(name="own", recover=("/nowhere/at-all",)), NO_NOTES)
    assert await handler.check() == ["no such program: /nowhere/at-all"]
