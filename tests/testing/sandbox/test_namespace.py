"""Tests of the namespaces: the environment of a sandboxed program, its signals and its end."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from forewarn.testing import sandbox
from forewarn.testing.sandbox.signals import NOT_FORWARDED
from tests.testing.sandbox.vm_socket import GUARD, VmSocket, lines, output, wait_for_output


def test_host_name_is_the_vms_and_resolves(vm: VmSocket) -> None:
    script = "import socket; print(socket.gethostname(), socket.gethostbyname(socket.gethostname()))"
    assert output(vm, sys.executable, "-c", script) == "web-0 127.0.1.1\n"
    assert socket.gethostname() != "web-0"


def test_user_directory_environment_and_streams_are_kept(vm: VmSocket, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nowhere", "WORD": "ä $HOME"}
    script = 'id -u; id -g; pwd; echo "$WORD"; echo "$PYTHONPATH"; cat; echo complaint >&2'
    program = sandbox.run(
        ["sh", "-c", script],
        socket=vm.path,
        hostname="web-0",
        env=env,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = program.communicate("input ✓".encode(), timeout=GUARD)
    expected = f"{os.getuid()}\n{os.getgid()}\n{tmp_path}\nä $HOME\n/nowhere\ninput ✓"
    assert (program.returncode, out.decode(), err) == (0, expected, b"complaint\n")


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exit_code_is_that_of_the_program(vm: VmSocket, script: str, code: int) -> None:
    assert wait_for_output(vm.run("sh", "-c", script)) == (code, "", "")


def test_error_names_the_program_that_cannot_be_run(vm: VmSocket, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("nothing to run")
    no, cannot = "No such file or directory", "Permission denied"
    assert wait_for_output(vm.run("nonesuch")) == (127, "", f"forewarn: cannot run nonesuch: {no}\n")
    text = str(tmp_path / "text")
    assert wait_for_output(vm.run(text)) == (126, "", f"forewarn: cannot run {text}: {cannot}\n")


def test_sockets_of_all_vms_are_hidden(vm: VmSocket) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(vm.path.parent / "other.sock"))
        assert output(vm, "ls", "-A", str(vm.path.parent)) == ""
    code, _, err = wait_for_output(vm.run("touch", str(vm.path.parent / "mine")))
    assert (code, "Read-only" in err) == (1, True)


def test_sandbox_has_only_the_users_own_ids(vm: VmSocket) -> None:
    """Root too: with all ids mapped, the program could open the files of every user."""
    script = "import os; print(open('/proc/self/uid_map').read().split(), open('/proc/self/gid_map').read().split())"
    uid, gid = str(os.getuid()), str(os.getgid())
    assert output(vm, sys.executable, "-c", script) == f"{[uid, uid, '1']} {[gid, gid, '1']}\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_root_in_the_sandbox_cannot_open_private_files_of_other_users(vm: VmSocket, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "token").write_text("secret")
    os.chown(private, 12345, 12345)
    code, out, err = wait_for_output(vm.run("cat", str(private / "token")))
    assert (code, out, "Permission denied" in err) == (1, "", True)


def test_even_root_cannot_uncover_the_sockets(vm: VmSocket) -> None:
    """Neither by unmounting the cover, nor in new namespaces, nor through process 1."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(vm.path.parent / "other.sock"))
        program = vm.script(UNCOVER, str(vm.path.parent))
        assert wait_for_output(program) == (0, "[]\n", "")


UNCOVER = """
import ctypes, os
hidden = os.fsencode(sys.argv[1])
libc = ctypes.CDLL(None)
NEW_USERS, NEW_MOUNTS, BIND = 0x10000000, 0x20000, 4096
def uncover():
    assert libc.umount2(hidden, 0) != 0
    assert libc.umount2(hidden, 2) != 0
    assert libc.mount(b"/", hidden, b"", BIND, b"") != 0
uncover()
assert libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY) if os.getuid() == 0 else -1, NEW_MOUNTS) != 0
libc.unshare(NEW_USERS | NEW_MOUNTS)
uncover()
print(os.listdir(hidden))
"""


