"""Report types: texts and lists of a request have limits."""

import msgspec
import pytest

from forewarn.api import v1

REPORT = {"kind": "exam", "subject": "./handler", "passed": True, "summary": "1 scenario: 1 passed."}
FINDING = {"place": "user-restart", "name": "approves-E1", "mark": "passed", "verdict": "kept"}


def test_report_without_findings_is_valid() -> None:
    assert msgspec.convert(REPORT, v1.AddReport).findings == ()


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "poll"},
        {"subject": ""},
        {"summary": "x" * 513},
        {"unknown": 1},
        {"findings": [FINDING] * 10_001},
        {"findings": [FINDING | {"seen": "x" * 4097}]},
        {"findings": [FINDING | {"mark": "fine"}]},
    ],
)
def test_wrong_report_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(REPORT | more, v1.AddReport)
