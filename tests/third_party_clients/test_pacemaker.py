"""The exam of Pacemaker's agent azure-events-az, unmodified: a slow but correct handler, and what it really does wrong.

Each `monitor` is one poll: the cluster manager starts the agent every few seconds. The agent puts its node into standby
when it first sees an event, and approves only when the node's resources have stopped, several polls later.

The agent is extracted from its Debian package. Pacemaker itself, a cluster manager that needs Corosync and several
machines, does not run: the programs in `programs/pacemaker` stand in for its commands. They keep attributes in files,
and let a resource stop during two polls.
"""

import sys
from pathlib import Path

import pytest

from forewarn.testing.exam import (
    LIMIT,
    ExamOptions,
    LaunchOptions,
    Markers,
    Report,
    Verdict,
    exam_scenarios,
    examine,
    parse_expectations,
)
from forewarn.testing.sandbox import unavailable_reason
from tests.support.debian_packages import extract_packages

pytestmark = pytest.mark.process

AS_CONFIGURED = ("ignore", "Reboot=approve", "Redeploy=approve")
"""The agent's default for `eventTypes`: it ignores all other types."""

USUAL_MONITOR = 10.0
"""The seconds between two polls in the agent's own example of a configuration."""

SLOW = 5.0
"""How much slower than an idle machine this one may be."""

FAULTS = {
    "answers-410": "has no attribute 'keys'",
    "answers-429": "has no attribute 'keys'",
    "answers-500": "has no attribute 'keys'",
    "connection-reset": "Connection reset by peer",
    "empty-body": "has no attribute 'keys'",
    "truncated-answer": "Unterminated string",
}
"""The scenarios with a poll that fails, and the message with which the agent then ends."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> tuple[str, ...]:
    """The command for one poll."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    root = extract_packages(tmp_path_factory.mktemp("debian"), "resource-agents") / "usr/lib/ocf"
    path = f"{programs / 'pacemaker'}:/usr/bin:/bin"
    program = root / "resource.d/heartbeat/azure-events-az"
    return ("env", f"OCF_ROOT={root}", f"PATH={path}", sys.executable, str(program), "monitor")


def examine_agent(
    command: tuple[str, ...], *only: str, interval: float | None, expect: tuple[str, ...] = AS_CONFIGURED
) -> Report:
    """Examine it in the named scenarios, or in all, and return the report."""
    options = ExamOptions(
        way=LaunchOptions(command=command, interval=interval),
        markers=Markers(prepared=Path("{dir}/prepared"), recovered=Path("{dir}/recovered")),
        wishes=parse_expectations(expect),
        limit=SLOW * LIMIT,
    )
    return examine(options, [scenario for scenario in exam_scenarios() if not only or scenario.name in only])


def verdicts(report: Report, *checks: str) -> dict[tuple[str, str], str]:
    """Return the verdict of these checks, with their polarity, by scenario and check."""
    return {
        (scenario, finding.demand): f"{finding.mood}: {finding.verdict}"
        for scenario, finding in report.findings
        if finding.demand in checks
    }


JUDGED = ("approves-E1", "approves-others", "prepares-for-others", "prepares-E1", "recovers-E1")


def check_passed(report: Report) -> None:
    """Check that the agent passes, without a warning."""
    assert report.broken == frozenset()
    assert [(result.scenario, result.problem) for result in report.results if not result.is_passed] == []
    assert [result.warnings for result in report.results if result.warnings] == []


def test_agent_that_polls_rarely_passes(agent: tuple[str, ...]) -> None:
    report = examine_agent(agent, "user-restart", "event-for-another-vm", interval=2.0)
    check_passed(report)
    assert verdicts(report, *JUDGED) == {
        ("user-restart", "approves-E1"): "must: kept",
        ("user-restart", "prepares-E1"): "must: kept",
        ("user-restart", "recovers-E1"): "must: kept",
        ("event-for-another-vm", "approves-others"): "must not: kept",
        ("event-for-another-vm", "prepares-for-others"): "must not: kept",
    }


@pytest.mark.long
def test_types_that_the_agent_ignores_by_its_configuration_are_not_judged(agent: tuple[str, ...]) -> None:
    """The exam waits for approvals until a timeout."""
    report = examine_agent(agent, "live-migration", "eviction-30s", interval=2.0)
    check_passed(report)
    assert verdicts(report, *JUDGED) == {
        ("live-migration", "approves-E1"): "must not: kept",
        ("live-migration", "prepares-E1"): "must: not judged",
        ("live-migration", "recovers-E1"): "must: not judged",
        ("eviction-30s", "approves-E1"): "must not: kept",
        ("eviction-30s", "prepares-E1"): "must: not judged",
    }


@pytest.mark.long
def test_agent_at_its_usual_interval_gets_only_a_warning(agent: tuple[str, ...]) -> None:
    only = ("cancelled-event", "eviction-8s", "host-update", "two-events-at-once", "user-restart", "slow-answers")
    report = examine_agent(agent, *only, interval=USUAL_MONITOR)
    assert report.broken == frozenset()
    assert [(result.scenario, result.problem) for result in report.results if not result.is_passed] == []
    assert {finding.demand for _, finding in report.findings if finding.verdict is Verdict.WARNING} == {"asks-often"}


@pytest.mark.long
def test_ignored_type_is_one_finding_of_a_finished_scenario(agent: tuple[str, ...]) -> None:
    report = examine_agent(agent, "live-migration", interval=3.0, expect=())
    (result,) = report.results
    assert (result.is_finished, result.problem) == (True, None)
    assert [(finding.demand, finding.advice) for finding in result.broken] == [
        ("approves-E1", "if that is intended: --expect Freeze/Platform=ignore")
    ]


@pytest.mark.long
def test_agent_fails_only_if_a_poll_fails_or_a_proxy_is_set(agent: tuple[str, ...]) -> None:
    """Defects of the agent: it ends with an error after a poll without a document, and it uses proxies."""
    report = examine_agent(agent, interval=3.0)
    assert report.broken == {
        *((name, "keeps-running") for name in FAULTS),
        ("proxy-in-the-environment", "uses-proxy"),
    }
    assert [(result.scenario, result.problem) for result in report.results if not result.is_finished] == []
    assert [result.scenario for result in report.results if not result.is_exercised and not result.broken] == []
    ended = {result.scenario: (result.exit_code, result.broken[0].seen) for result in report.results if result.broken}
    for name, message in FAULTS.items():
        code, seen = ended[name]
        assert code == 1
        assert message in seen


@pytest.mark.long
def test_cluster_that_starts_the_agent_again_passes(agent: tuple[str, ...]) -> None:
    """Pacemaker starts the agent again after a failed poll, so that no event is missed."""
    again = 'while :; do "$@"; sleep 3; done'
    report = examine_agent(("sh", "-c", again, "sh", *agent), *FAULTS, interval=None)
    assert report.broken == frozenset()
    assert [(result.scenario, result.problem) for result in report.results if not result.is_passed] == []
    assert set(verdicts(report, "approves-E1", "recovers-E1").values()) == {"must: kept"}
