"""Catalog of the exam: each scenario with its checks and its time scale.

The speed of a scenario shortens a notice of minutes to a few seconds of real time, so that dates stay true for the
program.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import NamedTuple

import msgspec

from forewarn.client.document import is_named
from forewarn.core.base_error import BaseError
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    EndedApprovalCheck,
    OtherVmApprovalCheck,
    RepeatedApprovalCheck,
    StartedApprovalCheck,
)
from forewarn.testing.exam.checks import Check
from forewarn.testing.exam.effect_checks import OtherVmPrepareCheck, PrepareCheck, RecoverCheck
from forewarn.testing.exam.poll_checks import (
    ExitCheck,
    PollCheck,
    PollIntervalCheck,
    ProxyCheck,
    RateLimitCheck,
    RunningCheck,
    ValidRequestCheck,
)
from forewarn.testing.scenario import CoreBackend, Scenario, library_names, library_text, parse_scenario, run_script

SCENARIO_PACKAGE = "forewarn.testing.exam.scenarios"
HANDLER_VM = "web-0"
"""The name of the handler's VM in the scenarios."""

REAL_NOTICE = timedelta(seconds=7)
"""The notice of the handler's event in real time."""

APPROVAL_GRACE = timedelta(seconds=1)
"""How much longer than the notice a scenario waits for an approval."""

OTHER_HOST_NAME = "a-host-name"

POLL_CHECKS: tuple[Check, ...] = (PollCheck(), ValidRequestCheck(), PollIntervalCheck(), RateLimitCheck())
RUNNING_CHECKS: tuple[Check, ...] = (*POLL_CHECKS, RunningCheck())
COMMON_CHECKS: tuple[Check, ...] = (
    *RUNNING_CHECKS,
    RepeatedApprovalCheck(),
    StartedApprovalCheck(),
    EndedApprovalCheck(),
)
REMOVAL_CHECKS: tuple[Check, ...] = (*POLL_CHECKS, ExitCheck(), RepeatedApprovalCheck(), StartedApprovalCheck())


class ExamScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of the exam.

    `notice` is the notice of the handler's first event in the scenario, and `real_notice` its length in real time:
    they determine the time scale. `min_polls` is the number of polls that the scenario waits for after a change.
    `clock_lag` is how far the service's clock is behind at the start, because the scenario lets that much time pass.
    `lead_in` is the time in the scenario before the handler's first event. `text` is the text of a user's own scenario.
    `essential` are the checks that the scenario is about, by default those of the handler's own approvals: if one of
    them is never exercised, the scenario is not passed. `replacements` are changes to the text that the exam needs.
    `has_exact_notice`: the notice is not extended for a handler that polls rarely, because the scenario is about a
    short notice. `needs_every_document`: the scenario is about incarnations, so the handler must receive the newest one
    before each move of the clock.
    """

    name: str
    checks: tuple[Check, ...]
    essential: tuple[str, ...] = ()
    text: str | None = None
    lead_in: timedelta = timedelta(0)
    notice: timedelta = timedelta(minutes=15)
    real_notice: timedelta = REAL_NOTICE
    min_polls: int = 1
    clock_lag: timedelta = timedelta(0)
    replacements: Mapping[str, str] = {}
    has_exact_notice: bool = False
    needs_every_document: bool = False
    has_proxy: bool = False
    host_name: str | None = None

    @property
    def speed(self) -> float:
        """The factor by which time runs faster than in the scenario."""
        return 1.0 if self.clock_lag else self.notice / self.real_notice

    @property
    def essential_checks(self) -> tuple[str, ...]:
        """The keys of the checks that the scenario is about."""
        return self.essential or tuple(check.key for check in self.checks if isinstance(check, ApprovalCheck))

    @property
    def approval_timeout(self) -> float:
        """How many seconds the scenario waits for an approval: a program may approve at the last moment."""
        return (self.real_notice + APPROVAL_GRACE).total_seconds()

    def scenario(self, vm: str = HANDLER_VM) -> Scenario:
        """Return the scenario with the names of the handler's VM and of `vm` swapped; a user's own as it is."""
        if self.text is not None:
            return parse_scenario(self.name, self.text)
        text = library_text(self.name) if self.name in library_names() else _exam_text(self.name)
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        return parse_scenario(self.name, _swap_names(text, HANDLER_VM, vm))


def exam_scenarios() -> Sequence[ExamScenario]:
    """Return all scenarios: those that ship with Forewarn, then those that only the exam has."""
    return SCENARIOS


def own_scenario(name: str, text: str) -> ExamScenario:
    """Return an exam scenario from a user's own text. Raises ScenarioError, or HandlerMissing without a handler line.

    The pure core runs it once, with the handler's VM as written, to find the events of that VM.
    """
    scenario = parse_scenario(name, text)
    if scenario.handler is None:
        raise HandlerMissing(name)
    events = _own_events(scenario, scenario.handler)
    removed = [event for event in events if event.removes_vm]
    checks: list[Check] = [*(REMOVAL_CHECKS if removed else COMMON_CHECKS), OtherVmApprovalCheck()]
    for event in events:
        if event.has_notice:
            checks += (ApprovalCheck(event.label), PrepareCheck(event.label))
        if event.has_notice and not removed:
            checks.append(RecoverCheck(event.label))
    notices = [event for event in events if event.has_notice]
    first = notices[0] if notices else None
    return ExamScenario(
        name=name,
        text=text,
        checks=tuple(checks),
        notice=REAL_NOTICE if first is None else max(first.notice, REAL_NOTICE),
        lead_in=timedelta(0) if first is None else first.lead_in,
        has_exact_notice=first is not None and first.notice < REAL_NOTICE,
    )


class HandlerMissing(BaseError):
    """A scenario names no VM for the program."""

    template = "scenario {name} has no line `handler VM`: the exam runs the program as that VM"
    name: str


class _OwnEvent(NamedTuple):
    label: str
    lead_in: timedelta
    notice: timedelta
    has_notice: bool
    removes_vm: bool


def _own_events(scenario: Scenario, handler: str) -> list[_OwnEvent]:
    """Return the events of the handler's VM, in order."""
    backend = CoreBackend()
    began_at = backend.state.now
    for _ in run_script(scenario.script, backend):
        pass
    entries = [entry for entries in backend.state.journals.values() for entry in entries]
    created = {entry.event: entry for entry in reversed(entries) if entry.event is not None and entry.vms}
    own = [entry for entry in created.values() if is_named(handler.rpartition("/")[2], entry.vms)]
    found = []
    for entry in sorted(own, key=lambda entry: entry.at):
        not_before = datetime.fromisoformat(entry.facts.get("not_before", entry.at.isoformat()))
        found.append(
            _OwnEvent(
                label=backend.state.names.label(str(entry.event)),
                lead_in=entry.at - began_at,
                notice=not_before - entry.at,
                has_notice=not_before > entry.at,
                removes_vm="type" in entry.facts and EVENT_TYPES[EventType(entry.facts["type"])].removes_vm,
            )
        )
    return found


def _own_event_checks(event: str = "E1") -> tuple[Check, ...]:
    """Return the checks for an event of the handler's own VM that ends while the VM stays."""
    return (ApprovalCheck(event), PrepareCheck(event), RecoverCheck(event))


def _removal_checks() -> tuple[Check, ...]:
    """Return the checks for the event that removes the VM."""
    return (ApprovalCheck("E1"), PrepareCheck("E1"))


