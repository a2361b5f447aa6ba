"""Fault injection from a test: set, list and clear faults of the guest endpoint."""

from abc import ABC, abstractmethod
from datetime import timedelta

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.fault import format_signed_duration, parse_fault_kind
from forewarn.testing.duration import DurationLike, to_optional_text
from forewarn.testing.vm import VmLike


class FaultActions(ABC):
    """Methods that set, list and clear faults through the operator API."""

    @property
    @abstractmethod
    def api(self) -> ApiClient:
        """The operator API."""

    def fault(
        self,
        kind: str,
        *,
        vm: VmLike | None = None,
        times: int | None = None,
        lasting: DurationLike | None = None,
        amount: DurationLike | None = None,
        why: str = "",
    ) -> v1.Fault:
        """Set a fault for a VM or for all VMs: for a number of requests, for a time, or until it is cleared.

        `kind` is a status such as `410`, or another kind of `forewarn fault set`. `amount` is the delay, or the offset
        of the date, in real time; `lasting` is measured by the service's clock.
        """
        request = v1.SetFault(
            kind=parse_fault_kind(kind),
            vm=None if vm is None else str(vm),
            times=times,
            duration=to_optional_text(lasting),
            amount=_signed_text(amount),
            reason=why,
        )
        return self.api.set_fault(request)

    @property
    def faults(self) -> list[v1.Fault]:
        """The faults that are set, with the number of requests that each has affected."""
        return list(self.api.faults().faults)

    def clear_fault(self, fault: v1.Fault | str) -> None:
        """Clear a fault."""
        self.api.clear_fault(fault if isinstance(fault, str) else fault.id)

    def clear_faults(self) -> None:
        """Clear all faults."""
        self.api.clear_faults()


def _signed_text(amount: DurationLike | None) -> str | None:
    match amount:
        case str() | None:
            return amount
        case timedelta():
            return format_signed_duration(amount)
        case _:
            return format_signed_duration(timedelta(seconds=amount))