def test_other_machines_cannot_be_reached(vm: VmSocket) -> None:
    script = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=60)"
    code, _, err = wait_for_output(vm.run(sys.executable, "-c", script))
    assert (code, "Network is unreachable" in err) == (1, True)


def test_processes_of_the_host_are_not_visible(vm: VmSocket) -> None:
    script = "import os; print([name for name in os.listdir('/proc') if name.isdigit()] == ['1', str(os.getpid())])"
    assert output(vm, sys.executable, "-c", script) == "True\n"


def test_signals_are_forwarded_once(vm: VmSocket) -> None:
    numbers = sorted(signal.valid_signals() - NOT_FORWARDED - {signal.SIGTSTP, signal.SIGCONT})
    program = vm.script(
        """
import os, signal
for number in sys.argv[1:]:
    signal.signal(int(number), lambda number, _: os.write(1, b"%d\\n" % number))
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
""",
        *(str(int(number)) for number in numbers),
    )
    assert program.stdin is not None
    seen = lines(program)
    assert next(seen) == "ready"
    for number in numbers:
        program.send_signal(number)
        assert next(seen) == str(int(number))
        program.stdin.write(b"then\n")
        program.stdin.flush()
        assert next(seen) == "then"
    assert wait_for_output(program) == (0, "", "")
    assert {signal.SIGTERM, signal.SIGALRM, signal.SIGTTIN, signal.SIGRTMIN} <= set(numbers)


def test_signal_to_the_programs_own_group_is_delivered_once(vm: VmSocket) -> None:
    script = "trap 'echo hit' TERM; kill 0; kill 0; exit 3"
    command = sandbox.supervisor_command(["sh", "-c", script], socket=vm.path, hostname="web-0")
    # In a new session: on a terminal, the program would share the process group of the tests.
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert wait_for_output(program) == (3, "hit\nhit\n", "")


