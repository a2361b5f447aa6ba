"""What an endpoint has answered. What does not change is asked once, however many rows look at it."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from forewarn.client.endpoint import Endpoint
from forewarn.testing.conformance.course import Approval
from forewarn.testing.conformance.document import Document, Entry, NotChecked, Otherwise, read_document
from forewarn.testing.conformance.pace import Pace
from forewarn.testing.conformance.talking import (
    NOT_MODIFIED,
    SCHEDULED_EVENTS,
    Answer,
    Line,
    Request,
    Unanswered,
)
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS

T = TypeVar("T")

TOO_MANY_REQUESTS = 429
TRY_AGAIN_AFTER = frozenset({410, TOO_MANY_REQUESTS, 503})
"""Answers that say nothing of the question: the service is busy with itself, or with too many questions."""

LONGEST_REST = 15.0
MOST_RESTS = 8
"""How often we come back with the same question. With growing rests between, that is more than the 70 seconds for which
the real service may answer 410 while it is updated."""

RESTS_IN_ALL = 120.0
"""For how many seconds we let ourselves be sent away; after that, such an answer is one like any other."""

FIRST_ANSWER = 130.0
"""For how many seconds the very first answer may take: it can be what switches the feature on."""

EMPTY_ANSWERS = 120
"""How many times, a second apart, it may be empty for the same reason."""

CLOSES_WITHIN = 2.0
"""For how many seconds we look whether bytes follow that must not be there."""

QUERY = Request()


class SentAway(Unanswered):
    """The service says that it cannot answer now."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(f"the service sends us away, again and again: {answer}")


