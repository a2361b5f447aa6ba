"""What the two sides of a sandbox say to each other while it is made and while it lasts."""

import json
import os
import socket
from enum import StrEnum
from typing import NamedTuple

LONGEST = 64 * 1024


class Word(StrEnum):
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

    word: Word
    number: int = 0
    file: int | None = None


class Silence(Exception):
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

    def say(self, word: Word, number: int = 0, file: int | None = None) -> None:
        """Send a message."""
        packed = json.dumps([word, number]).encode()
        socket.send_fds(self._end, [packed], [] if file is None else [file])

    def hear(self) -> Message:
        """Wait for a message."""
        packed, files, *_ = socket.recv_fds(self._end, LONGEST, 1)
        if not packed:
            raise Silence
        word, number = json.loads(packed)
        return Message(Word(word), number, files[0] if files else None)

    def await_word(self, word: Word) -> Message:
        """Wait for this word; that something has failed instead is raised."""
        heard = self.hear()
        if heard.word is Word.FAILED:
            raise OSError(heard.number, os.strerror(heard.number))
        if heard.word is not word:
            raise Silence
        return heard

    def close(self) -> None:
        """Say nothing any more, which the other side hears."""
        self._end.close()
