"""The load that is expected at the time at which waves are to start, and whether limits leave room for them."""

from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush

from forewarn.core.campaign.limits import CampaignLimits, ExceededLimit, Load, Usage
from forewarn.core.campaign.record import SECOND

FAR_FUTURE = datetime.max.replace(tzinfo=UTC)

LoadChange = tuple[datetime, int, Load, bool]
"""The time at which a load starts or ends, a sequence number, the load, and whether it starts."""


class ExpectedLoad:
    """The load that waves meet which start at one time and take as long as expected; the time only moves forward."""

    def __init__(self, limits: CampaignLimits, length: timedelta, *, at: datetime) -> None:
        self.limits = limits
        self._length = length
        self._moment, self._usage = at, Usage()
        self._changes: list[LoadChange] = []
        self._change_count = 0
        self._is_heap = False
        """Whether the changes are a heap, which they become when the next one is first requested."""

    def add(self, load: Load, start: datetime, end: datetime) -> None:
        """Add a load from its start to its end; no wave fits that would exceed a limit in that time."""
        if end <= self._moment:
            return
        if start <= self._moment or (comes_at := start - self._length + SECOND) <= self._moment:
            self._usage.add(load)
        else:
            self._add_change(comes_at, load, comes=True)
        if end < FAR_FUTURE:
            self._add_change(end, load, comes=False)

    def advance(self, moment: datetime) -> None:
        """Move the time forward."""
        self._moment = moment
        while (at := self.next_change) is not None and at <= moment:
            _, _, load, comes = heappop(self._changes)
            if comes:
                self._usage.add(load)
            else:
                self._usage.remove(load)

    @property
    def next_change(self) -> datetime | None:
        """The next time at which a load starts or ends."""
        if not self._is_heap:
            heapify(self._changes)
            self._is_heap = True
        return self._changes[0][0] if self._changes else None

    def _add_change(self, at: datetime, load: Load, *, comes: bool) -> None:
        self._change_count += 1
        change = (at, self._change_count, load, comes)
        if self._is_heap:
            heappush(self._changes, change)
        else:
            self._changes.append(change)

    @property
    def hosts(self) -> set[str]:
        """The hosts with a load."""
        return self._usage.hosts

    def fits(self, load: Load) -> bool:
        """Return whether the limits leave room for a load."""
        return self.limits.allows(self._usage.plus(load))

    def exceeded(self, load: Load) -> ExceededLimit | None:
        """Return the limit that a load would exceed; None if there is room."""
        amounts = self._usage.plus(load)
        return None if self.limits.allows(amounts) else self.limits.exceeded(amounts)[0]
