"""Where no sandbox can be made, it is said what to do about it."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from forewarn.testing import sandbox
from forewarn.testing.sandbox.errors import APPARMOR_SYSCTL, DEBIAN_SYSCTL, MAX_NAMESPACES, NamespacesNotAllowed
from tests.testing.sandbox.vm_socket import GUARD, VmSocket

CASES: dict[str, tuple[int, dict[str, int], str]] = {
    "none allowed": (errno.ENOSPC, {MAX_NAMESPACES: 0}, "sudo sysctl user.max_user_namespaces=15000"),
    "too many": (errno.ENOSPC, {MAX_NAMESPACES: 10}, "end some, or raise them"),
    "Debian's switch": (
        errno.EPERM,
        {MAX_NAMESPACES: 10, DEBIAN_SYSCTL: 0},
        "sudo sysctl kernel.unprivileged_userns_clone=1",
    ),
    "AppArmor": (
        errno.EPERM,
        {DEBIAN_SYSCTL: 1, APPARMOR_SYSCTL: 1},
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "AppArmor, in the files": (errno.EACCES, {APPARMOR_SYSCTL: 1}, "AppArmor keeps them from unprivileged programs"),
    "container": (errno.EPERM, {MAX_NAMESPACES: 10, APPARMOR_SYSCTL: 0}, "allow them in its seccomp profile"),
    "kernel": (errno.EINVAL, {}, "CONFIG_USER_NS"),
    "anything else": (errno.ENOMEM, {}, "give your program the VM's URL"),
}


@pytest.mark.parametrize(("number", "switches", "advice"), CASES.values(), ids=CASES)
def test_advice_fits_what_is_switched_off(number: int, switches: dict[str, int], advice: str) -> None:
    told = str(NamespacesNotAllowed(OSError(number, os.strerror(number)), switches.get))
    assert told.startswith("this system does not let you create user namespaces (")
    assert advice in told


def test_system_that_allows_no_user_namespaces_says_so(vm: VmSocket) -> None:
    """In a user namespace of its own the switch can be turned without touching the machine's."""
    if shutil.which("unshare") is None:
        pytest.skip("the program unshare is missing: install util-linux")
    off = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    command = sandbox.supervisor_command(["true"], socket=vm.path, hostname="web-0")
    ended = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", off, "sh", *command],
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert ended.returncode == 125
    assert ended.stderr == (
        "forewarn: this system does not let you create user namespaces (No space left on device): "
        "switch them on with `sudo sysctl user.max_user_namespaces=15000`\n"
    )


def test_other_systems_are_told_of_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.unavailable_reason() == (
        "a program can run as a VM only on Linux, and this system is darwin: "
        "give your program the VM's URL, which `forewarn vm list` shows"
    )


def test_without_a_program_for_it_there_is_no_way_out(vm: VmSocket) -> None:
    command = sandbox.supervisor_command(["true"], socket=vm.path, hostname="web-0", net=True)
    ended = subprocess.run(
        command, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert ended.returncode == 125
    assert (
        "--net needs slirp4netns or pasta, and neither is installed: `sudo apt-get install slirp4netns`" in ended.stderr
    )
