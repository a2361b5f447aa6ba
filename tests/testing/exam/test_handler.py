"""Tests of the program in the handler role: its start, its reaction to changes, and its end."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.guest.observer import Observed
from forewarn.testing.exam import LaunchOptions, exam_scenarios
from forewarn.testing.exam.catalog import ExamScenario
from forewarn.testing.exam.handler import NO_PROXIES, PROXIES, USUAL_INTERVAL, ExamHandler, usual_interval
from forewarn.testing.exam.stall_watcher import Stall, StallWatcher
from forewarn.testing.service import Forewarn
from tests.testing.exam.traces import ask

pytestmark = pytest.mark.process

SAMPLE = Path(__file__).with_name("sample_handler.py")
GUARD = 60.0
NEVER = 1e6
"""A pace at which no timeout of the exam is reached."""

SCENARIOS = {scenario.name: scenario for scenario in exam_scenarios()}
SHOW_PROXIES = "import os, sys; print(*map(os.environ.get, sys.argv[1:]), sep='|')"


def polls(*times: tuple[float, float]) -> list[Observed]:
    """Return polls with the times of request and response."""
    return [msgspec.structs.replace(ask(at), answered_at=answered_at) for at, answered_at in times]


@pytest.mark.parametrize(
    ("observed", "stalls", "expected"),
    [
        (polls(), [], USUAL_INTERVAL),
        (polls((1.0, 1.0)), [], USUAL_INTERVAL),
        (polls((1.0, 1.0), (1.3, 1.3), (1.6, 1.6)), [], USUAL_INTERVAL),
        (polls((1.0, 1.0), (4.0, 4.0), (7.0, 7.0)), [], 3.0),
        (polls((1.0, 1.0), (4.0, 4.0)), [Stall(1.0, 4.0, 1.5)], 1.5),
        (polls((1.0, 5.0), (6.5, 6.5)), [], 1.5),
        (polls((1.0, 4.0), (5.0, 8.0), (9.0, 12.0)), [], 4.0),
    ],
    ids=[
        "no poll",
        "one poll",
        "polls often",
        "polls rarely",
        "waited for a processor",
        "late first response",
        "slow responses",
    ],
)
def test_poll_interval_is_a_usual_pause_and_the_fastest_response(
    observed: list[Observed], stalls: list[Stall], expected: float
) -> None:
    assert usual_interval(observed, stalls) == pytest.approx(expected)


class Run:
    """A handler in a service; `ended` is set when it reports its end."""

    def __init__(self, service: Forewarn, directory: Path, command: tuple[str, ...], scenario: ExamScenario) -> None:
        self.ended = threading.Event()
        self.is_over = threading.Event()
        self.service = service
        self.handler = ExamHandler(
            LaunchOptions(command=(sys.executable, *command), url_variable="EXAM_URL"),
            scenario,
            service,
            directory=directory,
            environment={},
            pace=NEVER,
            stalls=StallWatcher(),
            is_over=self.is_over,
            on_end=self.ended.set,
        )

    def start(self) -> None:
        self.handler.start(self.service.api.vm("web/web-0"))

    def requests(self, method: str) -> list[str]:
        return [each.target for each in self.service.newest_requests("web/web-0") if each.method == method]


@contextmanager
def run_handler(directory: Path, *command: str, scenario: str = "user-restart") -> Iterator[Run]:
    with Forewarn() as service:
        run = Run(service, directory, command, SCENARIOS[scenario])
        try:
            yield run
        finally:
            run.handler.end()


def test_start_returns_after_the_first_poll(tmp_path: Path) -> None:
    with run_handler(tmp_path, str(SAMPLE), "none") as run:
        run.start()
        polls = run.requests("GET")
        assert (run.ended.is_set(), run.handler.vm_removed_at) == (False, None)
    assert any(target.startswith("/metadata/scheduledevents") for target in polls)


def test_program_has_reacted_after_catching_up(tmp_path: Path) -> None:
    with run_handler(tmp_path, str(SAMPLE), "none") as run:
        run.start()
        run.service.restart("web-0")
        run.handler.catch_up()
        assert len(run.requests("POST")) == 1


def test_program_has_polled_again_after_it_received_the_event_of_another_vm(tmp_path: Path) -> None:
    with run_handler(tmp_path, str(SAMPLE), "none", scenario="event-for-another-vm") as run:
        run.start()
        run.service.wait_until_asked("web/web-0", times=5, timeout=GUARD)
        run.service.restart("web-1")
        run.handler.catch_up()
        answers = [each.answer for each in run.service.newest_requests("web/web-0") if each.status in (200, None)]
    first = next(number for number, answer in enumerate(answers) if b"web-1" in answer)
    assert len(answers) - first > SCENARIOS["event-for-another-vm"].min_polls


def test_start_returns_when_the_program_ends(tmp_path: Path) -> None:
    with run_handler(tmp_path, "-c", "raise SystemExit(4)") as run:
        run.start()
        assert run.ended.wait(GUARD)
        process = run.handler.process
        assert process is not None
        assert process.exit_status is not None
        assert process.exit_status.code == 4
        run.handler.catch_up()


def test_start_returns_when_the_run_is_over(tmp_path: Path) -> None:
    with run_handler(tmp_path, "-c", "import signal; signal.pause()") as run:
        run.is_over.set()
        run.start()
        assert run.ended.is_set()
        assert run.requests("GET") == []


def test_removed_vm_needs_no_reaction(tmp_path: Path) -> None:
    with run_handler(tmp_path, str(SAMPLE), "none") as run:
        run.start()
        run.service.api.remove_vm("web/web-0", force=True, reason="scale in")
        run.handler.catch_up()
        assert run.handler.vm_removed_at is not None


def test_handler_without_a_program_has_nothing_to_wait_for_or_end(tmp_path: Path) -> None:
    with run_handler(tmp_path, str(SAMPLE), "none") as run:
        run.handler.catch_up()
        assert (run.handler.vm, run.handler.process) == (None, None)


def test_endpoint_is_the_proxy_in_the_proxy_scenario(tmp_path: Path) -> None:
    names = (*PROXIES, *NO_PROXIES)
    with run_handler(tmp_path, "-c", SHOW_PROXIES, *names, scenario="proxy-in-the-environment") as run:
        run.start()
        assert run.ended.wait(GUARD)
        vm, process = run.handler.vm, run.handler.process
        assert vm is not None
        assert process is not None
        assert process.output == "|".join([str(vm.guest_url)] * len(PROXIES) + [""] * len(NO_PROXIES)) + "\n"
