"""What one peer asks and is answered, in order: bytes in, bytes out. Sockets and all waiting: see `connection`."""

from forewarn.guest.answers import CONTINUE, Answer, Letterhead, Misdated, refused
from forewarn.guest.callers import CONTESTED, Caller, Visitor
from forewarn.guest.desk import Desk
from forewarn.guest.endpoint import Later, Reply
from forewarn.guest.observing import Sight
from forewarn.guest.reading import CLOSED, KEPT_OPEN, Reader, Stage, Unreadable
from forewarn.wire.error_responses import TOO_MANY_REQUESTS, ErrorReason, ErrorResponse
from forewarn.wire.request import DocumentRequest, GuestRequest, VersionsRequest

KNOWN_BYTES = 2048
"""No client that asks every second sends more; a larger question is read anew each time."""


class Conversation:
    """One request after the other: from when `take_later` gives something until `reply`, nothing may be read."""

    __slots__ = (
        "_asked",
        "_began_at",
        "_caller",
        "_connection_line",
        "_desk",
        "_is_to_head",
        "_known_question",
        "_later",
        "_noted_at",
        "_owners_seen",
        "_reader",
        "_ready",
        "_sight",
        "answers",
        "answers_size",
        "is_over",
        "is_reset",
        "known",
        "lingers",
        "visitor",
    )

    _caller: Caller

    def __init__(self, desk: Desk, visitor: Visitor) -> None:
        self._desk = desk
        self.visitor = visitor
        self._reader = Reader(desk.limits)
        self._began_at: int | None = None
        self._asked: GuestRequest | ErrorResponse | None = None
        """What the present request asks for; None: its head has not come to its end."""
        self._connection_line = KEPT_OPEN
        self._is_to_head = False
        self.answers: list[bytes] = []
        """What is to be sent."""
        self.answers_size = 0
        self._later: Later | None = None
        self.is_over = False
        """Whether the last answer has been given: it says `Connection: close`."""
        self.lingers = False
        """Whether the peer may still be sending what nobody will read."""
        self.is_reset = False
        """Whether the connection is to be reset in place of an answer."""
        self.known = b""
        """The bytes of the last question without a body: when they come again, they need not be read again."""
        self._known_question: GuestRequest = VersionsRequest()
        self._ready: Answer | None = None
        """What `_caller` was answered to it, where that holds for as long as its scope stays the same."""
        self._noted_at = 0
        """The second in which the fleet was last told that the known question was asked."""
        self._owners_seen = -1
        """As of how many changes of the owners of addresses the known question came from `_caller`."""
        self._sight: Sight | None = None
        """The present request, if there is anybody who observes it."""

    def repeat(self) -> bytes | None:
        """Answer the known question once more as before; None, and nothing done, if anything has changed since.

        This is the hot path: every VM asks every second, and hardly ever is there anything new.
        """
        ready = self._ready
        if ready is None:
            return None
        desk, visitor, caller = self._desk, self.visitor, self._caller
        view, beats, tally, owners = caller.view, desk.beats, visitor.tally, visitor.owners
        if view.scope is not caller.scope:
            return None
        if self._owners_seen != owners.changes:  # to look into a dictionary of the whole fleet takes longer
            if owners.get(visitor.address) is not view:
                return None
            self._owners_seen = owners.changes
        if not tally.has_room(beats, desk.repeats):
            return None
        if self._noted_at != beats:
            if desk.note_request(view) is not None:
                return None
            self._noted_at = beats
            if not desk.is_time_real:
                self._noted_at = 0
                desk.renew_date()
        tally.requests += 1
        desk.counters.answers[ready.status] += 1
        return ready.render(desk.letterhead, KEPT_OPEN)

    @property
    def is_restrained(self) -> bool:
        """Whether the peer has been refused so often in this second that it is not listened to until the next."""
        return self.visitor.tally.is_restrained(self._desk.beats, self._desk.limits.refusals_per_second)

    @property
    def stage(self) -> Stage | None:
        """How far the present request has come; None: it has not begun."""
        return None if self._reader.is_at_start else self._reader.stage

    def begin(self) -> None:
        """Take note that the bytes to come are not those at hand before."""
        self._began_at = None

    def read(self, data: bytes, at: int) -> int:
        """Read on from there, as far as something can be done, do it, and return how far that is."""
        try:
            return self._read(data, at)
        except Unreadable as error:
            if self._sight is None:
                self._see()
            self.end(self._not_admitted() or error.refusal)
            return len(data)

    def end(self, refusal: ErrorResponse, *, lingers: bool = True) -> None:
        """Refuse, and let that be the last answer. The peer may not have sent yet all that it wants to send."""
        self._connection_line, self._is_to_head = CLOSED, False
        self.reply(refusal)
        self.lingers = lingers

    def reply(self, reply: Reply) -> None:
        """Answer the present request."""
        if isinstance(reply, Answer):
            self._give(reply, self._desk.letterhead)
        elif isinstance(reply, ErrorResponse):
            self._give(self._refused(reply), self._desk.letterhead)
        elif isinstance(reply, Misdated):
            answer = self._refused(reply.answer) if isinstance(reply.answer, ErrorResponse) else reply.answer
            self._give(answer, self._desk.misdated(reply.by))
        else:
            self.is_over = self.is_reset = True

    def take_answers(self) -> bytes:
        """Give what is to be sent, once."""
        sent = self.answers[0] if len(self.answers) == 1 else b"".join(self.answers)
        self.answers.clear()
        self.answers_size = 0
        return sent

    def take_later(self) -> Later | None:
        """Give what has to happen before the present request can be answered, if anything has to, once."""
        later, self._later = self._later, None
        return later

    def close(self) -> None:
        """Say goodbye."""
        self.is_over = True
        self.visitor.leave()
        self._reader.close()

    def _give(self, answer: Answer, letterhead: Letterhead) -> None:
        desk = self._desk
        if desk.is_closing:
            self._connection_line = CLOSED
        if not desk.is_time_real:
            desk.renew_date()
        self.is_over = self._connection_line is CLOSED
        desk.counters.answers[answer.status] += 1
        sent = answer.render(letterhead, self._connection_line)
        self._send(sent)
        if self._sight is not None:
            self._sight.answer(answer.status, sent)
            self._sight = None

    def _send(self, answer: bytes) -> None:
        self.answers.append(answer)
        self.answers_size += len(answer)

    def _refused(self, refusal: ErrorResponse) -> Answer:
        self._desk.counters.refusals[refusal.reason] += 1
        if refusal is CONTESTED:
            self._desk.counters.contested += 1
        if refusal.close:
            self._connection_line = CLOSED
            self.lingers = True
        return refused(refusal, to_head=self._is_to_head)

    def _read(self, data: bytes, at: int) -> int:
        reader = self._reader
        if reader.is_at_start:
            if self.known and data.startswith(self.known, at):
                self._ask_again()
                return at + len(self.known)
            self._began_at = at
        end = reader.read(data, at)
        if reader.stage is not Stage.HEAD and self._asked is None:
            self._take_head()
        if reader.stage is Stage.DONE and self._asked is not None and not self.is_over:
            self._take_request(self._asked, b"" if self._began_at is None else data[self._began_at : end])
        return end

    def _ask_again(self) -> None:
        self._connection_line, self._is_to_head = KEPT_OPEN, False
        self._answer(self._admit() or self._known_question, b"")

    def _take_head(self) -> None:
        """See who asks for what as soon as that can be told: the peer may wait for it before it sends the body."""
        reader = self._reader
        self._connection_line, self._is_to_head = reader.connection_line, reader.head.method == "HEAD"
        if self._desk.lookout is not None:
            self._see()
        self._asked = self._admit() or self._desk.endpoint.route(reader.head)
        if reader.is_expecting and isinstance(self._asked, ErrorResponse):
            self.end(self._asked)
        elif reader.is_expecting:
            self._send(CONTINUE)

    def _take_request(self, asked: GuestRequest | ErrorResponse, whole: bytes) -> None:
        """Answer a request that has come to its end; `whole` are its bytes, where all of them are at hand."""
        reader = self._reader
        is_plain = reader.connection_line is KEPT_OPEN and not reader.has_body
        body = reader.body
        if self._sight is not None:
            self._sight.take_body(body)
        elif is_plain and 0 < len(whole) <= KNOWN_BYTES and isinstance(asked, GuestRequest):
            self.known, self._known_question, self._ready = whole, asked, None
        reader.next()
        self._asked = None
        self._answer(asked, body)

    def _admit(self) -> ErrorResponse | None:
        """Count a request of a known caller, or refuse it."""
        caller, tally = self.visitor.recognise(), self.visitor.tally
        has_room = tally.has_room(self._desk.beats, self._desk.rate)
        if has_room and isinstance(caller, Caller):
            tally.requests += 1
            return None
        tally.refusals += 1
        return caller if isinstance(caller, ErrorResponse) else TOO_MANY_REQUESTS

    def _not_admitted(self) -> ErrorResponse | None:
        """Tell why the caller is not heard at all; that comes before whatever may be wrong with what it sends."""
        if self._asked is None:
            return self._admit()
        match self._asked:
            case ErrorResponse(reason=ErrorReason.UNKNOWN_CALLER | ErrorReason.RATE) as refusal:
                return refusal
            case _:
                return None

    def _answer(self, asked: GuestRequest | ErrorResponse, body: bytes) -> None:
        reply = asked if isinstance(asked, ErrorResponse) else self._respond(asked, body)
        if isinstance(reply, Reply):
            self.reply(reply)
        else:
            self._later = reply
            if self._sight is not None:
                self._sight.wait()

    def _see(self) -> None:
        lookout = self._desk.lookout
        self._sight = None if lookout is None else lookout.see(self.visitor, self._reader.head)

    def _respond(self, question: GuestRequest, body: bytes) -> Reply | Later:
        caller = self.visitor.recognise()
        if isinstance(caller, ErrorResponse):
            return caller
        mischief = self._desk.mischief
        if mischief is not None and mischief.threatens(question, caller):
            return mischief.respond(question, body, self.visitor, caller)
        reply = self._desk.endpoint.respond(question, body, self.visitor, caller)
        if question is self._known_question:
            self._caller = caller
            self._ready = reply if isinstance(question, DocumentRequest) and isinstance(reply, Answer) else None
        return reply
