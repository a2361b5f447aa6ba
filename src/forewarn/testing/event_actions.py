"""Create and cancel events from a test, as operators and VM owners do."""

from abc import ABC, abstractmethod

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.event import EventType
from forewarn.testing.duration import DurationLike, to_optional_text, to_text
from forewarn.testing.errors import InvalidEventType
from forewarn.testing.event import Event
from forewarn.testing.vm import VmLike


class EventActions(ABC):
    """Methods that create and cancel events through the operator API."""

    @property
    @abstractmethod
    def api(self) -> ApiClient:
        """The operator API."""

    def schedule(
        self,
        type_: EventType | str,
        vm: VmLike,
        *,
        notice: DurationLike | None = None,
        duration: DurationLike | None = None,
        description: str = "",
        why: str = "",
    ) -> Event:
        """Schedule maintenance of one VM."""
        __tracebackhide__ = True
        return self._only(
            self.schedule_all(type_, vm, notice=notice, duration=duration, description=description, why=why)
        )

    def schedule_all(
        self,
        type_: EventType | str,
        *vms: VmLike,
        scope: str | None = None,
        host: str | None = None,
        notice: DurationLike | None = None,
        duration: DurationLike | None = None,
        description: str = "",
        why: str = "",
    ) -> list[Event]:
        """Schedule maintenance of several VMs, a scope or a host: one event per update domain and host."""
        __tracebackhide__ = True
        request = v1.ScheduleEvents(
            type=_event_type(type_),
            vms=[str(vm) for vm in vms],
            scope=scope,
            host=host,
            notice=to_optional_text(notice),
            duration=to_optional_text(duration),
            description=description,
            reason=why,
        )
        return self._events(self.api.schedule(request))

    def restart(self, vm: VmLike, *, why: str = "") -> Event:
        """Restart a VM as its owner does: the source of the event is the user."""
        return self._only(self._events(self.api.restart(v1.Operate(vm=str(vm), reason=why))))

    def redeploy(self, vm: VmLike, *, why: str = "") -> Event:
        """Redeploy a VM to another host as its owner does."""
        return self._only(self._events(self.api.redeploy(v1.Operate(vm=str(vm), reason=why))))

    def delete(self, vm: VmLike, *, why: str = "") -> Event | None:
        """Delete a VM: with a Terminate event if it has a terminate profile, otherwise at once and without an event."""
        events = self._events(self.api.delete(v1.Operate(vm=str(vm), reason=why)))
        return events[0] if events else None

    def evict(self, vm: VmLike, *, notice: DurationLike | None = None, why: str = "") -> Event:
        """Evict a low-priority VM."""
        request = v1.Evict(vm=str(vm), notice=to_optional_text(notice), reason=why)
        return self._only(self._events(self.api.evict(request)))

    def fail(self, vm: VmLike, *, why: str = "") -> Event:
        """Simulate a hardware failure of a VM's host: the event has started when this returns."""
        return self._only(self._events(self.api.fail(v1.Fail(vms=[str(vm)], reason=why))))

    def predict_failure(self, vm: VmLike, *, ahead: DurationLike, why: str = "") -> Event:
        """Schedule an event for a predicted hardware failure of a VM's host."""
        request = v1.PredictFailure(vms=[str(vm)], notice=to_text(ahead), reason=why)
        return self._only(self._events(self.api.predict_failure(request)))

    def cancel(self, event: Event | str, *, why: str = "") -> None:
        """Cancel a Scheduled event."""
        self.api.cancel(str(event), v1.CancelEvent(reason=why))

    @property
    def events(self) -> list[Event]:
        """All open events, by scope and in order of creation."""
        return [Event(self.api, event.id, event.scope) for event in self.api.events()]

    def _events(self, scheduled: v1.ScheduleResponse) -> list[Event]:
        return [Event(self.api, one.id, one.scope) for one in scheduled.created]

    def _only(self, events: list[Event]) -> Event:
        (event,) = events
        return event


def _event_type(value: EventType | str) -> EventType:
    __tracebackhide__ = True
    try:
        return EventType(value)
    except ValueError:
        raise InvalidEventType(value, list(EventType)) from None
