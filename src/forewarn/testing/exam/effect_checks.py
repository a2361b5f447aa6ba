"""Checks of a handler's effects: prepare and recover, observed through the marker files of the user."""

from typing import ClassVar

import msgspec

from forewarn.client.document import Status
from forewarn.testing.exam.checks import TOLERANCE, CheckResult, Polarity, broken, kept, not_judged
from forewarn.testing.exam.expectations import Expectation, Expectations
from forewarn.testing.exam.trace import ENOUGH_LOOKS, HandlerTrace


class PrepareCheck(msgspec.Struct, frozen=True):
    """The handler prepares before it approves the event."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """The name of the check."""
        return f"prepares-{self.event}"

    @property
    def description(self) -> str:
        """What the handler must do."""
        return f"prepare for {self.event} before approving it"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Compare the time at which the marker changed with that of the approval."""
        if trace.prepared is None:
            return not_judged("no marker file: use --prepared FILE")
        id_ = trace.labels.get(self.event)
        first = None if id_ is None else trace.first_document_with(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return not_judged(f"it never received {self.event} as Scheduled")
        is_shared = len(first.events[id_].resources) > 1
        expectation = None if (kind := trace.kind(id_)) is None else expectations.for_event(kind, is_shared=is_shared)
        if expectation is Expectation.IGNORE:
            return not_judged("events of this type are expected to be ignored")
        approved_at = min((one.at for one in trace.approvals_of(id_)), default=None)
        done = [at for at in trace.prepared if at >= first.at - TOLERANCE]
        if not done and approved_at is None and expectation is Expectation.APPROVE:
            return not_judged(f"it neither prepared for {self.event} nor approved it: see approves-{self.event}")
        if not done:
            had_time = approved_at is not None or (trace.is_finished and trace.looks(id_) >= ENOUGH_LOOKS)
            ran_out = trace.exit_status is not None or not had_time
            return not_judged("it had no time to prepare") if ran_out else broken("the marker did not change")
        if approved_at is not None and done[0] > approved_at:
            return broken(
                f"it approved {trace.time_text(approved_at)}, but the marker changed {trace.time_text(done[0])}"
            )
        return kept(f"the marker changed {trace.time_text(done[0])}")


class OtherVmPrepareCheck(msgspec.Struct, frozen=True):
    """The handler does not prepare for events that name only other VMs."""

    key: ClassVar[str] = "prepares-for-others"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "prepare for an event that names only other VMs"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for a change of the marker."""
        if trace.prepared is None:
            return not_judged("no marker file: use --prepared FILE")
        if trace.prepared:
            return broken(f"the marker changed {trace.time_text(trace.prepared[0])}")
        return kept("the marker did not change")


class RecoverCheck(msgspec.Struct, frozen=True):
    """The handler recovers after the event has ended or was canceled."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """The name of the check."""
        return f"recovers-{self.event}"

    @property
    def description(self) -> str:
        """What the handler must do."""
        return f"recover after {self.event} has ended"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Look for a change of the marker after the event disappeared from the handler's documents."""
        if trace.recovered is None:
            return not_judged("no marker file: use --recovered FILE")
        id_ = trace.labels.get(self.event)
        gone_at = None if id_ is None else trace.gone_at(id_)
        event = None if id_ is None else trace.event(id_)
        if id_ is None or gone_at is None or event is None:
            return not_judged(f"{self.event} did not disappear from its documents")
        if (kind := trace.kind(id_)) is not None and expectations.for_kind(kind) is Expectation.IGNORE:
            return not_judged("events of this type are expected to be ignored")
        if not (trace.prepared or trace.approvals_of(event.id.upper())):
            return not_judged("it neither prepared nor approved, so it need not recover")
        done = [at for at in trace.recovered if at >= gone_at - TOLERANCE]
        if done:
            return kept(f"the marker changed {trace.time_text(done[0])}")
        if trace.exit_status is not None or not trace.is_finished:
            return not_judged("it had no time to recover")
        return broken(f"{self.event} disappeared {trace.time_text(gone_at)}, but the marker did not change after that")