SCENARIOS: tuple[ExamScenario, ...] = (
    ExamScenario(
        name="cancelled-event",
        checks=(*RUNNING_CHECKS, RepeatedApprovalCheck(), EndedApprovalCheck(), *_own_event_checks()),
        essential=("approves-gone",),
        notice=timedelta(minutes=30),
        real_notice=timedelta(seconds=5),
        min_polls=4,
    ),
    ExamScenario(
        name="event-for-another-vm",
        checks=(*RUNNING_CHECKS, OtherVmApprovalCheck(), OtherVmPrepareCheck()),
        essential=("approves-others",),
        min_polls=2,
    ),
    ExamScenario(name="eviction-30s", checks=(*REMOVAL_CHECKS, *_removal_checks()), notice=timedelta(seconds=30)),
    ExamScenario(
        name="eviction-8s",
        checks=(*REMOVAL_CHECKS, *_removal_checks()),
        notice=timedelta(seconds=8),
        real_notice=timedelta(seconds=8),
        replacements={"expect E1 Started within 8s": "approve E1 by web-0\nexpect E1 Started within 8s"},
        has_exact_notice=True,
    ),
    ExamScenario(
        name="hardware-failure",
        checks=(*RUNNING_CHECKS, StartedApprovalCheck(), EndedApprovalCheck()),
        essential=("approves-started",),
        min_polls=2,
    ),
    ExamScenario(name="host-update", checks=(*COMMON_CHECKS, OtherVmApprovalCheck(), *_own_event_checks())),
    ExamScenario(name="live-migration", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="predicted-failure", checks=(*COMMON_CHECKS, *_own_event_checks()), notice=timedelta(days=3)),
    ExamScenario(
        name="service-off-for-a-day",
        checks=(*COMMON_CHECKS, OtherVmApprovalCheck(), ApprovalCheck("E3"), PrepareCheck("E3"), RecoverCheck("E3")),
        clock_lag=timedelta(days=1),
        needs_every_document=True,
        replacements={"schedule Reboot web-0  ": "schedule Reboot web-0 in 7s  "},
    ),
    ExamScenario(name="storm-of-20", checks=(*COMMON_CHECKS, OtherVmApprovalCheck(), *_own_event_checks())),
    ExamScenario(
        name="terminate-on-scale-in", checks=(*REMOVAL_CHECKS, *_removal_checks()), notice=timedelta(minutes=5)
    ),
    ExamScenario(
        name="two-events-at-once", checks=(*COMMON_CHECKS, *_own_event_checks("E1"), *_own_event_checks("E2"))
    ),
    ExamScenario(name="user-restart", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(
        name="withdrawn-and-scheduled-again",
        checks=(
            *COMMON_CHECKS,
            ApprovalCheck("E1"),
            ApprovalCheck("E2", like="E1"),
            PrepareCheck("E1"),
            RecoverCheck("E2"),
        ),
        notice=timedelta(minutes=30),
        real_notice=timedelta(seconds=5),
    ),
    ExamScenario(name="another-host-name", checks=(*COMMON_CHECKS, *_own_event_checks()), host_name=OTHER_HOST_NAME),
    ExamScenario(name="answers-410", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="answers-429", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="answers-500", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="connection-reset", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="empty-body", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="extra-field", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="late-first-answer", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(
        name="proxy-in-the-environment",
        checks=(*COMMON_CHECKS, ProxyCheck(), *_own_event_checks()),
        essential=("uses-proxy", "approves-E1"),
        has_proxy=True,
    ),
    ExamScenario(name="slow-answers", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="truncated-answer", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(
        name="unknown-event-type",
        checks=(*COMMON_CHECKS, OtherVmApprovalCheck(), ApprovalCheck("E2"), PrepareCheck("E2"), RecoverCheck("E2")),
        notice=timedelta(minutes=30),
        min_polls=2,  # when the second arrives, both responses with the unknown type have been given
    ),
    ExamScenario(name="wrong-content-type", checks=(*COMMON_CHECKS, *_own_event_checks())),
    ExamScenario(name="wrong-date", checks=(*COMMON_CHECKS, *_own_event_checks())),
)


def _exam_text(name: str) -> str:
    return files(SCENARIO_PACKAGE).joinpath(f"{name}.txt").read_text("utf-8")


def _swap_names(text: str, one: str, other: str) -> str:
    """Swap two names in the text, where they are whole words."""
    if one == other:
        return text
    names = {one: other, other: one}
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.-])(?:{either})(?![\w.-])", lambda found: names[found[0]], text)
