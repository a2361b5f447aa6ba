"""Fault types of the API."""

import msgspec
import pytest

from forewarn.api.v1.faults import SetFault
from forewarn.core.fault import MAX_TIMES, FaultKind


def ask(**fields: object) -> SetFault:
    return msgspec.json.decode(msgspec.json.encode({"kind": "slow", **fields}), type=SetFault)


def test_fault_is_for_all_vms_until_it_is_cleared_by_default() -> None:
    assert ask() == SetFault(kind=FaultKind.SLOW, vm=None, duration=None, times=None, amount=None, reason="")


def test_amount_may_be_negative_and_duration_may_not() -> None:
    assert ask(amount="-1h30m", times=MAX_TIMES).amount == "-1h30m"
    for fields in ({"duration": "-1h"}, {"amount": "--1h"}, {"amount": "-"}, {"times": 0}, {"times": MAX_TIMES + 1}):
        with pytest.raises(msgspec.ValidationError):
            ask(**fields)


@pytest.mark.parametrize("kind", ["410", "unknown", ""])
def test_kind_is_one_of_those_that_exist(kind: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="kind"):
        ask(kind=kind)
