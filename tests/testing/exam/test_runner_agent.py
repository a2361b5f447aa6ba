"""Forewarn's own agent passes the exam."""

import sys
from pathlib import Path

import pytest

from forewarn.testing import sandbox
from forewarn.testing.exam import (
    LIMIT,
    ExamOptions,
    LaunchOptions,
    Markers,
    exam_scenarios,
    examine,
    parse_expectations,
)

pytestmark = pytest.mark.process

FOREWARN = Path(sys.executable).parent / "forewarn"

SLOW = 5.0
"""How much slower than an idle machine this one may be."""

PROGRAM = f"""\
#!/bin/sh
cat > "$FOREWARN_EXAM_DIR/agent.toml" <<END
state = "$FOREWARN_EXAM_DIR/state"
[approval]
policy = "each"
[handlers.hook]
kind = "exec"
prepare = ["/bin/sh", "-c", "echo prepared >> $FOREWARN_EXAM_PREPARED"]
recover = ["/bin/sh", "-c", "echo recovered >> $FOREWARN_EXAM_RECOVERED"]
[[rules]]
handlers = ["hook"]
END
exec {FOREWARN} agent run --config "$FOREWARN_EXAM_DIR/agent.toml"
"""


def test_agent_passes_every_check(tmp_path: Path) -> None:
    if (why := sandbox.unavailable_reason()) is not None:
        pytest.skip(why)
    program = tmp_path / "handler"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    ask = ExamOptions(
        way=LaunchOptions(command=(str(program),)),
        markers=Markers(prepared=Path("{dir}/prepared"), recovered=Path("{dir}/recovered")),
        wishes=parse_expectations(["approve", "shared=approve"]),
        limit=SLOW * LIMIT,
        pace=SLOW,
    )
    report = examine(ask, exam_scenarios())
    assert report.broken == frozenset()
    assert [result.scenario for result in report.results if not result.is_passed] == []
    assert [(result.scenario, result.not_judged) for result in report.results if result.not_judged] == []
