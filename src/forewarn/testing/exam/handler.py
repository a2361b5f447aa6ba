"""The user's program in the handler role of a scenario: start it, and wait until it has reacted to changes."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.client.document import is_named
from forewarn.guest.observer import Observed
from forewarn.testing.errors import WaitTimeout
from forewarn.testing.exam.catalog import ExamScenario
from forewarn.testing.exam.handler_process import HandlerProcess, LaunchContext, LaunchOptions
from forewarn.testing.exam.trace import HandlerTrace
from forewarn.testing.service import Forewarn

FIRST_POLL_TIMEOUT = 10.0
"""How many seconds a program has for its first poll."""

REACTION_TIMEOUT = 8.0
"""How many seconds a program has to notice a change."""

POLL_SLICE = 0.1
"""The seconds between two checks whether the program still runs."""

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
NO_PROXIES = ("no_proxy", "NO_PROXY")

ScopeNews = tuple[frozenset[tuple[str, str]], frozenset[str]]
"""What the program should know: the VM's own events with their status, and the ids of other VMs' events."""


class ExamHandler:
    """Runs the program as the handler. `on_end` is called, from another thread, when the program ends by itself."""

    def __init__(
        self,
        launch: LaunchOptions,
        scenario: ExamScenario,
        service: Forewarn,
        *,
        directory: Path,
        environment: dict[str, str],
        pace: float,
        is_over: threading.Event,
        on_end: Callable[[], None],
    ) -> None:
        self._launch, self._scenario, self._service = launch, scenario, service
        self._directory, self._environment, self._pace = directory, environment, pace
        self._is_over, self._on_end = is_over, on_end
        self._handled: ScopeNews | None = None
        self._is_unresponsive = False
        self.vm: v1.Vm | None = None
        self.process: HandlerProcess | None = None
        self.vm_removed_at: float | None = None

    # The handler role.

    def start(self, vm: v1.Vm) -> None:
        """Start the program, and return after its first poll or FIRST_POLL_TIMEOUT."""
        self.vm = vm
        self.process = HandlerProcess(self._launch, self._launch_context(vm), on_end=self._on_end)
        if not self._wait_for(lambda: bool(self._polls()), FIRST_POLL_TIMEOUT):
            self._is_unresponsive = True
            self._on_end()

    def catch_up(self) -> None:
        """Wait until the program has received the current document and polled again, or until REACTION_TIMEOUT."""
        if self.vm is None or self._is_unresponsive or not self._has_vm():
            return
        before = len(self._polls())
        if not self._wait_for(self._is_up_to_date, REACTION_TIMEOUT) and len(self._polls()) == before:
            self._is_unresponsive = True

    def end(self) -> None:
        """Stop the program."""
        if self.process is not None:
            self.process.stop()

    def _launch_context(self, vm: v1.Vm) -> LaunchContext:
        url = vm.guest_url or ""
        socket = (
            None if self._launch.receives_url else Path(self._service.api.open_socket(f"{vm.scope}/{vm.name}").path)
        )
        return LaunchContext(
            url=url,
            host_name=self._scenario.host_name or vm.name,
            directory=self._directory,
            environment={**self._environment, **(self._proxies(url, socket) if self._scenario.has_proxy else {})},
            socket=socket,
        )

    def _proxies(self, url: str, socket: Path | None) -> dict[str, str]:
        """Return proxy variables that name the endpoint itself, which recognises requests that are sent to a proxy."""
        proxy = url if socket is None else "http://169.254.169.254:80"
        return {**dict.fromkeys(PROXIES, proxy), **dict.fromkeys(NO_PROXIES, "")}

    def _has_vm(self) -> bool:
        """Return whether the VM still exists; once it is removed, its program cannot receive anything."""
        if self.vm_removed_at is None and self.vm is not None:
            try:
                self._service.api.vm(self._name)
            except NotFound:
                self.vm_removed_at = time.monotonic()
        return self.vm_removed_at is None

    def _current_news(self) -> ScopeNews:
        events = [] if self.vm is None else list(self._service.api.events(scope=self.vm.scope))
        own = [event for event in events if is_named(self._vm_name, tuple(event.vms))]
        others = {event.id.upper() for event in events} - {event.id.upper() for event in own}
        return frozenset((event.id.upper(), event.status) for event in own), frozenset(others)

    def _is_up_to_date(self) -> bool:
        """Return whether the program has handled the current state, which its own requests may change meanwhile."""
        news = self._current_news()
        if news != self._handled and self._has_handled(news):
            self._handled = news
        return news == self._handled

    def _has_handled(self, news: ScopeNews) -> bool:
        """Return whether the program has received its own events in this state and all others, and polled again."""
        trace = self._trace()
        own, others = news
        shown_others = {
            id_ for document in trace.documents for id_, event in document.events.items() if not self._is_own(event)
        }
        if not trace.documents or not others <= shown_others:
            return False
        latest = trace.documents[-1]
        shown = {(id_, str(event.status)) for id_, event in latest.events.items() if self._is_own(event)}
        if shown != own:
            return False
        since = [poll for poll in trace.polls if poll.at > self._shown_since(trace, shown)]
        return len(since) >= self._scenario.min_polls or any(map(_is_long_poll, since))

    def _shown_since(self, trace: HandlerTrace, own: set[tuple[str, str]]) -> float:
        """Return since when every document has shown the VM's own events in this state."""
        since = trace.documents[-1].at
        for document in reversed(trace.documents):
            if {(id_, str(event.status)) for id_, event in document.events.items() if self._is_own(event)} != own:
                break
            since = document.at
        return since

    def _is_own(self, event: object) -> bool:
        resources = getattr(event, "resources", ())
        return is_named(self._vm_name, resources)

    def _trace(self) -> HandlerTrace:
        return HandlerTrace(
            vm=self._vm_name,
            requests=self._service.newest_requests(self._name),
            labels={},
            began_at=0.0,
            finished_at=0.0,
        )

    def _polls(self) -> tuple[Observed, ...]:
        return self._trace().polls

    @property
    def _name(self) -> str:
        return "" if self.vm is None else f"{self.vm.scope}/{self.vm.name}"

    @property
    def _vm_name(self) -> str:
        return "" if self.vm is None else self.vm.name

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition is true, as long as the program runs and the scenario is not over."""
        deadline = time.monotonic() + seconds * self._pace
        while not condition():
            has_ended = self.process is not None and self.process.exit_status is not None
            if has_ended or self._is_over.is_set() or time.monotonic() > deadline:
                return False
            with suppress(WaitTimeout):
                self._service.wait_until_asked(self._name, times=len(self._polls()) + 1, timeout=POLL_SLICE)
        return True


def _is_long_poll(poll: Observed) -> bool:
    """Return whether a request is a pending long poll: no other poll follows until it is answered."""
    return poll.status is None and "wait=" in poll.target.lower()
