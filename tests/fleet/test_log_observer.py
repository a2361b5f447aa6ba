"""The log lines of saved changes: level, message and facts of each."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from forewarn.clock import ManualClock
from forewarn.core.event import EventType
from forewarn.core.impact import Done, Failed, ImpactOutcome, NotStarted, Retry, Unknown
from forewarn.core.policy import PRODUCTION
from forewarn.core.scope import Scope
from forewarn.fleet.log_observer import LogObserver
from forewarn.fleet.main_loop import RecordChange
from forewarn.platform.port import Work
from tests.core.sample_scopes import TEN, schedule_request, scope, vm
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, FakeGateChecker, campaign_spec, start_campaign
from tests.fleet.fleets import run_fleet

MINUTE = timedelta(minutes=1)
NOW = timedelta(0)


class ScriptedPlatform:
    """A platform that gives these outcomes, one after the other, and then does everything."""

    repeatable = False

    def __init__(self, *outcomes: ImpactOutcome) -> None:
        self._outcomes = list(outcomes)

    async def carry_out(self, _: Work) -> ImpactOutcome:
        """Return the next outcome."""
        await asyncio.sleep(0)
        return self._outcomes.pop(0) if self._outcomes else Done()

    async def probe(self, _: Work) -> NotStarted:
        """Nothing is ever begun."""
        return NotStarted()


Line = tuple[str, str, dict[str, Any]]


class LogLines(logging.Handler):
    """The lines of the observer, each with its level and facts."""

    def __init__(self) -> None:
        super().__init__()
        self._plain = set(vars(logging.makeLogRecord({})))
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts = {name: value for name, value in vars(record).items() if name not in self._plain}
        self.lines.append((record.levelname, record.getMessage(), facts))

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(level, message) for level, message, _ in self.lines]


@pytest.fixture
def lines() -> Iterator[LogLines]:
    handler, log = LogLines(), logging.getLogger("forewarn.fleet.log_observer")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


def web() -> Scope:
    return scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Failed("exit code 3"), "Reboot on web/web-0 has failed: exit code 3"),
        (Unknown("no answer"), "the outcome of Reboot on web/web-0 is unknown: no answer"),
    ],
    ids=["failed", "unknown"],
)
async def test_stuck_impact_is_an_error(lines: LogLines, outcome: ImpactOutcome, message: str) -> None:
    async with run_fleet(web(), platform=ScriptedPlatform(outcome)) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", failure=True))
        await fleet.time.advance(NOW)
    facts = {
        "scope": "web",
        "vm": "web-0",
        "host": "hv-0",
        "event": event,
        "event_type": "Reboot",
        "reason": outcome.why if isinstance(outcome, Failed | Unknown) else "",
    }
    waits = "its event waits until an operator retries or resolves it"
    assert lines.lines == [("ERROR", f"{message}; {waits}", facts)]


async def test_impact_that_is_done_is_not_logged(lines: LogLines) -> None:
    async with run_fleet(web(), platform=ScriptedPlatform()) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", failure=True))
        await fleet.time.advance(NOW)
    assert lines.lines == []


async def test_lost_connection_and_its_return_are_logged_once_per_host(lines: LogLines) -> None:
    lost = Retry(MINUTE, "exit code 75", unavailable=True)
    async with run_fleet(web(), platform=ScriptedPlatform(lost, lost, lost)) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", failure=True))
        await fleet.time.advance(5 * MINUTE)
    assert lines.messages == [
        ("WARNING", "the platform cannot work on host hv-0: exit code 75; retrying at 2026-03-02T10:01:00Z"),
        ("INFO", "the platform works on host hv-0 again; maintenance there continues"),
    ]
    assert {facts["host"] for _, _, facts in lines.lines} == {"hv-0"}


async def test_failure_without_a_connection_is_two_lines(lines: LogLines) -> None:
    gone = Failed("maintain cannot be started", unavailable=True)
    async with run_fleet(scope("db", vm("db-0")), platform=ScriptedPlatform(gone)) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "db-0", failure=True))
        await fleet.time.advance(NOW)
    assert [(level, message.partition(":")[0]) for level, message in lines.messages] == [
        ("WARNING", "the platform cannot work on a VM of unknown host"),
        ("ERROR", "Reboot on db/db-0 has failed"),
    ]


async def test_postponed_work_is_not_a_lost_connection(lines: LogLines) -> None:
    busy = Retry(MINUTE, "the limit of 8 running programs is reached")
    async with run_fleet(web(), platform=ScriptedPlatform(busy)) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", failure=True))
        await fleet.time.advance(5 * MINUTE)
    assert lines.lines == []


async def test_campaign_and_its_gate_are_logged(lines: LogLines) -> None:
    clock = ManualClock(TEN)
    gate = FakeGateChecker(clock, (TEN + 30 * MINUTE, TEN + 60 * MINUTE))
    async with run_fleet(web(), clock=clock, checker=gate, platform=ScriptedPlatform()) as fleet:
        spec = campaign_spec(gap=5 * MINUTE, gate="health")
        await start_campaign(fleet, spec, why="CVE-1")
        await fleet.time.advance(timedelta(hours=3))
    level_and_start = [(level, message.split(";")[0]) for level, message in lines.messages]
    assert level_and_start == [
        ("INFO", "campaign kernel has started: CVE-1"),
        ("WARNING", lines.messages[1][1].split(";")[0]),
        ("INFO", "gate health of campaign kernel is open again"),
        ("INFO", "campaign kernel has ended"),
    ]
    _, closed, facts = lines.lines[1]
    assert closed.startswith("gate health of campaign kernel has closed: ")
    assert closed.endswith("; wave 2 of scope web waits for it")
    assert (facts["campaign"], facts["campaign_id"], facts["gate"], facts["scope"]) == (
        "kernel",
        CAMPAIGN_ID,
        "health",
        "web",
    )
    assert lines.messages[0][1].endswith("it has 2 waves in 1 scope with 2 VMs")
    assert lines.messages[-1][1].endswith("it is Completed")


async def test_halted_campaign_is_an_error(lines: LogLines) -> None:
    async with run_fleet(web(), platform=ScriptedPlatform(Failed("exit code 3"))) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=1))
        await fleet.time.advance(timedelta(hours=1))
    halted = [message for level, message in lines.messages if level == "ERROR" and message.startswith("campaign")]
    assert len(halted) == 1
    assert halted[0].startswith("campaign kernel has halted: ")
    assert halted[0].endswith("; no further wave starts until an operator resumes or aborts it")


async def test_started_campaign_counts_vms_that_will_not_hear_of_it(lines: LogLines) -> None:
    async with run_fleet(web(), policy=PRODUCTION, platform=ScriptedPlatform()) as fleet:
        await start_campaign(fleet, campaign_spec(), unannounced=True)
    assert lines.messages[0] == (
        "INFO",
        "campaign kernel has started; it has 2 waves in 1 scope with 2 VMs, of which 2 will not hear of it",
    )


async def test_change_of_another_process_is_not_logged(lines: LogLines) -> None:
    """That process logs it."""
    LogObserver().observe_scope(RecordChange("web", web(), web()))
    LogObserver().observe_campaign(RecordChange("kernel", None, None))
    assert lines.lines == []