class Seen:
    """One look at an endpoint, taken at a polite pace."""

    def __init__(self, endpoint: Endpoint, *, pace: Pace, timeout: float, burst: bool = False) -> None:
        self.endpoint = endpoint
        self.pace = pace
        self.timeout = timeout
        self.burst = burst
        self.approval: Approval | None = None
        self.noted: list[str] = []
        """The exchanges since somebody began to note them, in words."""
        self.refused_for_rate: Answer | None = None
        self.later: list[Document] = []
        """Documents that were read after something had happened."""
        self._rest_left = RESTS_IN_ALL
        self._known: dict[Request, Answer | Unanswered] = {}
        self._documents: dict[str, Document] | NotChecked | None = None
        self.changes: list[tuple[Document, Document]] = []
        """Pairs of documents of the newest version, read one shortly after the other."""

    def ask(self, request: Request) -> Answer:
        """Ask, unless it has been asked before."""
        if request not in self._known:
            return self.ask_again(request)
        return self._told(request)

    def ask_again(self, request: Request, *, within: float | None = None) -> Answer:
        """Ask, even if it has been asked before."""
        patience = self.timeout if within is None else within
        try:
            self._known[request] = self.converse(lambda line: self._exchange(line, request, patience))
        except Unanswered as error:
            self._known[request] = error
        return self._told(request)

    def begin(self) -> Answer:
        """Ask for the first time; a service that is switched on by it may be slow, or have nothing to say for long."""
        answer = self.ask_again(QUERY, within=max(FIRST_ANSWER, self.timeout))
        for _ in range(EMPTY_ANSWERS):
            if answer.status != 200 or answer.body.strip():
                break
            self.pace.rest(1.0)
            answer = self.ask_again(QUERY)
        return answer

    def line(self) -> Line:
        """Open a connection for the next request."""
        self.pace.next()
        return Line(self.endpoint, self.timeout)

    def converse(self, talk: Callable[[Line], T]) -> T:
        """Talk on a connection, and again on another one when the service has sent us away, as it asks."""
        for number in range(MOST_RESTS):
            try:
                return self._talk(talk)
            except SentAway as away:
                rest = _rest_after(away.answer, number)
                if rest > self._rest_left:
                    raise
                self._rest_left -= rest
                self.pace.rest(rest)
        return self._talk(talk)

    def hear(self, line: Line, request: Request | None = None, *, within: float | None = None) -> Answer:
        """Read the next answer; SentAway if it says nothing of what was asked."""
        answer = line.answer(request, within=within)
        if answer.status == TOO_MANY_REQUESTS:
            self.refused_for_rate = self.refused_for_rate or answer
        if answer.status in TRY_AGAIN_AFTER:
            raise SentAway(answer)
        return answer

    def note(self, request: Request | str, outcome: Answer | Unanswered) -> None:
        """Remember an exchange in words."""
        self.noted.append(f"{request} → {outcome}")

    def documents(self) -> Mapping[str, Document]:
        """Return the document in every version in which it can be read, all of the same moment."""
        if self._documents is None:
            try:
                self._documents = self._steady_documents()
            except NotChecked as error:
                self._documents = error
        if isinstance(self._documents, NotChecked):
            raise NotChecked(str(self._documents))
        return self._documents

    def document(self, version: str = NEWEST_VERSION) -> Document:
        """Return the document of one version."""
        found = self.documents().get(version)
        if found is None:
            raise NotChecked(f"there is no document in version {version}")
        return found

    def read_document(self, version: str = NEWEST_VERSION) -> Document:
        """Read the document as it is now."""
        return read_document(self.ask_again(query(version)))

    def events(self, condition: Callable[[Entry], bool] = lambda _: True, *, what: str = "event") -> list[Entry]:
        """Return all events that were seen, of the newest version, under a condition; there must be some."""
        seen = [event for document in (self.document(), *self.later) for event in document.events if condition(event)]
        if not seen:
            raise NotChecked(f"there is no {what}")
        return seen

    def unchanged(self, if_none_match: Callable[[str], str], *, target: str | None = None) -> Answer:
        """Ask whether the document is still the same, in whatever way, and return the 304."""
        for _ in range(3):
            before = self.ask_again(QUERY)
            asked = conditional(if_none_match(etag(before)), target)
            answer = self.ask_again(asked)
            if answer.status == NOT_MODIFIED:
                return answer
            if self.ask_again(QUERY).body == before.body:
                raise Otherwise(f"nothing has changed, and the answer is {answer.status}")
        raise NotChecked("the document changes all the time")

    def _talk(self, talk: Callable[[Line], T]) -> T:
        with self.line() as line:
            return talk(line)

    def _told(self, request: Request) -> Answer:
        outcome = self._known[request]
        self.note(request, outcome)
        if isinstance(outcome, Unanswered):
            raise Unanswered(str(outcome))
        return outcome

    def _exchange(self, line: Line, request: Request, within: float) -> Answer:
        line.send(request)
        answer = self.hear(line, request, within=within)
        if request.method != "HEAD" and answer.status != NOT_MODIFIED:
            return answer
        # Neither has a body: what still comes is one all the same.
        too_much, _ = line.rest(CLOSES_WITHIN)
        return msgspec.structs.replace(answer, body=too_much)

    def _steady_documents(self) -> dict[str, Document]:
        for _ in range(3):
            before = read_document(self.ask_again(QUERY))
            found = dict(self._readable_documents())
            after = read_document(self.ask_again(QUERY))
            self.changes.append((before, after))
            if before.events == after.events:
                return found
        raise NotChecked("the events change while they are read")

    def _readable_documents(self) -> list[tuple[str, Document]]:
        found = []
        for version in VERSIONS:
            try:
                found.append((version, read_document(self.ask_again(query(version)))))
            except (NotChecked, Unanswered):
                continue
        return found


def query(version: str) -> Request:
    """Ask for the document in a version."""
    return Request(target=f"{SCHEDULED_EVENTS}?api-version={version}")


def conditional(if_none_match: str, target: str | None = None) -> Request:
    """Ask for the document, unless it is the one that is known already."""
    return Request(target=target or QUERY.target, headers=(*QUERY.headers, ("If-None-Match", if_none_match)))


def etag(answer: Answer) -> str:
    """Return the ETag of an answer; there must be one."""
    if not (found := answer.header("etag")):
        raise NotChecked("the answer has no ETag")
    return found


def _rest_after(answer: Answer, number: int) -> float:
    """Return for how many seconds to stay away: as long as we are told to, else longer each time."""
    asked = answer.header("retry-after") or ""
    told = asked.isascii() and asked.isdigit() and len(asked) < 9
    return min(float(asked) if told else 2.0**number, LONGEST_REST)
