"""The process runner: own session, bounded output, time limit, and the end of everything that was started."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from forewarn import process
from forewarn.process import OutputFile, Process, ProcessResult, boot_id, check_program, run_process

GUARD = 60.0
ENVIRON = {"PATH": os.defpath}


def is_gone(pid: int) -> bool:
    return not process._is_alive(pid)


async def run_script(script: str, stdin: bytes = b"", *, merge: bool = False) -> ProcessResult:
    return await run_process(["/bin/sh", "-c", script], {"PATH": os.defpath, "WORD": "w"}, stdin, merge=merge)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(GUARD):
        while not holds():  # noqa: ASYNC110 - there is no notification about other processes
            await asyncio.sleep(0.01)


@pytest.mark.process
async def test_program_gets_input_and_environment_and_returns_its_result() -> None:
    result = await run_script("cat; echo $WORD; echo wrong >&2; exit 3", b"in ")
    assert result == ProcessResult(3, "in w\n", "wrong\n")
    assert result.summary == "ended with 3: wrong"


@pytest.mark.process
async def test_merged_output_is_in_the_order_in_which_it_was_printed() -> None:
    assert await run_script("echo 1; echo 2 >&2; echo 3", merge=True) == ProcessResult(0, "1\n2\n3\n")


@pytest.mark.process
async def test_program_has_its_own_session_and_a_broken_pipe_ends_it() -> None:
    result = await run_script("ps -o sid= -p $$; echo $$; grep SigIgn /proc/$$/status")
    session, pid, ignored = result.stdout.split("\n")[:3]
    assert session.strip() == pid
    assert not int(ignored.split()[1], 16) & 1 << signal.SIGPIPE - 1


@pytest.mark.process
async def test_program_that_cannot_be_started_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    for path in ("/no/such", str(tmp_path / "plain")):
        with pytest.raises(OSError, match=r"No such file|Permission denied"):
            await run_process([path], {})


@pytest.mark.process
async def test_time_limit_ends_the_program_and_its_children(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        await run_process(
            ["/bin/sh", "-c", f"sleep 1000 & echo $! $$ > {tmp_path / 'pids'}; wait"],
            {"PATH": os.defpath},
            time_limit=timedelta(seconds=0.5),
        )
    for pid in (tmp_path / "pids").read_text().split():
        await until(partial(is_gone, int(pid)))


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the sessions of processes")
async def test_termination_ends_children_in_other_process_groups(tmp_path: Path) -> None:
    with OutputFile.unnamed() as output:
        script = f"set -m; sleep 4242 & echo $! > {tmp_path / 'new'}; mv {tmp_path / 'new'} {tmp_path / 'pid'}; wait"
        running = Process.start(["/bin/bash", "-c", script], {"PATH": os.defpath}, None, output, output)
        await until((tmp_path / "pid").exists)
        child = int((tmp_path / "pid").read_text())
        assert os.getpgid(child) == child
        async with asyncio.timeout(GUARD):
            await running.terminate(timedelta(seconds=30))
        await until(partial(is_gone, child))


def can_create_cgroup() -> bool:
    group = process._cgroup_of("self")
    return group is not None and os.access(group, os.W_OK)


SLEEP = "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 4242'"
OWN_SESSION = f"{SLEEP} & wait"
DAEMON = f"until [ -e {{0}}.go ]; do sleep 0.01; done; ({SLEEP} &); exec sleep 4242"
"""A process in its own session, whose parent waits for it or has ended."""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the sessions of processes")
@pytest.mark.parametrize("has_cgroup", [True, False], ids=["control group", "no control group"])
@pytest.mark.parametrize("script", [OWN_SESSION, DAEMON], ids=["child", "daemon"])
async def test_child_in_its_own_session_does_not_outlive_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, has_cgroup: bool
) -> None:
    """Without a control group, a daemon is the documented limit."""
    if has_cgroup and not can_create_cgroup():
        pytest.skip("this user may not create control groups")
    if not has_cgroup:
        monkeypatch.setattr(process, "_create_cgroup", lambda _: None)
    monkeypatch.setattr(process, "KILL_TIMEOUT", timedelta(seconds=GUARD))  # a busy machine may need longer
    before = cgroups()
    argv = ["/bin/sh", "-c", script.format(tmp_path / "pid")]
    running = asyncio.ensure_future(run_process(argv, ENVIRON, on_start=lambda _: (tmp_path / "pid.go").touch()))
    await until((tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    assert os.getsid(child) == child
    running.cancel()  # as the agent does at the end of a time limit
    await asyncio.wait([running])
    if script == DAEMON and not has_cgroup:
        assert not is_gone(child)
        os.kill(child, signal.SIGKILL)
    await until(partial(is_gone, child))
    assert cgroups() <= before


def cgroups() -> set[str]:
    """Return the control groups of programs that this process has left."""
    own = process._cgroup_of("self")
    return set() if own is None else {path.name for path in own.glob(f"{process.CGROUP_PREFIX}{os.getpid()}-*")}


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")
async def test_program_that_is_found_again_is_ended_with_its_daemons(tmp_path: Path) -> None:
    if not can_create_cgroup():
        pytest.skip("this user may not create control groups")
    with OutputFile.unnamed() as output:
        started = Process.start(["/bin/sh", "-c", DAEMON.format(tmp_path / "pid")], ENVIRON, None, output, output)
        (tmp_path / "pid.go").touch()
        await until((tmp_path / "pid").exists)
        child = int((tmp_path / "pid").read_text())
        found = Process.attach(started.pid, started.start_ticks, [output])
        async with asyncio.timeout(GUARD):
            await found.terminate(timedelta(seconds=30))
        await until(partial(is_gone, child))


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")
async def test_background_process_of_a_program_that_has_ended_keeps_running(tmp_path: Path) -> None:
    script = f"sleep 4242 > /dev/null & echo $! > {tmp_path / 'pid'}"
    assert (await run_process(["/bin/sh", "-c", script], ENVIRON)).code == 0
    child = int((tmp_path / "pid").read_text())
    assert not is_gone(child)
    os.kill(child, signal.SIGKILL)
    await until(partial(is_gone, child))


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")
async def test_control_group_of_a_background_process_is_removed_after_its_end(tmp_path: Path) -> None:
    if not can_create_cgroup():
        pytest.skip("this user may not create control groups")
    before = cgroups()
    script = f"sleep 4242 > /dev/null & echo $! > {tmp_path / 'pid'}"
    await run_process(["/bin/sh", "-c", script], ENVIRON)
    (left,) = cgroups() - before
    os.kill(child := int((tmp_path / "pid").read_text()), signal.SIGKILL)
    await until(partial(is_gone, child))
    await run_process(["/bin/true"], ENVIRON)
    assert left not in cgroups()


class ShortLivedGroup:
    """A control group with groups in it, as plain files, that is removed at some step of reading it."""

    NAMES = ("group", "group/a", "group/a/b", "group/c")

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self.path = directory / "group"
        self.steps = 0
        self._last_step = -1
        self._scandir, self._read_text = os.scandir, Path.read_text
        monkeypatch.setattr(os, "scandir", self._scan)
        monkeypatch.setattr(Path, "read_text", lambda path: self._read(path))  # noqa: PLW0108 - a bound method gets no path

    def create(self, *, last_step: int) -> None:
        """Create the group anew, with one process in each part."""
        self.steps, self._last_step = 0, last_step
        shutil.rmtree(self.path, ignore_errors=True)
        for number, name in enumerate(self.NAMES, 1):
            (self._directory / name).mkdir()
            (self._directory / name / "cgroup.procs").write_text(f"{number}\n")

    def _step(self) -> None:
        if self.steps == self._last_step:
            shutil.rmtree(self.path)
        self.steps += 1

    def _scan(self, path: str | int) -> object:
        if isinstance(path, int):  # by rmtree
            return self._scandir(path)
        self._step()
        found = self._scandir(path)
        self._step()
        return found

    def _read(self, path: Path) -> str:
        self._step()
        return self._read_text(path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")
def test_control_group_that_disappears_at_any_moment_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program, or this process, may remove it and the groups in it meanwhile."""
    reached: list[int] = []
    monkeypatch.setattr(process, "_signal_others", lambda _, is_member: reached.extend(filter(is_member, range(9))))
    group = ShortLivedGroup(tmp_path, monkeypatch)
    group.create(last_step=-1)
    process._signal_cgroup(group.path, signal.SIGTERM, kept=2)
    assert reached == [1, 3, 4]
    for last_step in range(group.steps):
        group.create(last_step=last_step)
        process._signal_cgroup(group.path, signal.SIGTERM, kept=2)
        assert not group.path.exists(), last_step


