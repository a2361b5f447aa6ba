"""Messages between the supervisor and the process inside the namespaces, over a socket pair."""

import json
import os
import socket
from enum import StrEnum
from typing import NamedTuple

MAX_MESSAGE_BYTES = 64 * 1024


class MessageType(StrEnum):
    """What can be said; the side outside says MAPPED and GO, the side inside says everything else."""

    UNSHARED = "unshared"
    MAPPED = "mapped"
    READY = "ready"
    GO = "go"
    BEGUN = "begun"
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"


class Message(NamedTuple):
    """A word, the number that belongs to it (an exit code or an error number), and an open file if one came along."""

    type: MessageType
    number: int = 0
    file: int | None = None


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of the connection between them. Messages arrive whole and in order, or not at all."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Make both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the number of the file, to be waited for."""
        return self._end.fileno()

    def send(self, type_: MessageType, number: int = 0, file: int | None = None) -> None:
        """Send a message."""
        packed = json.dumps([type_, number]).encode()
        socket.send_fds(self._end, [packed], [] if file is None else [file])

    def receive(self) -> Message:
        """Wait for a message."""
        packed, files, *_ = socket.recv_fds(self._end, MAX_MESSAGE_BYTES, 1)
        if not packed:
            raise ChannelClosed
        type_, number = json.loads(packed)
        return Message(MessageType(type_), number, files[0] if files else None)

    def expect(self, type_: MessageType) -> Message:
        """Wait for this word; that something has failed instead is raised."""
        message = self.receive()
        if message.type is MessageType.FAILED:
            raise OSError(message.number, os.strerror(message.number))
        if message.type is not type_:
            raise ChannelClosed
        return message

    def close(self) -> None:
        """Say nothing any more, which the other side hears."""
        self._end.close()
