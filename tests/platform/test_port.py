"""The platform port: the null checker and the null notifier of a service without gates and receivers."""

import pytest

from forewarn.core.campaign.spec import HttpCheck
from forewarn.platform.port import (
    GateChecker,
    GateFailed,
    GateRequest,
    NotificationMessage,
    Notifier,
    NullGateChecker,
    NullNotifier,
)
from tests.core.sample_scopes import TEN


@pytest.mark.parametrize("gate", ["health", HttpCheck(url="http://h/ok")], ids=["by name", "brought along"])
async def test_no_wave_passes_a_gate_that_does_not_exist(gate: str | HttpCheck) -> None:
    checker: GateChecker = NullGateChecker()
    result = await checker.check(GateRequest(gate=gate, campaign="c1", name="kernel"))
    assert isinstance(result, GateFailed)
    assert str(gate) in result.reason
    assert tuple(checker.gates) == ()


async def test_without_receivers_nothing_is_sent_and_nothing_fails() -> None:
    notifier: Notifier = NullNotifier()
    assert not notifier.has_receivers
    await notifier.notify(NotificationMessage(id="1", campaign="c1", name="kernel", what="started", at=TEN))
