"""Messages between the supervisor and the process inside the namespaces, over a socket pair."""

import json
import os
import socket
from enum import StrEnum
from typing import NamedTuple

MAX_MESSAGE_BYTES = 64 * 1024


class MessageType(StrEnum):
    """The types of messages. The supervisor sends MAPPED and GO; the process inside sends the others."""

    UNSHARED = "unshared"
    MAPPED = "mapped"
    READY = "ready"
    GO = "go"
    BEGUN = "begun"
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"


class Message(NamedTuple):
    """A type, its number (an exit code or an errno), and a file descriptor if the message has one."""

    type: MessageType
    number: int = 0
    file: int | None = None


class ChannelClosed(Exception):
    """The other end is closed."""


class Channel:
    """One end of the connection. Messages arrive complete and in order, or not at all."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Create both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the file descriptor, for select."""
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
        """Wait for a message of this type; raise OSError if the other side reports a failure."""
        message = self.receive()
        if message.type is MessageType.FAILED:
            raise OSError(message.number, os.strerror(message.number))
        if message.type is not type_:
            raise ChannelClosed
        return message

    def close(self) -> None:
        """Close this end; the other side then gets ChannelClosed."""
        self._end.close()