def test_program_stops_and_continues(vm: VmSocket) -> None:
    program = vm.script("print('ready'); sys.stdin.read()")
    seen = lines(program)
    assert next(seen) == "ready"
    program.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(program.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    program.send_signal(signal.SIGCONT)
    assert wait_for_output(program) == (0, "", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_stream_stays_closed(vm: VmSocket, closed: str) -> None:
    script = "import os; os._exit(sum(1 << n for n in range(3) if os.path.exists(f'/proc/self/fd/{n}')) or 8)"
    command = sandbox.supervisor_command([sys.executable, "-c", script], socket=vm.path, hostname="web-0")
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, timeout=GUARD, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (CLOSED[closed], b"", b"")


CLOSED = {"<&-": 0b110, ">&-": 0b101, "<&- >&- 2>&-": 8}
"""The open streams of the program, as bits, by the streams that were closed; 8 means none."""


def test_killing_any_process_of_the_sandbox_ends_all_of_it(vm: VmSocket) -> None:
    """Supervisor, keeper, process 1 and program: each is killed as soon as it exists."""
    mark = str(uuid.uuid4())
    programs = [vm.run("sh", "-c", f"sleep 600; : {mark}") for _ in range(8)]
    for number, program in enumerate(programs):
        os.kill(_member(program.pid, number % 4), signal.SIGKILL)
    for program in programs:
        code, _, err = wait_for_output(program)
        assert code in (-signal.SIGKILL, 128 + signal.SIGKILL, 125), err
        assert "Traceback" not in err
    _await_end_of(mark)


LATE_INIT = """
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
killed = sys.argv.pop(1)
from forewarn.testing.sandbox import supervisor, syscalls
die_with_parent = syscalls.die_with_parent
def die_with_parent_late():
    while os.getpid() == 1 and not os.path.exists(killed):
        time.sleep(0.01)
    die_with_parent()
syscalls.die_with_parent = die_with_parent_late
supervisor.main()
"""
"""A supervisor whose process 1 asks the kernel to end with its parent only when a file exists."""


def test_sandbox_ends_if_the_keeper_is_killed_before_process_1_is_bound_to_it(vm: VmSocket, tmp_path: Path) -> None:
    *python, _, source, socket_, hostname, net = sandbox.supervisor_command(["x"], socket=vm.path, hostname="web-0")[
        :-1
    ]
    killed = tmp_path / "killed"
    command = [*python, LATE_INIT, source, str(killed), socket_, hostname, net, "sleep", "600"]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _member(program.pid, 2)
    os.kill(_member(program.pid, 1), signal.SIGKILL)
    killed.touch()
    code, _, err = wait_for_output(program)
    assert (code, "Traceback" in err) == (125, False), err


def _member(process: int, generations: int) -> int:
    """Wait for the descendant of a process in this generation, and return it."""
    end = time.monotonic() + GUARD
    while generations:
        assert time.monotonic() < end, "no child process was started"
        if children := Path(f"/proc/{process}/task/{process}/children").read_text().split():
            process, generations = int(children[0]), generations - 1
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_child_processes_end_with_the_program(vm: VmSocket, number: signal.Signals) -> None:
    """Even a child in a new session ends."""
    mark = str(uuid.uuid4())
    script = f"setsid sh -c 'sleep 600; : {mark}' & (sh -c 'sleep 600; : {mark}' &) ; echo ready; wait"
    program = vm.run("sh", "-c", script)
    assert next(lines(program)) == "ready"
    assert _bearing(mark)
    program.send_signal(number)
    assert program.wait(GUARD) in (-signal.SIGKILL, 128 + signal.SIGTERM)
    _await_end_of(mark)
    program.communicate()


def _await_end_of(mark: str) -> None:
    end = time.monotonic() + GUARD
    while _bearing(mark):
        assert time.monotonic() < end, "a process is still running"
        time.sleep(0.05)


def _bearing(mark: str) -> list[str]:
    """Return the processes of the host whose command line contains the mark."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (directory / "cmdline").read_bytes():
                found.append(directory.name)
        except OSError:
            continue
    return found


def test_closed_output_is_noticed_before_the_program_ends(vm: VmSocket) -> None:
    """A reader of the output waits neither for the program's end nor for another process."""
    program = vm.script("import os; print('all'); os.close(1); sys.stdin.read()")
    assert list(lines(program)) == ["all"]
    assert program.poll() is None
    program.communicate(timeout=GUARD)
    assert program.returncode == 0


def test_many_sandboxes_run_in_parallel(vm: VmSocket) -> None:
    programs = [vm.run("hostname", hostname=f"web-{number}") for number in range(8)]
    assert [wait_for_output(program) for program in programs] == [(0, f"web-{number}\n", "") for number in range(8)]


def test_socket_directory_with_other_files_is_refused(vm: VmSocket) -> None:
    (vm.path.parent / "precious").touch()
    code, _, err = wait_for_output(vm.run("true"))
    message = f"the directory of {vm.path} is hidden from the command, so it must contain only sockets"
    assert (code, err) == (125, f"forewarn: {message}; it contains precious\n")


@pytest.mark.parametrize(
    ("hostname", "why"), [("n" * 65, "has 1 to 64 bytes"), ("", "has 1 to 64 bytes")], ids=["long", "empty"]
)
def test_invalid_host_name_is_refused(vm: VmSocket, hostname: str, why: str) -> None:
    code, _, err = wait_for_output(vm.run("true", hostname=hostname))
    assert (code, why in err) == (125, True)


def test_missing_socket_is_refused(vm: VmSocket) -> None:
    missing = vm.path.with_name("missing.sock")
    code, _, err = wait_for_output(vm.run("true", path=missing))
    assert (code, err) == (125, f"forewarn: cannot use {missing}: No such file or directory\n")


def test_empty_command_raises_value_error(vm: VmSocket) -> None:
    with pytest.raises(ValueError, match="command is empty"):
        sandbox.run([], socket=vm.path, hostname="web-0")
