"""Messages between the supervisor and the process inside the namespaces."""

import errno
import os
from collections.abc import Iterator

import pytest

from forewarn.testing.sandbox.channel import Channel, ChannelClosed, Message, MessageType


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    one, other = Channel.pair()
    yield one, other
    one.close()
    other.close()


def test_messages_arrive_whole_and_in_order(pair: tuple[Channel, Channel]) -> None:
    one, other = pair
    one.send(MessageType.READY)
    one.send(MessageType.ENDED, 137)
    assert [other.receive(), other.receive()] == [Message(MessageType.READY), Message(MessageType.ENDED, 137)]
    assert one.fileno() != other.fileno()


def test_file_is_passed_with_its_message(pair: tuple[Channel, Channel]) -> None:
    one, other = pair
    reader, writer = os.pipe()
    one.send(MessageType.READY, file=writer)
    os.close(writer)
    received = other.receive().file
    assert received is not None
    os.write(received, b"x")
    os.close(received)
    assert os.read(reader, 10) == b"x"
    os.close(reader)


def test_failure_of_the_other_side_is_raised_here(pair: tuple[Channel, Channel]) -> None:
    one, other = pair
    one.send(MessageType.FAILED, errno.EPERM)
    with pytest.raises(PermissionError):
        other.expect(MessageType.READY)
    one.send(MessageType.READY, 3)
    assert other.expect(MessageType.READY) == Message(MessageType.READY, 3)


def test_other_message_or_closed_end_ends_the_conversation(pair: tuple[Channel, Channel]) -> None:
    one, other = pair
    one.send(MessageType.BEGUN)
    with pytest.raises(ChannelClosed):
        other.expect(MessageType.READY)
    one.close()
    with pytest.raises(ChannelClosed):
        other.receive()
