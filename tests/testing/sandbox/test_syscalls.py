"""Tests of the system calls: their errors, and their effects in a process of their own."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.sandbox.vm_socket import GUARD

if sys.platform != "linux":
    pytest.skip("only Linux has these system calls", allow_module_level=True)

from forewarn.testing.sandbox import syscalls


def run_program(script: str) -> str:
    """Run a program that must succeed, and return its output."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_invalid_flags_raise_an_os_error() -> None:
    with pytest.raises(OSError, match="Invalid argument") as caught:
        syscalls.unshare(1)
    assert caught.value.errno == errno.EINVAL


def test_mount_on_a_missing_directory_raises_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked below
        syscalls.mount("none", str(tmp_path / "missing"), "tmpfs")
    assert caught.value.errno in {errno.ENOENT, errno.EPERM}


def test_unknown_interface_raises_an_os_error() -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked below
        syscalls.bring_up("no-such")
    assert caught.value.errno == errno.ENODEV


@pytest.mark.process
def test_process_asks_to_be_killed_with_its_parent() -> None:
    script = """
import ctypes
from forewarn.testing.sandbox import syscalls
def signal_at_end_of_parent():
    number = ctypes.c_int()
    assert ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0) == 0
    return number.value
before = signal_at_end_of_parent()
syscalls.die_with_parent()
print(before, signal_at_end_of_parent())
"""
    assert run_program(script) == "0 9\n"


@pytest.mark.process
@pytest.mark.usefixtures("sandboxes")
def test_loopback_gets_a_second_address() -> None:
    script = """
import socket
from forewarn.testing.sandbox import syscalls
syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
syscalls.bring_up("lo")
syscalls.add_address("lo:1", "169.254.169.254")
with socket.create_server(("169.254.169.254", 80)) as server, socket.create_connection(server.getsockname()) as client:
    print(client.getpeername())
"""
    assert run_program(script) == "('169.254.169.254', 80)\n"


@pytest.mark.process
@pytest.mark.usefixtures("sandboxes")
def test_dropped_capability_is_gone_for_good() -> None:
    script = """
from forewarn.testing.sandbox import syscalls
syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
def sets():
    with open("/proc/self/status") as status:
        values = dict(line.split(":", 1) for line in status)
    return [int(values[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")]
before = sets()
syscalls.drop_capability(syscalls.CAP_SYS_ADMIN)
bit = 1 << syscalls.CAP_SYS_ADMIN
print(all(value & bit for value in before[1:]), sets() == [value & ~bit for value in before])
try:
    syscalls.mount("none", "/tmp", "tmpfs")
except OSError as error:
    print(error.strerror)
"""
    assert run_program(script) == "True True\nOperation not permitted\n"


@pytest.mark.process
@pytest.mark.usefixtures("sandboxes")
def test_mount_is_visible_only_in_the_own_namespace(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = f"""
import os
from forewarn.testing.sandbox import syscalls
syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
syscalls.mount("none", {str(tmp_path)!r}, "tmpfs", syscalls.RESTRICTED_MOUNT, "size=64k")
print(os.listdir({str(tmp_path)!r}))
"""
    assert run_program(script) == "[]\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
