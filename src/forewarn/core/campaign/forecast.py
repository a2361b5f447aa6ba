"""Forecast: when the windows allow the next wave to start, and which load is expected to be in impact then."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import NamedTuple

from forewarn.core.campaign.limits import CampaignLimits, ExceededLimit, Load, Usage
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.spec import CampaignPolicy
from forewarn.core.campaign.windows import DAY, Span, ZoneLookup, start_spans

FAR_FUTURE = datetime.max.replace(tzinfo=UTC)


class WindowCache:
    """The times in which waves may start. What was worked out once is kept: it is asked for with every step."""

    def __init__(self, policy: CampaignPolicy, zones: ZoneLookup) -> None:
        self._policy = policy
        self._zones = zones
        self._length = timedelta(0)
        self._since = FAR_FUTURE
        self._spans: Iterator[Span] = iter(())
        self._known: list[Span] = []

    def next(self, moment: datetime, length: timedelta) -> datetime | None:
        """Return the first moment, not before this one, at which a wave of this length may start; None: never."""
        if length != self._length or not self._since <= moment < self._since + DAY:
            self._length, self._since, self._known = length, moment, []
            self._spans = start_spans(self._policy, moment, length, self._zones)
        for span in chain(self._known, self._more()):
            if span.end > moment:
                return max(span.start, moment)
        return None

    def _more(self) -> Iterator[Span]:
        for span in self._spans:
            self._known.append(span)
            yield span


class InFlightWave(NamedTuple):
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
        self,
        in_flight: Mapping[str, InFlightWave],
        fleet_load: FleetLoad,
        limits: CampaignLimits,
        *,
        length: timedelta,
        now: datetime,
    ) -> None:
        self._in_flight = dict(in_flight)
        self._fleet_load = fleet_load
        self._limits = limits
        self._length = length
        self._now = now
        self._overdue = now - length
        self._moment: datetime | None = None
        self._usage = Usage()

    def find_exceeded(self, moment: datetime, load: Load) -> ExceededLimit | None:
        """Return the limit that leaves no room at the moment; None: there will be room."""
        if moment != self._moment:
            self._build(moment)
        amounts = self._usage.plus(load)
        return None if self._limits.allows(amounts) else self._limits.exceeded(amounts)[0]

    def add(self, wave: InFlightWave) -> None:
        """Count a wave that is announced now."""
        self._in_flight[wave.load.scope] = wave
        self._usage.add(wave.load)

    @property
    def has_end_now(self) -> bool:
        """Whether something that has begun is expected to end at this very moment."""
        return any(flight.begun and flight.start == self._overdue for flight in self._in_flight.values())

    def next_end(self, after: datetime) -> datetime | None:
        """Return when something is expected to end next."""
        latest = after - self._length
        starts = (
            flight.start for flight in self._in_flight.values() if flight.start > latest and not self._is_late(flight)
        )
        first = min(starts, default=None)
        return None if first is None else first + self._length

    def _build(self, moment: datetime) -> None:
        self._moment, self._usage = moment, Usage()
        latest = moment - self._length  # what starts later lasts beyond the moment
        for load in self._fleet_load.loads():
            wave = self._in_flight.get(load.scope)
            if wave is None or not wave.begun or wave.start > latest or self._is_late(wave):
                self._usage.add(load)
        for wave in self._in_flight.values():
            if not wave.begun and (wave.start > latest or self._is_late(wave)):
                self._usage.add(wave.load)

    def _is_late(self, wave: InFlightWave) -> bool:
        return wave.start < (self._overdue if wave.begun else self._now)
