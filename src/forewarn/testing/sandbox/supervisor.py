"""The process that a command in a sandbox is known by: it makes the sandbox, relays, and ends as the command does."""

import asyncio
import os
import resource
import signal
import socket
import stat
import sys
from contextlib import ExitStack, suppress
from errno import EACCES, EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS
from pathlib import Path
from typing import NamedTuple

from forewarn.testing.sandbox import outside
from forewarn.testing.sandbox.channel import Channel, Message, Silence, Word
from forewarn.testing.sandbox.errors import (
    NO_SANDBOX,
    NamespacesOff,
    NotLinux,
    SandboxError,
    Unusable,
    complain,
    switch,
)
from forewarn.testing.sandbox.inside import Plan, keep
from forewarn.testing.sandbox.relay import Relay
from forewarn.testing.sandbox.signals import Terminal, Witness, hold_back, send_on

REFUSALS = frozenset({EACCES, EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS})
"""How a system says that it does not let one make namespaces, or do in them what they are for."""

STDERR = 2
LONGEST_HOSTNAME = 64
WITH_NET, WITHOUT_NET = "net", "no-net"


class Wanted(NamedTuple):
    """What is wanted of a sandbox."""

    socket: Path
    hostname: str
    has_net: bool
    command: list[str]


def main() -> None:
    """Run a command: SOCKET HOSTNAME net|no-net COMMAND…"""
    _have_streams()
    path, hostname, net, *command = sys.argv[1:]
    try:
        code = supervise(Wanted(Path(path).absolute(), hostname, net == WITH_NET, command))
    except SandboxError as error:
        complain(str(error))
        code = NO_SANDBOX
    sys.exit(code)


def supervise(wanted: Wanted) -> int:
    """Run a command in a sandbox of its own; return its exit code."""
    _check(wanted)
    way_out = outside.choose() if wanted.has_net else None
    terminal = Terminal()
    plan = Plan(
        command=wanted.command,
        hostname=wanted.hostname,
        hidden=wanted.socket.parent,
        nameserver=way_out.nameserver if way_out is not None else None,
        has_own_group=not terminal.is_there,
    )
    with ExitStack() as stack:
        stack.callback(terminal.take_back)  # at last, when everything inside is gone
        channel, questions, keeper = _begin(plan)
        stack.callback(os.waitpid, keeper, 0)
        stack.callback(channel.close)
        listener = _set_up(channel, keeper)
        if way_out is not None:
            stack.enter_context(way_out.connecting(keeper))
        hold_back()
        command = _go(channel)
        send_on(command, None if plan.has_own_group else Witness(questions))
        _let_go_of_streams()
        return asyncio.run(_relay(wanted.socket, listener, channel))


def _check(wanted: Wanted) -> None:
    if sys.platform != "linux":
        raise NotLinux(sys.platform)
    if not 0 < len(wanted.hostname.encode()) <= LONGEST_HOSTNAME:
        raise Unusable(f"{wanted.hostname} is no host name: on Linux one has at most {LONGEST_HOSTNAME} characters")
    try:
        if not stat.S_ISSOCK(wanted.socket.stat().st_mode):
            raise Unusable(f"{wanted.socket} is no socket")
        others = [file.name for file in wanted.socket.parent.iterdir() if not stat.S_ISSOCK(file.lstat().st_mode)]
    except OSError as error:
        raise Unusable(f"cannot use {wanted.socket}: {error.strerror}") from error
    if others:
        raise Unusable(f"the directory of {wanted.socket} is hidden from the command, but has {others[0]} in it")


def _begin(plan: Plan) -> tuple[Channel, socket.socket, int]:
    channel, theirs = Channel.pair()
    questions, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        channel.close()
        questions.close()
        keep(plan, theirs, answers, supervisor)
    theirs.close()
    answers.close()
    return channel, questions, keeper


def _set_up(channel: Channel, keeper: int) -> socket.socket:
    """See the sandbox being made, and return what listens inside."""
    try:
        channel.await_word(Word.UNSHARED)
        for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
            _map(Path(f"/proc/{keeper}"), kind, own)
        channel.say(Word.MAPPED)
        return socket.socket(fileno=channel.await_word(Word.READY).file)
    except OSError as error:
        if error.errno in REFUSALS:
            raise NamespacesOff(error, switch) from error
        raise Unusable(f"the sandbox cannot be made: {error.strerror}") from error
    except Silence:
        raise Unusable("the sandbox was killed while it was made") from None


def _go(channel: Channel) -> int:
    """Have the command begun, and return its pidfd."""
    try:
        channel.say(Word.GO)
        command = channel.await_word(Word.BEGUN).file
    except (OSError, Silence) as error:
        raise Unusable("the sandbox was killed before the command was begun") from error
    assert command is not None  # noqa: S101 - it comes with the word
    return command


def _map(process: Path, kind: str, own: int) -> None:
    """Have ids mean inside what they mean outside: all of them if we may, else our own alone."""
    extents = [line.split() for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
    everybody = "".join(f"{first} {first} {count}\n" for first, _, count in extents)
    try:
        (process / f"{kind}_map").write_text(everybody)
    except PermissionError:
        if kind == "gid":
            (process / "setgroups").write_text("deny")
        (process / f"{kind}_map").write_text(f"{own} {own} 1\n")


async def _relay(path: Path, listener: socket.socket, channel: Channel) -> int:
    """Relay until the command has ended; return its exit code."""
    _have_many_files()
    async with Relay(path).serving(listener):
        while True:
            heard = await _heard(channel)
            if heard is None:
                return 128 + signal.SIGKILL
            if heard.word is Word.ENDED:
                return heard.number
            if heard.word is Word.STOPPED:
                os.kill(os.getpid(), signal.SIGSTOP)


async def _heard(channel: Channel) -> Message | None:
    loop = asyncio.get_running_loop()
    can_be_read = loop.create_future()
    loop.add_reader(channel, can_be_read.set_result, None)
    try:
        await can_be_read
    finally:
        loop.remove_reader(channel)
    with suppress(Silence, OSError):
        return channel.hear()
    return None


def _have_streams() -> None:
    """Let no file of ours take the place of a stream that was closed; for the command it stays so."""
    while (file := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= STDERR:
        pass
    os.close(file)


def _let_go_of_streams() -> None:
    """Leave stdin and stdout to the command alone: if it closes one of them, whoever is at the other end is to know."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.close(nothing)


def _have_many_files() -> None:
    """Take as many open files as we may: each connection needs two. The command has its own limit already."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
