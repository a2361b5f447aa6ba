"""With 30 seconds of notice, the most important handler runs; others are cut short or skipped, and reported."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forewarn.wire.http_date import format_http_date
from tests.end_to_end.agent.single_agent import event, run_single_agent
from tests.support.processes import wait_until

NOTICE = timedelta(seconds=30)

HANDLERS = """\
[handlers.checkpoint]
kind = "exec"
importance = 90
prepare = ["{home}/hook", "checkpoint"]
time_limit = "20s"

[handlers.archive]
kind = "exec"
importance = 50
prepare = ["/bin/sleep", "1h"]
time_limit = "1h"
retries = 0

[handlers.farewell]
kind = "exec"
importance = 10
prepare = ["{home}/hook", "farewell"]
"""


@pytest.mark.long
def test_thirty_seconds_are_used_for_the_most_important_handler(tmp_path: Path) -> None:
    handlers = ("farewell", "archive", "checkpoint")
    with run_single_agent(tmp_path, more=HANDLERS.format(home=tmp_path), handlers=handlers) as alone:
        alone.endpoint.wait_for_polls(1)
        alone.endpoint.announce(event("E", EventType="Preempt", NotBefore=format_http_date(datetime.now(UTC) + NOTICE)))
        alone.wait_for_hook_runs("checkpoint E")
        wait_until(
            lambda: "farewell" in alone.agent.output() and "no time" in alone.agent.output(), "the rest to be skipped"
        )
        assert alone.hook_runs == ["checkpoint E"]
