"""Supervisor process: create the sandbox, relay connections, forward signals, exit with the command's exit code."""

import asyncio
import json
import os
import resource
import shlex
import signal
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack, suppress
from errno import EACCES, EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS
from pathlib import Path
from typing import NamedTuple

from forewarn.testing.sandbox import egress, syscalls
from forewarn.testing.sandbox.channel import Channel, ChannelClosed, Message, MessageType
from forewarn.testing.sandbox.errors import (
    SANDBOX_EXIT_CODE,
    NamespacesNotAllowed,
    NamespacesUnavailable,
    SandboxError,
    SandboxFailed,
    print_error,
    read_sysctl,
)
from forewarn.testing.sandbox.namespace import ADDRESS, PORT, NamespaceOptions, run_namespace
from forewarn.testing.sandbox.ports import LOOPBACK, check_reach
from forewarn.testing.sandbox.relay import Relay, Target
from forewarn.testing.sandbox.signals import GroupSignals, Terminal, block_signals, forward_signals

REFUSED_ERRNOS = frozenset({EACCES, EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS})
"""Errors by which a system refuses to create namespaces or to set them up."""

STDERR = 2
MAX_HOSTNAME_BYTES = 64


class SandboxOptions(NamedTuple):
    """The arguments of the supervisor."""

    socket: Path
    hostname: str
    has_net: bool
    reach: list[int]
    listen_also: list[tuple[str, int]]
    command: list[str]


def main() -> None:
    """Run a command: SOCKET HOSTNAME OPTIONS COMMAND…, with the options as JSON."""
    _reserve_streams()
    path, hostname, options, *command = sys.argv[1:]
    network = json.loads(options)
    listen_also = [(address, port) for address, port in network["listen_also"]]
    with suppress(OSError):
        syscalls.set_title("forewarn run", f"forewarn run --vm {hostname} -- {shlex.join(command)}")
    try:
        code = supervise(
            SandboxOptions(Path(path).absolute(), hostname, network["net"], network["reach"], listen_also, command)
        )
    except SandboxError as error:
        print_error(str(error))
        code = SANDBOX_EXIT_CODE
    sys.exit(code)


def supervise(options: SandboxOptions) -> int:
    """Run a command in a new sandbox; return its exit code."""
    _check(options)
    check_reach(options.reach, options.listen_also)
    targets: dict[tuple[str, int], Target] = {(ADDRESS, PORT): options.socket}
    targets |= dict.fromkeys(options.listen_also, options.socket)
    targets |= {(LOOPBACK, port): port for port in options.reach}
    network = egress.find_egress() if options.has_net else None
    terminal = Terminal()
    namespace = NamespaceOptions(
        command=options.command,
        hostname=options.hostname,
        listeners=list(targets),
        hidden=options.socket.parent,
        nameserver=network.nameserver if network is not None else None,
        has_own_group=not terminal.is_present,
    )
    with ExitStack() as stack:
        stack.callback(terminal.restore)  # runs last, when everything inside has ended
        channel, signal_queries, keeper = _fork_keeper(namespace)
        stack.callback(os.waitpid, keeper, 0)
        stack.callback(channel.close)
        listeners = _set_up(channel, keeper, len(targets))
        if network is not None:
            stack.enter_context(network.connect(keeper))
        block_signals()
        command = _start_command(channel)
        forward_signals(command, None if namespace.has_own_group else GroupSignals(signal_queries))
        _release_streams()
        return asyncio.run(_relay(zip(targets.values(), listeners, strict=True), channel))


def _check(options: SandboxOptions) -> None:
    if sys.platform != "linux":
        raise NamespacesUnavailable(sys.platform)
    if not 0 < len(options.hostname.encode()) <= MAX_HOSTNAME_BYTES:
        raise SandboxFailed(
            f"invalid host name {options.hostname!r}: a host name has 1 to {MAX_HOSTNAME_BYTES} bytes on Linux"
        )
    try:
        if not stat.S_ISSOCK(options.socket.stat().st_mode):
            raise SandboxFailed(f"{options.socket} is not a socket")
        others = [file.name for file in options.socket.parent.iterdir() if not stat.S_ISSOCK(file.lstat().st_mode)]
    except OSError as error:
        raise SandboxFailed(f"cannot use {options.socket}: {error.strerror}") from error
    if others:
        raise SandboxFailed(
            f"the directory of {options.socket} is hidden from the command, so it must contain only sockets; "
            f"it contains {others[0]}"
        )


def _fork_keeper(namespace: NamespaceOptions) -> tuple[Channel, socket.socket, int]:
    channel, keeper_channel = Channel.pair()
    signal_queries, signal_replies = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        channel.close()
        signal_queries.close()
        run_namespace(namespace, keeper_channel, signal_replies, supervisor)
    keeper_channel.close()
    signal_replies.close()
    return channel, signal_queries, keeper


def _set_up(channel: Channel, keeper: int, count: int) -> list[socket.socket]:
    """Complete the set-up of the namespaces, and return the listening sockets inside."""
    try:
        channel.expect(MessageType.UNSHARED)
        # Also for root only the own ids: with all of them, the command could open the files of every user.
        process = Path(f"/proc/{keeper}")
        (process / "uid_map").write_text(f"{os.geteuid()} {os.geteuid()} 1\n")
        (process / "setgroups").write_text("deny")
        (process / "gid_map").write_text(f"{os.getegid()} {os.getegid()} 1\n")
        channel.send(MessageType.MAPPED)
        return [socket.socket(fileno=channel.expect(MessageType.READY).file) for _ in range(count)]
    except OSError as error:
        if error.errno in REFUSED_ERRNOS:
            raise NamespacesNotAllowed(error, read_sysctl) from error
        raise SandboxFailed(f"cannot create the sandbox: {error.strerror}") from error
    except ChannelClosed:
        raise SandboxFailed("the sandbox was killed during its set-up") from None


def _start_command(channel: Channel) -> int:
    """Start the command, and return its pidfd."""
    try:
        channel.send(MessageType.GO)
        command = channel.expect(MessageType.BEGUN).file
    except (OSError, ChannelClosed) as error:
        raise SandboxFailed("the sandbox was killed before the command started") from error
    assert command is not None  # noqa: S101 - a BEGUN message always has it
    return command


async def _relay(targets: Iterable[tuple[Target, socket.socket]], channel: Channel) -> int:
    """Relay until the command has ended; return its exit code."""
    _raise_file_limit()
    async with AsyncExitStack() as stack:
        for target, listener in targets:
            await stack.enter_async_context(Relay(target).serve(listener))
        while True:
            message = await _receive(channel)
            if message is None:
                return 128 + signal.SIGKILL
            if message.type is MessageType.ENDED:
                return message.number
            if message.type is MessageType.STOPPED:
                os.kill(os.getpid(), signal.SIGSTOP)


async def _receive(channel: Channel) -> Message | None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(channel, readable.set_result, None)
    try:
        await readable
    finally:
        loop.remove_reader(channel)
    with suppress(ChannelClosed, OSError):
        return channel.receive()
    return None


def _reserve_streams() -> None:
    """Occupy closed standard streams, so that no file takes their place; the command keeps them closed."""
    while (file := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= STDERR:
        pass
    os.close(file)


def _release_streams() -> None:
    """Close the supervisor's stdin and stdout: if the command closes one of them, the other end must notice."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.close(nothing)


def _raise_file_limit() -> None:
    """Raise the limit of open files: each connection needs two. The command, already started, keeps its limit."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
