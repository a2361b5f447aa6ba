"""The client of the operator API: plain HTTP from the standard library, typed answers."""

import http.client
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from forewarn.api.errors import CannotReach, NotForewarn, NotFound, NoUrl, Refusal
from forewarn.api.v1 import AdvanceClock, Clock, Error, Event, EventPage, Health, Scheduled, ScheduleEvents, Vm, VmPage

T = TypeVar("T")

TIMEOUT = 60.0
LARGEST_ANSWER = 64 * 1024 * 1024


class ApiClient:
    """Talks to one service. Each call is one connection, so a client may be kept for as long as one likes."""

    def __init__(self, url: str, token: str, *, timeout: float = TIMEOUT) -> None:
        self.url = url.rstrip("/")
        self._parts = _parts_of(url)
        self._token = token
        self._timeout = timeout

    def health(self) -> Health:
        """Ask whether the service is there."""
        return self._call("GET", "/healthz", answer=Health)

    def vms(self, *, scope: str | None = None) -> Iterator[Vm]:
        """Give every VM, by scope and name."""
        after: str | None = ""
        while after is not None:
            page = self._call("GET", "/v1/vms" + _query(scope=scope, after=after), answer=VmPage)
            yield from page.vms
            after = page.next

    def events(self, *, scope: str | None = None, vm: str | None = None) -> Iterator[Event]:
        """Give every open event."""
        after: str | None = ""
        while after is not None:
            page = self._call("GET", "/v1/events" + _query(scope=scope, vm=vm, after=after), answer=EventPage)
            yield from page.events
            after = page.next

    def schedule(self, ask: ScheduleEvents, *, key: str | None = None) -> Scheduled:
        """Make events. The same key again makes nothing twice and gives the same answer."""
        return self._call("POST", "/v1/events", ask, answer=Scheduled, key=key)

    def clock(self) -> Clock:
        """Ask what time it is for the service."""
        return self._call("GET", "/v1/clock", answer=Clock)

    def advance(self, by: str | None = None) -> Clock:
        """Move a manual clock by a duration, else to the next moment at which something happens."""
        ask = AdvanceClock(by=by, to_next=by is None)
        return self._call("POST", "/v1/clock/advance", ask, answer=Clock)

    def _call(
        self, method: str, path: str, ask: msgspec.Struct | None = None, *, answer: type[T], key: str | None = None
    ) -> T:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        body = None
        if ask is not None:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(ask)
        status, content = self._send(method, self._parts.path.rstrip("/") + path, headers, body)
        return self._read(status, content, answer)

    def _send(self, method: str, target: str, headers: dict[str, str], body: bytes | None) -> tuple[int, bytes]:
        connect = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read(LARGEST_ANSWER)
        except ConnectionRefusedError as error:
            raise CannotReach(self.url, f"{error.strerror}; is it running?") from error
        except OSError as error:
            raise CannotReach(self.url, error.strerror or str(error) or type(error).__name__) from error
        except http.client.HTTPException as error:
            raise NotForewarn(self.url, f"{type(error).__name__} {error}".strip()) from error
        finally:
            connection.close()

    def _read(self, status: int, content: bytes, answer: type[T]) -> T:
        try:
            if status < 300:
                return msgspec.json.decode(content, type=answer)
            error = msgspec.json.decode(content, type=Error).error
        except msgspec.MsgspecError as wrong:
            raise NotForewarn(self.url, f"status {status}, {wrong}") from wrong
        kind = NotFound if status == 404 else Refusal
        raise kind(status, error.code, error.message, error.details)


def _parts_of(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    raise NoUrl(url)


def _query(**asked: str | None) -> str:
    said = {name: value for name, value in asked.items() if value}
    return f"?{urlencode(said)}" if said else ""
