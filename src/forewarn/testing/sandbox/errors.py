"""Errors of the sandbox.

SandboxError
├── NamespacesUnavailable  the system is not Linux
├── NamespacesNotAllowed   this user may not create namespaces
├── EgressUnavailable      slirp4netns or pasta is missing or does not work
├── PortRefused            a port that the program must not reach
└── SandboxFailed          unusable socket, directory or host name, or set-up failed
"""

import os
from collections.abc import Callable
from contextlib import suppress
from errno import EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS
from pathlib import Path

from forewarn.core.base_error import BaseError

SANDBOX_EXIT_CODE = 125
"""The exit code if the sandbox could not be created."""

SYSCTL_ROOT = Path("/proc/sys")
APPARMOR_SYSCTL = "kernel/apparmor_restrict_unprivileged_userns"
DEBIAN_SYSCTL = "kernel/unprivileged_userns_clone"
MAX_NAMESPACES = "user/max_user_namespaces"


class SandboxError(BaseError):
    """The sandbox cannot be created; the message says what to do about it."""


class NamespacesUnavailable(SandboxError):
    """This system has no namespaces."""

    template = (
        "a program can run as a VM only on Linux; this system is {system}. "
        "Give your program the VM's URL instead: `forewarn vm list` shows it"
    )
    system: str


class NamespacesNotAllowed(SandboxError):
    """The system does not let this user create namespaces."""

    template = "this system does not let you create user namespaces ({error.strerror}): {advice}"
    error: OSError
    read_switch: Callable[[str], int | None]

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _advice(self.error, self.read_switch)


class EgressUnavailable(SandboxError):
    """No program that connects a namespace with the network is installed, or it does not work here."""

    template = "{problem}"
    problem: str


class PortRefused(SandboxError):
    """The program must not reach this port."""

    template = "port {port} cannot be reached from the sandbox: {reason}"
    port: int
    reason: str


class SandboxFailed(SandboxError):
    """The given socket, directory or host name cannot be used, or the set-up failed."""

    template = "{problem}"
    problem: str


def print_error(message: str) -> None:
    """Write a message to stderr, if it is open."""
    with suppress(OSError):
        os.write(2, f"forewarn: {message}\n".encode(errors="replace"))


def read_sysctl(name: str) -> int | None:
    """Return the value of a sysctl, or None if it does not exist."""
    try:
        return int((SYSCTL_ROOT / name).read_text())
    except (OSError, ValueError):
        return None


def _advice(error: OSError, read_switch: Callable[[str], int | None]) -> str:
    if read_switch(MAX_NAMESPACES) == 0:
        return "enable them with `sudo sysctl user.max_user_namespaces=15000`"
    if error.errno == ENOSPC:
        return (
            "the limit user.max_user_namespaces or user.max_net_namespaces is reached: "
            "end some programs, or raise the limit"
        )
    if read_switch(DEBIAN_SYSCTL) == 0:
        return "enable them with `sudo sysctl kernel.unprivileged_userns_clone=1`"
    if read_switch(APPARMOR_SYSCTL):
        return (
            "AppArmor does not allow them to unprivileged programs; allow them with "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or use sudo"
        )
    return _REASONS.get(error.errno or 0, "give your program the VM's URL instead: `forewarn vm list` shows it")


_REASONS = {
    EPERM: "in a container, allow them in its seccomp profile, or start it as privileged",
    EINVAL: "the kernel was built without them (CONFIG_USER_NS)",
    ENOSYS: "the kernel was built without them (CONFIG_USER_NS)",
    EUSERS: "they are nested too deeply",
}
