"""Faults set from a test, as requests to the operator API."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.errors import Invalid
from forewarn.core.fault import FaultKind
from forewarn.testing.duration import DurationLike
from forewarn.testing.fault_actions import FaultActions


class Service(FaultActions):
    """Remembers what it asks the API for."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self._fake: Any = SimpleNamespace(
            set_fault=self.asked.append,
            clear_fault=self.asked.append,
            clear_faults=lambda: self.asked.append("all"),
            faults=lambda: v1.Faults(faults=()),
        )

    @property
    def api(self) -> ApiClient:
        api: ApiClient = self._fake
        return api


def test_fault_is_for_all_vms_by_default() -> None:
    service = Service()
    service.fault("410")
    assert service.asked == [v1.SetFault(kind=FaultKind.STATUS_410)]


def test_fault_may_be_for_one_vm_a_number_of_requests_and_a_time() -> None:
    service = Service()
    service.fault("slow", vm="web-0", times=3, lasting=90, amount="5s", why="test")
    assert service.asked == [
        v1.SetFault(kind=FaultKind.SLOW, vm="web-0", times=3, duration="1m30s", amount="5s", reason="test")
    ]


@pytest.mark.parametrize(("amount", "text"), [("-1h", "-1h"), (timedelta(hours=-1), "-1h"), (-90, "-1m30s"), (2, "2s")])
def test_date_may_be_in_the_past(amount: DurationLike, text: str) -> None:
    service = Service()
    service.fault("wrong-date", amount=amount)
    assert service.asked == [v1.SetFault(kind=FaultKind.WRONG_DATE, amount=text)]


def test_unknown_fault_is_refused_before_anything_is_asked() -> None:
    service = Service()
    with pytest.raises(Invalid):
        service.fault("404")
    assert service.asked == []


def test_faults_are_listed_and_cleared() -> None:
    service = Service()
    assert service.faults == []
    service.clear_fault("F1")
    service.clear_faults()
    assert service.asked == ["F1", "all"]
