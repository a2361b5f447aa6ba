"""The handler's part in a story, played by the user's program: when it begins, and when it has had its chance."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.client.document import is_named
from forewarn.guest.observer import Observed
from forewarn.testing.errors import NotSeen
from forewarn.testing.exam.program import Place, Running, Way
from forewarn.testing.exam.record import Record
from forewarn.testing.exam.sheets import Sheet
from forewarn.testing.service import Forewarn

FIRST_QUESTION = 10.0
"""How many seconds a program has until it asks for the first time."""

CHANCE = 8.0
"""How many seconds it has to notice a change."""

SLICE = 0.1
"""How often one looks whether it is still there, in seconds."""

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
NO_PROXIES = ("no_proxy", "NO_PROXY")

Notice = tuple[frozenset[tuple[str, str]], frozenset[str]]
"""What there is to notice: the VM's own events with their status, and the others'."""


class Candidate:
    """Plays the handler. `on_end` is called, from another thread, when the program ends by itself."""

    def __init__(
        self,
        way: Way,
        sheet: Sheet,
        service: Forewarn,
        *,
        folder: Path,
        environment: dict[str, str],
        pace: float,
        is_over: threading.Event,
        on_end: Callable[[], None],
    ) -> None:
        self._way, self._sheet, self._service = way, sheet, service
        self._folder, self._environment, self._pace = folder, environment, pace
        self._is_over, self._on_end = is_over, on_end
        self._digested: Notice | None = None
        self._is_silent = False
        self.vm: v1.Vm | None = None
        self.running: Running | None = None
        self.left_at: float | None = None

    # The part.

    def begin(self, vm: v1.Vm) -> None:
        """Begin the program, and return when it has asked, or will not."""
        self.vm = vm
        self.running = Running(self._way, self._place(vm), on_end=self._on_end)
        if not self._until(lambda: bool(self._questions()), FIRST_QUESTION):
            self._is_silent = True
            self._on_end()

    def keep_up(self) -> None:
        """Return when it has been told what there is to tell, and has come back for more; or when it does not come."""
        if self.vm is None or self._is_silent or not self._is_there():
            return
        before = len(self._questions())
        if not self._until(self._is_up_to_date, CHANCE) and len(self._questions()) == before:
            self._is_silent = True

    def end(self) -> None:
        """End the program."""
        if self.running is not None:
            self.running.end()

    # Inside.

    def _place(self, vm: v1.Vm) -> Place:
        url = vm.guest_url or ""
        socket = None if self._way.is_told_url else Path(self._service.api.open_socket(f"{vm.scope}/{vm.name}").path)
        return Place(
            url=url,
            host_name=self._sheet.host_name or vm.name,
            folder=self._folder,
            environment={**self._environment, **(self._proxies(url, socket) if self._sheet.has_proxy else {})},
            socket=socket,
        )

    def _proxies(self, url: str, socket: Path | None) -> dict[str, str]:
        """Name the endpoint itself as the proxy: what comes there as if to a proxy gives itself away."""
        proxy = url if socket is None else "http://169.254.169.254:80"
        return {**dict.fromkeys(PROXIES, proxy), **dict.fromkeys(NO_PROXIES, "")}

    def _is_there(self) -> bool:
        """Tell whether the VM is; when it is gone its program cannot notice anything."""
        if self.left_at is None and self.vm is not None:
            try:
                self._service.api.vm(self._name)
            except NotFound:
                self.left_at = time.monotonic()
        return self.left_at is None

    def _notice(self) -> Notice:
        events = [] if self.vm is None else list(self._service.api.events(scope=self.vm.scope))
        own = [event for event in events if is_named(self._own_name, tuple(event.vms))]
        others = {event.id.upper() for event in events} - {event.id.upper() for event in own}
        return frozenset((event.id.upper(), event.status) for event in own), frozenset(others)

    def _is_up_to_date(self) -> bool:
        """Tell whether it knows all that there is to know now; what it does may change that meanwhile."""
        now = self._notice()
        if now != self._digested and self._has_digested(now):
            self._digested = now
        return now == self._digested

    def _has_digested(self, notice: Notice) -> bool:
        """Tell whether it was told just this of its own events, of every other's at some time, and has asked again."""
        record = self._record()
        own, others = notice
        told_others = {id_ for told in record.told for id_, event in told.events.items() if not self._is_own(event)}
        if not record.told or not others <= told_others:
            return False
        latest = record.told[-1]
        told = {(id_, str(event.status)) for id_, event in latest.events.items() if self._is_own(event)}
        if told != own:
            return False
        since = [question for question in record.questions if question.at > self._first_such(record, told)]
        return len(since) >= self._sheet.looks or any(map(_is_held, since))

    def _first_such(self, record: Record, own: set[tuple[str, str]]) -> float:
        """Return since when it has been told just this."""
        since = record.told[-1].at
        for told in reversed(record.told):
            if {(id_, str(event.status)) for id_, event in told.events.items() if self._is_own(event)} != own:
                break
            since = told.at
        return since

    def _is_own(self, event: object) -> bool:
        resources = getattr(event, "resources", ())
        return is_named(self._own_name, resources)

    def _record(self) -> Record:
        return Record(
            vm=self._own_name, requests=self._service.newest_requests(self._name), labels={}, began_at=0.0, over_at=0.0
        )

    def _questions(self) -> tuple[Observed, ...]:
        return self._record().questions

    @property
    def _name(self) -> str:
        return "" if self.vm is None else f"{self.vm.scope}/{self.vm.name}"

    @property
    def _own_name(self) -> str:
        return "" if self.vm is None else self.vm.name

    def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to be so, while the program runs and the scenario is not over."""
        end = time.monotonic() + seconds * self._pace
        while not is_so():
            has_ended = self.running is not None and self.running.ended is not None
            if has_ended or self._is_over.is_set() or time.monotonic() > end:
                return False
            with suppress(NotSeen):
                self._service.wait_until_asked(self._name, times=len(self._questions()) + 1, timeout=SLICE)
        return True


def _is_held(question: Observed) -> bool:
    """Tell whether a question waits for the next change, so that no other one comes."""
    return question.status is None and "wait=" in question.target.lower()
