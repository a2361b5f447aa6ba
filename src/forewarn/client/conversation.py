"""The conversation with a metadata service: what to ask, when to ask again, and what the answers mean. Without I/O.

Each public method makes a flow: a generator that yields what is to be done and is sent what came of it (`talk`). Both
clients carry out the same flows. From the outside in:

    watch                      asks for ever and gives changes
    document, approve, name    ask once, patiently
      _patiently               asks again for a while after what may pass
        _look, _post, _who     ask one thing, and read the answer
          _speak               falls back to an api-version that the service knows
            _send              gives it time, and tells what went wrong on the way
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from forewarn.client.answers import etag_of, name_in, offered_wait, trouble_with
from forewarn.client.changes import Change, compare
from forewarn.client.document import Document, Event, read_document
from forewarn.client.errors import ClientError, NoName, NotAnEvent, NotUnderstood, NoVersion
from forewarn.client.patience import patience_with, pause_after
from forewarn.client.talk import Answer, Flow, Give, Request, Send, Sleep, T
from forewarn.client.versions import EVENTS_NEWEST_FIRST, INSTANCE, refuses_version, versions_to_try
from forewarn.wire.approval import encode_approval
from forewarn.wire.document_parser import InvalidDocument
from forewarn.wire.protocol import MAX_WAIT

EVENTS = "/metadata/scheduledevents"
INSTANCE_DOCUMENT = "/metadata/instance"

OFF_AFTER = 24 * 3600.0
"""After so many seconds without a request the service is off, and its next answer is a first one again."""

OLDER_FOR = 3600.0
"""For how many seconds an older api-version than the newest is spoken before that is tried again: in older ones whole
types of events are hidden, and the service may know better by now."""

BETWEEN_NEWS = 0.25
"""How many seconds lie at least between two held requests that each bring something new: a VM has five requests a
second, and other programs on it ask as well."""


class Settings(msgspec.Struct, frozen=True):
    """How a client behaves; all are seconds. `wait` is how long an answer may be held, where the service offers it."""

    timeout: float = 10.0
    first_timeout: float = 130.0
    interval: float = 1.0
    wait: int = MAX_WAIT
    retry_for: float | None = None

    def __post_init__(self) -> None:
        if not (self.timeout > 0 and self.first_timeout > 0):
            raise ValueError("timeout and first_timeout are more than 0 seconds")
        if not (0 < self.interval < math.inf):
            raise ValueError("interval is more than 0 seconds, and not for ever")
        if self.retry_for is not None and not self.retry_for >= 0:
            raise ValueError("retry_for is 0 seconds or more")
        if not (0 <= self.wait <= MAX_WAIT):
            raise ValueError(f"wait is 0 to {MAX_WAIT} seconds")


class News(NamedTuple):
    """What a look brought: a document, if the service sent one, and how to ask the next time."""

    document: Document | None
    etag: str | None
    wait: int


NO_NEWS = News(None, None, 0)


class Conversation:
    """What is known of one service. Its flows may be carried out at the same time, by any threads."""

    def __init__(
        self,
        endpoint: str,
        settings: Settings,
        *,
        name: str | None,
        monotonic: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.endpoint = endpoint
        self.trouble: ClientError | None = None
        self._settings = settings
        self._name = name
        self._monotonic = monotonic
        self._chance = chance
        self._version: str | None = None
        self._version_found_at = 0.0
        self._answered_at: float | None = None

    def watch(self, *, mine: bool, since: Document | None) -> Flow[None]:
        """Give every change since then, for ever, whatever the service does."""
        seen, news, failures = since or Document(), NO_NEWS, 0
        while True:
            began_at = self._monotonic()
            try:
                name = (yield from self._own_name()) if mine else None
                news = yield from self._look(news)
            except ClientError as error:
                # It may be another service that answers next: what this one has said is no part of the question.
                news, failures = NO_NEWS, failures + 1
                self.trouble = error
                yield Sleep(pause_after(error, failures, self._chance()), error)
                continue
            self.trouble, failures = None, 0
            before, seen = seen, news.document or seen
            if changes := _changes(before, seen, name):
                yield Give(changes)
            # Only what is held can be asked for again soon, and only if that brings something new.
            spacing = BETWEEN_NEWS if _held_for(news) and seen != before else self._settings.interval
            if (pause := began_at + spacing - self._monotonic()) > 0:
                yield Sleep(pause)

    def document(self, retry_for: float | None) -> Flow[Document]:
        """Read the document once."""
        news = yield from self._patiently(lambda: self._look(NO_NEWS), retry_for)
        return news.document or Document()

    def approve(self, events: Iterable[Event | str], retry_for: float | None) -> Flow[None]:
        """Approve events, all or none. Approving twice is approving once, so it may be asked again."""
        body = _approval(events)
        yield from self._patiently(lambda: self._post(body), retry_for)

    def name(self, retry_for: float | None) -> Flow[str]:
        """Learn what this VM is called."""
        return (yield from self._patiently(self._own_name, retry_for))

    def _patiently(self, ask: Callable[[], Flow[T]], retry_for: float | None) -> Flow[T]:
        began_at, failures = self._monotonic(), 0
        limit = self._settings.retry_for if retry_for is None else retry_for
        while True:
            try:
                found = yield from ask()
            except ClientError as error:
                failures += 1
                self.trouble = error
                pause = pause_after(error, failures, self._chance())
                if self._monotonic() + pause > began_at + patience_with(error, limit):
                    raise
                yield Sleep(pause, error)
            else:
                self.trouble = None
                return found

    def _look(self, last: News) -> Flow[News]:
        if self._monotonic() - self._version_found_at > OLDER_FOR:
            self._version = None
        first = () if self._version is None else (self._version,)
        versions = tuple(dict.fromkeys((*first, *EVENTS_NEWEST_FIRST)))
        answer = yield from self._ask_events(lambda version: _query(version, last), versions, held_for=_held_for(last))
        wait = offered_wait(answer, self._settings.wait)
        if answer.status == 304:
            return News(None, last.etag, wait)
        try:
            document = read_document(answer.body)
        except InvalidDocument as error:
            raise NotUnderstood(self.endpoint, str(error)) from error
        return News(document, None if document is None else etag_of(answer), wait)

    def _post(self, body: bytes) -> Flow[None]:
        # Who has answered in a version knows it: what it does not find is the event, which no other version has either.
        known = self._version
        versions = EVENTS_NEWEST_FIRST if known is None else (known,)
        yield from self._ask_events(lambda version: _start_requests(version, body), versions)

    def _own_name(self) -> Flow[str]:
        """Ask for the name if it is not known yet. It stays what it is for as long as the VM runs."""
        if self._name is None:
            self._name = yield from self._who()
        return self._name

    def _who(self) -> Flow[str]:
        try:
            _, answer = yield from self._speak(_instance, (INSTANCE,), self._settings.timeout)
        except NoVersion as error:
            raise NoName(self.endpoint, f"status {error.status}") from error
        return name_in(self.endpoint, answer)

    def _ask_events(
        self, make: Callable[[str], Request], versions: tuple[str, ...], *, held_for: int = 0
    ) -> Flow[Answer]:
        try:
            version, answer = yield from self._speak(make, versions, self._patience_of_socket() + held_for)
        except ClientError as error:
            # Who says no is still the same; after anything else it may be another service that answers next.
            if error.is_passing or isinstance(error, NoVersion):
                self._version = None
            raise
        self._answered_at = self._monotonic()
        if version != self._version:
            self._version, self._version_found_at = version, self._answered_at
        return answer

    def _patience_of_socket(self) -> float:
        """Return how long an answer may take: the first one of a service that was off takes up to two minutes."""
        is_first = self._answered_at is None or self._monotonic() - self._answered_at > OFF_AFTER
        return self._settings.first_timeout if is_first else self._settings.timeout

    def _speak(
        self, make: Callable[[str], Request], known: tuple[str, ...], timeout: float
    ) -> Flow[tuple[str, Answer]]:
        """Ask in the first of the known versions, or else in one that the service knows; return it and the answer."""
        version = known[0]
        answer = yield from self._send(make(version), timeout)
        others = iter(versions_to_try(known, version, answer) if refuses_version(answer) else ())
        while refuses_version(answer) and (other := next(others, None)) is not None:
            version = other
            answer = yield from self._send(make(version), timeout)
        if (error := trouble_with(self.endpoint, make(version), answer)) is not None:
            raise error
        return version, answer

    def _send(self, request: Request, timeout: float) -> Flow[Answer]:
        reply = yield Send(request, timeout)
        if isinstance(reply, Answer):
            return reply
        if reply is None:
            raise TypeError("a request is replied to with its answer or failure")
        raise reply.kind(self.endpoint, reply.why)


def _changes(before: Document, after: Document, name: str | None) -> tuple[Change, ...]:
    if name is not None:
        before, after = before.affecting(name), after.affecting(name)
    return compare(before.events, after.events)


def _held_for(last: News) -> int:
    """Return for how many seconds the next answer is to be held: only what is named by an ETag can be waited for."""
    return 0 if last.etag is None else last.wait


def _query(version: str, last: News) -> Request:
    wait = _held_for(last)
    target = f"{EVENTS}?api-version={version}" + (f"&wait={wait}" if wait else "")
    return Request("GET", target, () if last.etag is None else (("If-None-Match", last.etag),))


def _start_requests(version: str, body: bytes) -> Request:
    return Request("POST", f"{EVENTS}?api-version={version}", (("Content-Type", "application/json"),), body)


def _instance(version: str) -> Request:
    return Request("GET", f"{INSTANCE_DOCUMENT}?api-version={version}&format=json")


def _approval(events: Iterable[Event | str]) -> bytes:
    return encode_approval([_id(event) for event in events])


def _id(event: object) -> str:
    id_ = event.id if isinstance(event, Event) else event
    # Ids are ASCII; anything else could not even be written as JSON.
    if not isinstance(id_, str) or not id_ or not id_.isascii():
        raise NotAnEvent(event)
    return id_
