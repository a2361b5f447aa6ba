"""Tests of the messages when a sandbox cannot be created: each says what to do."""

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
    "limit is 0": (errno.ENOSPC, {MAX_NAMESPACES: 0}, "sudo sysctl user.max_user_namespaces=15000"),
    "limit is reached": (errno.ENOSPC, {MAX_NAMESPACES: 10}, "end some programs, or raise the limit"),
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
    "AppArmor, EACCES": (errno.EACCES, {APPARMOR_SYSCTL: 1}, "AppArmor does not allow them to unprivileged programs"),
    "container": (errno.EPERM, {MAX_NAMESPACES: 10, APPARMOR_SYSCTL: 0}, "allow them in its seccomp profile"),
    "kernel": (errno.EINVAL, {}, "CONFIG_USER_NS"),
    "anything else": (errno.ENOMEM, {}, "give your program the VM's URL"),
}


@pytest.mark.parametrize(("number", "switches", "advice"), CASES.values(), ids=CASES)
def test_advice_fits_the_cause(number: int, switches: dict[str, int], advice: str) -> None:
    message = str(NamespacesNotAllowed(OSError(number, os.strerror(number)), switches.get))
    assert message.startswith("this system does not let you create user namespaces (")
    assert advice in message


def test_disabled_user_namespaces_are_reported_with_advice(vm: VmSocket) -> None:
    """In a new user namespace the sysctl can be changed without changing the host's."""
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
        "enable them with `sudo sysctl user.max_user_namespaces=15000`\n"
    )


def test_advice_on_other_systems_is_to_use_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.unavailable_reason() == (
        "a program can run as a VM only on Linux; this system is darwin. "
        "Give your program the VM's URL instead: `forewarn vm list` shows it"
    )


def test_net_without_an_egress_program_is_refused(vm: VmSocket) -> None:
    command = sandbox.supervisor_command(["true"], socket=vm.path, hostname="web-0", net=True)
    ended = subprocess.run(
        command, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert ended.returncode == 125
    assert (
        "--net needs slirp4netns or pasta, and neither is installed: `sudo apt-get install slirp4netns`" in ended.stderr
    )
