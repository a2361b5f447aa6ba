"""Command channel: hosts send commands as NATS requests, and any control node answers them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from forewarn.store.nats.connection import NatsConnection, ServerUnavailable
from forewarn.store.nats.message import CellSubjects, decode_token

log = logging.getLogger(__name__)

GROUP = "control"
"""The group of all control nodes: one of them answers each command."""

MAX_COMMANDS = 2_000
"""How many commands are handled at the same time; further ones are not answered, and their hosts repeat them."""

ANSWER_SUBJECTS = ("_INBOX.", "_R_.")
"""How the subject of an answer begins: of a host in the same account, or in another one. Any other subject is a trick:
the answer would be written with the permissions of the control node, for example as a record."""

PLACED = "placed"
"""The name of the message that tells a host that it has VMs of another scope."""


class CommandHandler(Protocol):
    """What a control node does with commands."""

    def hear(self, host: str, name: str, body: bytes) -> None:
        """Note a command that any control node may answer."""
        ...

    async def answer(self, host: str, name: str, body: bytes) -> bytes:
        """Carry out a command and return the answer."""
        ...


class CommandServer:
    """Answers the commands of hosts."""

    def __init__(self, connection: NatsConnection, cell: str, receiver: CommandHandler) -> None:
        self._connection = connection
        self._subjects = CellSubjects(cell)
        self._receiver = receiver
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to hear and answer commands."""
        for group, callback in (("", self._on_heard), (GROUP, self._on_command)):
            self._subscriptions.append(
                await self._connection.subscribe(self._subjects.commands, callback, _log_slow, group=group)
            )
        await self._connection.flush()

    async def stop(self) -> None:
        """Answer no more commands; those that were received are completed."""
        for subscription in self._subscriptions:
            await self._connection.unsubscribe(subscription)
        self._subscriptions.clear()
        if self._connection.is_connected:
            await self._connection.flush()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def notify_placed(self, host: str) -> None:
        """Tell a host that it has VMs of another scope; if the message is lost, it asks a little later."""
        self._start(self._send(self._subjects.for_host(host, PLACED), b""))

    async def _on_heard(self, message: Msg) -> None:
        if (command := self._parse(message)) is not None:
            self._receiver.hear(*command, message.data)

    async def _on_command(self, message: Msg) -> None:
        if (command := self._parse(message)) is None:
            return
        if len(self._tasks) >= MAX_COMMANDS:
            log.warning("%d commands of hosts are being handled; ignoring more", MAX_COMMANDS)
            return
        self._start(self._answer(message, *command))

    def _parse(self, message: Msg) -> tuple[str, str] | None:
        """Return the host and the name of a command; None if it is none."""
        if not message.reply.startswith(ANSWER_SUBJECTS):
            log.warning(
                "ignoring a message on %s that wants its answer on %s", message.subject, message.reply or "none"
            )
            return None
        _, _, token, name = message.subject.split(".")
        return decode_token(token), name

    async def _answer(self, message: Msg, host: str, name: str) -> None:
        try:
            answer = await self._receiver.answer(host, name, message.data)
        except Exception:
            log.exception("could not handle the command %s of host %s", name, host)
            return
        await self._send(message.reply, answer)

    async def _send(self, subject: str, data: bytes) -> None:
        with suppress(ServerUnavailable):  # the host repeats the command
            await self._connection.publish(subject, data)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_slow() -> None:
    log.warning("commands of hosts were dropped, because too many waited; the hosts repeat them")


class CommandSender:
    """Sends the commands of one host."""

    def __init__(self, connection: NatsConnection, cell: str, host: str) -> None:
        self._connection = connection
        self._subjects = CellSubjects(cell)
        self._host = host

    async def request(self, name: str, body: bytes) -> bytes:
        """Send a command and return the answer; raise ServerUnavailable or ResponseMissing."""
        return (await self._connection.request(self._subjects.command(self._host, name), body)).data

    async def on_placed(self, callback: Callable[[], None]) -> None:
        """Call back whenever a control node says that the host has VMs of another scope."""

        async def receive(_: Msg) -> None:
            callback()

        await self._connection.subscribe(self._subjects.for_host(self._host, PLACED), receive, _log_slow)


def inbox_of(host_token: str) -> str:
    """Return the beginning of the subjects on which a host receives answers."""
    return f"_INBOX.{host_token}"
