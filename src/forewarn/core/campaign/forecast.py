"""Looking ahead: when a wave may start by the calendar, and how much is expected to be in impact by then."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import NamedTuple

from forewarn.core.campaign.limits import Ceilings, Exceeded, InUse, Load
from forewarn.core.campaign.load import Impacted
from forewarn.core.campaign.spec import CampaignPolicy
from forewarn.core.campaign.windows import DAY, Span, Zones, starts

FOR_EVER = datetime.max.replace(tzinfo=UTC)


class Times:
    """The times in which waves may start. What was worked out once is kept: it is asked for with every step."""

    def __init__(self, policy: CampaignPolicy, zones: Zones) -> None:
        self._policy = policy
        self._zones = zones
        self._length = timedelta(0)
        self._since = FOR_EVER
        self._spans: Iterator[Span] = iter(())
        self._known: list[Span] = []

    def next(self, moment: datetime, length: timedelta) -> datetime | None:
        """Return the first moment, not before this one, at which a wave of this length may start; None: never."""
        if length != self._length or not self._since <= moment < self._since + DAY:
            self._length, self._since, self._known = length, moment, []
            self._spans = starts(self._policy, moment, length, self._zones)
        for span in chain(self._known, self._more()):
            if span.end > moment:
                return max(span.start, moment)
        return None

    def _more(self) -> Iterator[Span]:
        for span in self._spans:
            self._known.append(span)
            yield span


class Flight(NamedTuple):
    """A wave that is announced, or has begun."""

    start: datetime
    begun: bool
    load: Load


class Forecast:
    """What is expected to be in impact when the notice of the next wave is over.

    What takes longer than expected, and what was announced and waits, is expected to last for ever: as long as
    something is late, nothing is announced that would have to wait for it.
    """

    def __init__(
        self, flights: Mapping[str, Flight], impacted: Impacted, ceilings: Ceilings, *, length: timedelta, now: datetime
    ) -> None:
        self._flights = dict(flights)
        self._impacted = impacted
        self._ceilings = ceilings
        self._length = length
        self._now = now
        self._overdue = now - length
        self._moment: datetime | None = None
        self._in_use = InUse()

    def lacks(self, moment: datetime, load: Load) -> Exceeded | None:
        """Return the limit that leaves no room at the moment; None: there will be room."""
        if moment != self._moment:
            self._build(moment)
        amounts = self._in_use.with_(load)
        return None if self._ceilings.keep(amounts) else self._ceilings.exceeded(amounts)[0]

    def take(self, flight: Flight) -> None:
        """Count a wave that is announced now."""
        self._flights[flight.load.scope] = flight
        self._in_use.take(flight.load)

    @property
    def expects_an_end_now(self) -> bool:
        """Whether something that has begun is expected to end at this very moment."""
        return any(flight.begun and flight.start == self._overdue for flight in self._flights.values())

    def next_end(self, after: datetime) -> datetime | None:
        """Return when something is expected to end next."""
        latest = after - self._length
        starts = (flight.start for flight in self._flights.values() if flight.start > latest and not self._late(flight))
        first = min(starts, default=None)
        return None if first is None else first + self._length

    def _build(self, moment: datetime) -> None:
        self._moment, self._in_use = moment, InUse()
        latest = moment - self._length  # what starts later lasts beyond the moment
        for load in self._impacted.loads():
            flight = self._flights.get(load.scope)
            if flight is None or not flight.begun or flight.start > latest or self._late(flight):
                self._in_use.take(load)
        for flight in self._flights.values():
            if not flight.begun and (flight.start > latest or self._late(flight)):
                self._in_use.take(flight.load)

    def _late(self, flight: Flight) -> bool:
        return flight.start < (self._overdue if flight.begun else self._now)