def test_control_group_of_this_process_is_never_taken_for_that_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example if this process was started by a program of a handler, and the program could not be moved."""
    for own, found, expected in (
        ("a/forewarn-1-0123456789ab", "a/forewarn-1-0123456789ab", None),
        ("a/forewarn-1-0123456789ab/b", "a/forewarn-1-0123456789ab", None),
        ("a", "a/b", None),
        ("a", "a/forewarn-agent.service", None),
        ("a", "a/forewarn-1-0123456789ab", Path("a/forewarn-1-0123456789ab")),
    ):
        monkeypatch.setattr(process, "_cgroup_of", {"self": Path(own), 7: Path(found)}.get)
        assert process._find_cgroup(7) == expected


async def test_program_that_survives_sigkill_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unkillable(Process):
        def has_exited(self) -> bool:
            return False

        def signal(self, number: int, *, is_for_all: bool = True) -> None:
            sent.append(number)

    sent: list[int] = []
    monkeypatch.setattr(process, "KILL_TIMEOUT", timedelta(0))
    async with asyncio.timeout(GUARD):
        assert await Unkillable(0, None, ()).terminate(timedelta(0)) is None
    assert sent == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.process
async def test_program_that_outlives_its_starter_is_found_again(tmp_path: Path) -> None:
    with OutputFile.at(tmp_path / "out") as output:
        started = Process.start(
            ["/bin/sh", "-c", "echo begun; exec sleep 1000"], {"PATH": os.defpath}, None, output, output
        )
        found = Process.attach(started.pid, started.start_ticks, [output])
        other = Process.attach(started.pid, "1", [output])
        assert (found.has_exited(), other.has_exited()) == (False, True)
        await until(lambda: output.text)
        async with asyncio.timeout(GUARD):
            assert await found.terminate(timedelta(seconds=30)) == -signal.SIGTERM
        assert output.text == "begun\n"


SUMMARIES = {
    "nothing": (ProcessResult(0, ""), "ended with 0"),
    "errors first": (ProcessResult(1, "out", "a\nb\n"), "ended with 1: b"),
    "output": (ProcessResult(1, "out\n\n", " \n"), "ended with 1: out"),
    "signal": (ProcessResult(-9, ""), "was ended by SIGKILL"),
    "signal without a name": (ProcessResult(-40, ""), "was ended by signal 40"),
    "unknown": (ProcessResult(None, "", "x"), "ended with an unknown exit code: x"),
    "unprintable": (ProcessResult(1, "a\x1b[2Jb"), "ended with 1: a [2Jb"),
    "long": (ProcessResult(1, "x" * 9999), f"ended with 1: {'x' * 500}"),
}


@pytest.mark.parametrize(("result", "summary"), SUMMARIES.values(), ids=SUMMARIES)
def test_summary(result: ProcessResult, summary: str) -> None:
    assert result.summary == summary


def test_end_of_endless_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_OUTPUT", 4096)
    monkeypatch.setattr(process, "KEPT_OUTPUT", 10)
    with OutputFile.unnamed() as output:
        os.write(output.fileno(), b"x" * 5000 + b"0123456789")
        was_too_large = output.is_too_large
        output.trim()
        assert (was_too_large, output.is_too_large) == (True, False)
        os.write(output.fileno(), b"abc")
        assert output.text == "3456789abc"


def test_closed_output_is_not_trimmed() -> None:
    with OutputFile.unnamed() as output:
        pass
    assert not output.is_too_large
    output.trim()


async def test_program_with_endless_output_is_polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            os.write(output.fileno(), b"x" * 5000)
        await sleep(0)

    monkeypatch.setattr(process, "MAX_OUTPUT", 4096)
    monkeypatch.setattr(process, "KEPT_OUTPUT", 10)
    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(Process, "has_exited", lambda _: len(pauses) >= 9)
    with OutputFile.unnamed() as output:
        await Process.attach(os.getpid(), None, [output]).wait()
        assert (output.is_too_large, output.text) == (False, "x" * 10)
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.005, 0.01]


def test_check_returns_why_a_program_cannot_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    assert check_program("/bin/sh") is None
    assert check_program(tmp_path) == f"no such program: {tmp_path}"
    plain.chmod(0o600)
    assert check_program(plain) == f"{plain} is not executable: run chmod +x {plain}"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux frees the beginning of a file")
def test_output_during_trimming_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line, which messages show, may be printed at any time."""
    read_end, free_beginning = OutputFile._read_end, process._free_beginning

    def print_the_last_line(output: OutputFile) -> bytes:
        end = read_end(output)
        os.write(output.fileno(), b"the last\n")
        return end

    with OutputFile.unnamed() as output:
        os.write(output.fileno(), b"x" * (2 * process.MAX_OUTPUT))
        was_too_large = output.is_too_large
        monkeypatch.setattr(OutputFile, "_read_end", print_the_last_line)
        monkeypatch.setattr(
            process, "_free_beginning", lambda *args: (print_the_last_line(output), free_beginning(*args))[1]
        )
        output.trim()
        monkeypatch.undo()
        assert (was_too_large, output.is_too_large) == (True, False)
        assert output.text.endswith("xthe last\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a boot id")
def test_boot_id_is_stable() -> None:
    assert boot_id() == boot_id() != ""


def test_unreadable_boot_id_is_empty(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff")
    assert (boot_id(tmp_path / "nowhere"), boot_id(tmp_path / "odd")) == ("", "")
