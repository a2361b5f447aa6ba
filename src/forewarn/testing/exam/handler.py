"""The user's program in the handler role of a scenario: start it, and wait until it has reacted to changes."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.client.document import is_named
from forewarn.core.api_version import ApiVersion
from forewarn.core.event_type import EVENT_TYPES
from forewarn.guest.observer import Observed
from forewarn.testing.errors import WaitTimeout
from forewarn.testing.exam.catalog import ExamScenario
from forewarn.testing.exam.handler_process import HandlerProcess, LaunchContext, LaunchOptions
from forewarn.testing.exam.stall_watcher import Stall, StallWatcher, available_seconds
from forewarn.testing.exam.trace import ENOUGH_LOOKS, GOOD_STATUSES, DocumentSnapshot, HandlerTrace, is_long_poll
from forewarn.testing.service import Forewarn
from forewarn.testing.vm import Vm

FIRST_POLL_TIMEOUT = 10.0
"""How many seconds a program has for its first poll."""

REACTION_TIMEOUT = 8.0
"""How many seconds a program that polls has to receive a change."""

MAX_SILENCE = 30.0
"""After how many seconds without a request a program counts as silent: it would have missed an eviction."""

FRUITLESS_POLLS = 15
"""How many polls it has if they do not get a good response."""

USUAL_INTERVAL = 1.0
"""The poll interval in seconds that Azure recommends. Time that a program waits longer does not count."""

POLL_SLICE = 0.1
"""The seconds between two checks whether the program still runs."""

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
NO_PROXIES = ("no_proxy", "NO_PROXY")


class ScopeNews(NamedTuple):
    """What the program should know: the VM's own events with their status, and the ids of other VMs' events.

    The incarnation is None in scenarios that do not depend on it: other VMs' events may change it all the time.
    """

    own: frozenset[tuple[str, str]]
    others: frozenset[str]
    incarnation: int | None


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
        stalls: StallWatcher,
        is_over: threading.Event,
        on_end: Callable[[], None],
    ) -> None:
        self._launch, self._scenario, self._service = launch, scenario, service
        self._directory, self._environment, self._pace = directory, environment, pace
        self._stalls, self._is_over, self._on_end = stalls, is_over, on_end
        self._handled: ScopeNews | None = None
        self._is_silent = self._is_lost = False
        self.vm: v1.Vm | None = None
        self._endpoint: Vm | None = None
        self.process: HandlerProcess | None = None
        self.vm_removed_at: float | None = None
        self.extra_notice = 0.0
        """How many seconds of real time the notice is longer than usual, because the program polls rarely."""

    # The handler role.

    def start(self, vm: v1.Vm) -> None:
        """Start the program, and return after its first poll or FIRST_POLL_TIMEOUT."""
        self.vm, self._endpoint = vm, self._service.vm(f"{vm.scope}/{vm.name}")
        self.process = HandlerProcess(self._launch, self._launch_context(vm), on_end=self._on_end)
        process = self.process
        self._stalls.watch_program(lambda: process.pid)
        timeout, began_at = FIRST_POLL_TIMEOUT * self._pace, time.monotonic()
        while not self._polls():
            if not self._can_act() or self._stalls.available(began_at) > timeout:
                self._is_silent = True
                self._on_end()
                return
            self._wait_for_request()

    def catch_up(self) -> None:
        """Wait until the program has received the current document and polled again.

        Give up if it is silent, and after ENOUGH_LOOKS and REACTION_TIMEOUT: some programs never get a valid response.
        """
        if self.vm is None or not self._has_vm():
            return
        began_at = time.monotonic()
        while not self._is_up_to_date():
            # A program that did not get the last change in time only gets a few looks at the next.
            timeout = 0.0 if self._is_lost else REACTION_TIMEOUT * self._pace
            if not self._has_time(began_at, timeout):
                self._is_lost = True
                return
            self._wait_for_request()
        self._is_lost = False

    def has_time(self, began_at: float, timeout: float) -> bool:
        """Return whether the program still has time for a reaction: for this many seconds, and ENOUGH_LOOKS.

        A program that has ended or is silent has no time. If the notice is exact, only the seconds count.
        """
        if self._scenario.has_exact_notice and self._stalls.available(began_at) >= timeout:
            return False
        return self._has_time(began_at, timeout + self.extra_notice)

    def _has_time(self, began_at: float, timeout: float) -> bool:
        if not self._can_act() or self._is_silent:
            return False
        polls = self._polls()
        if self.silence > MAX_SILENCE * self._pace + (self._launch.interval or 0.0):
            self._is_silent = True
            return False
        since = [poll for poll in polls if poll.at > began_at]
        good = sum(poll.status in GOOD_STATUSES for poll in since)
        is_long = bool(polls) and is_long_poll(polls[-1])
        has_looked = is_long or good >= ENOUGH_LOOKS or len(since) >= FRUITLESS_POLLS
        return not has_looked or self._stalls.available(began_at) < timeout

    @property
    def silence(self) -> float:
        """The available seconds since the program's last request, or its response; 0 while it has a long poll."""
        requests = self._requests()
        if self.process is None or (requests and _is_pending_long_poll(requests[-1])):
            return 0.0
        # A request without a response may never get one: its connection may have been reset.
        last = self.process.began_at if not requests else requests[-1].answered_at or requests[-1].at
        return self._stalls.available(last)

    @property
    def poll_interval(self) -> float:
        """The usual seconds from one poll to the next; USUAL_INTERVAL if it is shorter or unknown."""
        return usual_interval(self._polls(), self._stalls.stalls)

    @property
    def waiting_time(self) -> float:
        """How many seconds the program has waited longer than USUAL_INTERVAL between its polls, in total."""
        long_gaps = ((one.at, next_.at) for one, next_ in pairwise(self._polls()) if next_.at - one.at > USUAL_INTERVAL)
        gaps = [self._stalls.available(*gap) for gap in long_gaps]
        return sum(max(0.0, gap - USUAL_INTERVAL) for gap in (*gaps, min(self.silence, MAX_SILENCE * self._pace)))

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
                self._service.api.vm(f"{self.vm.scope}/{self.vm.name}")
            except NotFound:
                self.vm_removed_at = time.monotonic()
        return self.vm_removed_at is None

    def _current_news(self) -> ScopeNews:
        if self.vm is None:
            return ScopeNews(frozenset(), frozenset(), None)
        version = self._version()
        events = self._service.api.events(scope=self.vm.scope)
        visible = [event for event in events if EVENT_TYPES[event.type].is_visible(version)]
        own = [event for event in visible if self._is_own(tuple(event.vms))]
        needs_incarnation = self._scenario.needs_every_document
        return ScopeNews(
            own=frozenset((event.id.upper(), str(event.status)) for event in own),
            others=frozenset({event.id.upper() for event in visible} - {event.id.upper() for event in own}),
            incarnation=self._service.api.scope(self.vm.scope).incarnation if needs_incarnation else None,
        )

    def _version(self) -> str:
        """Return the newest api-version with which the program has received a document."""
        return max(self._trace().versions, default=max(ApiVersion))

    def _is_up_to_date(self) -> bool:
        """Return whether the program has handled the current state, which its own requests may change meanwhile."""
        news = self._current_news()
        if news != self._handled and self._has_handled(news):
            self._handled = news
        return news == self._handled

    def _has_handled(self, news: ScopeNews) -> bool:
        """Return whether the program has received its own events in this state and all others, and polled again."""
        trace = self._trace()
        has_others = all(trace.first_document_with(id_) is not None for id_ in news.others)
        if not trace.documents or not has_others or not self._shows(trace.documents[-1], news):
            return False
        since = [poll for poll in trace.polls if poll.at > self._shown_since(trace, news)]
        return len(since) >= self._scenario.min_polls or any(map(_is_pending_long_poll, since))

    def _shows(self, document: DocumentSnapshot, news: ScopeNews) -> bool:
        own = (each for each in document.events.items() if self._is_own(each[1].resources))
        return news.incarnation in (None, document.incarnation) and news.own == {
            (id_, str(event.status)) for id_, event in own
        }

    def _shown_since(self, trace: HandlerTrace, news: ScopeNews) -> float:
        """Return since when every document has shown this state, and the program knows all other events."""
        since = trace.documents[-1].at
        for document in reversed(trace.documents):
            if not self._shows(document, news):
                break
            since = document.at
        others = map(trace.first_document_with, news.others)
        return max([since, *(document.at for document in others if document is not None)])

    def _is_own(self, resources: tuple[str, ...]) -> bool:
        return self.vm is not None and is_named(self.vm.name, resources)

    def _requests(self) -> list[Observed]:
        return [] if self._endpoint is None else self._service.newest_requests(self._endpoint)

    def _trace(self) -> HandlerTrace:
        name = "" if self.vm is None else self.vm.name
        return HandlerTrace(vm=name, requests=self._requests(), labels={}, began_at=0.0, finished_at=0.0)

    def _polls(self) -> tuple[Observed, ...]:
        return self._trace().polls

    def _can_act(self) -> bool:
        """Return whether the program runs and the scenario is not over."""
        has_ended = self.process is not None and self.process.exit_status is not None
        return not has_ended and not self._is_over.is_set()

    def _wait_for_request(self) -> None:
        """Wait for the program's next poll, at most POLL_SLICE."""
        if self._endpoint is not None:
            with suppress(WaitTimeout):
                self._service.wait_until_asked(self._endpoint, times=len(self._polls()) + 1, timeout=POLL_SLICE)


def usual_interval(polls: Sequence[Observed], stalls: Sequence[Stall]) -> float:
    """Return the seconds of a usual pause and of the fastest response; USUAL_INTERVAL if it is shorter or unknown.

    One late response must not make a program look slow.
    """
    pauses = [available_seconds(stalls, one.answered_at or one.at, next_.at) for one, next_ in pairwise(polls)]
    fastest = min((poll.answered_at - poll.at for poll in polls if poll.answered_at is not None), default=0.0)
    return max(USUAL_INTERVAL, median(pauses) + fastest) if pauses else USUAL_INTERVAL


def _is_pending_long_poll(poll: Observed) -> bool:
    """Return whether a request is a pending long poll: no other poll follows until it is answered."""
    return poll.status is None and is_long_poll(poll)
