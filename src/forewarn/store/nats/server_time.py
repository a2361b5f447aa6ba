"""Server time: asks each of the NATS servers what time it is, over a short connection of its own."""

import asyncio
import time
from datetime import datetime

import msgspec

from forewarn.core.clock_offset import TimeResponse
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.connection import NatsConnection, NatsError, parse_answer
from forewarn.store.nats.message import CellSubjects
from forewarn.store.port import StoreError

ATTEMPTS = 3
"""How often a server is asked; the quickest answer counts."""

CONNECT_SECONDS = 2.0

USER_INFO = "$SYS.REQ.USER.INFO"
"""Answered by the server of the connection, with its time."""


class ServerTime:
    """The time of each server that the settings name."""

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings

    async def read_times(self) -> list[TimeResponse]:
        """Return the time of each server that answers."""
        responses = await asyncio.gather(*(self._read_server(url) for url in self._settings.servers))
        return [response for response in responses if response is not None]

    async def _read_server(self, url: str) -> TimeResponse | None:
        settings = msgspec.structs.replace(self._settings, servers=(url,))
        try:
            connection = await NatsConnection.open(settings, patience=CONNECT_SECONDS)
        except StoreError:
            return None
        try:
            responses = [await _ask_server(connection) for _ in range(ATTEMPTS)]
        except NatsError:
            # This user may not ask the server itself. Everybody who has a cell may ask the leader of its stream.
            return await _ask_leader(connection, settings.cell)
        finally:
            await connection.aclose()
        return min(responses, key=lambda response: response.received - response.sent)


async def _ask_server(connection: NatsConnection) -> TimeResponse:
    sent = time.monotonic()
    answer = await connection.request(USER_INFO)
    received = time.monotonic()
    return TimeResponse(at=parse_time(parse_answer(answer.data)["server"]["time"]), sent=sent, received=received)


async def _ask_leader(connection: NatsConnection, cell: str) -> TimeResponse | None:
    sent = time.monotonic()
    try:
        answer = await connection.call(f"STREAM.INFO.{CellSubjects(cell).stream}")
    except NatsError:
        return None
    return TimeResponse(at=parse_time(answer["ts"]), sent=sent, received=time.monotonic())


def parse_time(text: str) -> datetime:
    """Return the time that a server has written, with up to nine digits of a second."""
    return msgspec.convert(text, datetime)
