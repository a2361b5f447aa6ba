"""Checks of a handler's effects: prepare and recover, observed by the markers that the user names."""

from typing import ClassVar

import msgspec

from forewarn.client.document import Status
from forewarn.testing.exam.checks import TOLERANCE, CheckResult, Polarity, broken, kept, not_judged
from forewarn.testing.exam.expectations import Expectation, Expectations
from forewarn.testing.exam.trace import HandlerTrace


class PrepareCheck(msgspec.Struct, frozen=True):
    """The VM is prepared before the event is approved."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Its name."""
        return f"prepares-{self.event}"

    @property
    def description(self) -> str:
        """What it is."""
        return f"have prepared for {self.event} before it approves it"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Compare the moment at which the marker changed with that of the approval."""
        if trace.prepared is None:
            return not_judged("no marker was named: --prepared FILE")
        id_ = trace.labels.get(self.event)
        first = None if id_ is None else trace.first_document_with(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return not_judged(f"it was never told of {self.event} as Scheduled")
        if expectations.for_event(first.events[id_]) is Expectation.IGNORE:
            return not_judged("events of this type are to be ignored")
        approved_at = min((one.at for one in trace.approvals_of(id_)), default=None)
        done = [at for at in trace.prepared if at >= first.at - TOLERANCE]
        if not done:
            ran_out = trace.exit_status is not None or not (trace.is_finished or approved_at is not None)
            return not_judged("it had no time to") if ran_out else broken("the marker has not changed")
        if approved_at is not None and done[0] > approved_at:
            return broken(
                f"it approved {trace.time_text(approved_at)}, and the marker changed {trace.time_text(done[0])}"
            )
        return kept(f"the marker changed {trace.time_text(done[0])}")


class OtherVmPrepareCheck(msgspec.Struct, frozen=True):
    """What happens to other VMs is no reason to prepare."""

    key: ClassVar[str] = "prepares-for-others"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "prepare for an event that names only other VMs"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether the marker has changed."""
        if trace.prepared is None:
            return not_judged("no marker was named: --prepared FILE")
        if trace.prepared:
            return broken(f"the marker changed {trace.time_text(trace.prepared[0])}")
        return kept("the marker has not changed")


class RecoverCheck(msgspec.Struct, frozen=True):
    """When the event is over, or was called off, the VM goes back to work."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Its name."""
        return f"recovers-{self.event}"

    @property
    def description(self) -> str:
        """What it is."""
        return f"recover when {self.event} is over"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """See whether the marker has changed since the event was gone."""
        if trace.recovered is None:
            return not_judged("no marker was named: --recovered FILE")
        id_ = trace.labels.get(self.event)
        gone_at = None if id_ is None else trace.gone_at(id_)
        event = None if id_ is None else trace.event(id_)
        if gone_at is None or event is None:
            return not_judged(f"it was never told that {self.event} is over")
        if expectations.for_event(event) is Expectation.IGNORE:
            return not_judged("events of this type are to be ignored")
        if not (trace.prepared or trace.approvals_of(event.id.upper())):
            return not_judged("it had neither prepared nor approved: there is nothing to recover from")
        done = [at for at in trace.recovered if at >= gone_at - TOLERANCE]
        if done:
            return kept(f"the marker changed {trace.time_text(done[0])}")
        if trace.exit_status is not None or not trace.is_finished:
            return not_judged("it had no time to")
        return broken(f"{self.event} was gone {trace.time_text(gone_at)}, and the marker has not changed since")
