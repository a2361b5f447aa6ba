"""Timeline page: range, grouping and filters are in the URL; the table has the same as the chart."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest

from forewarn.core.campaign.windows import Span
from forewarn.operator.dashboard import time_chart
from forewarn.operator.dashboard.timeline_page import TimelineQuery
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.dashboard.test_timeline import START, read_chart
from tests.operator.running_api import TEN, run_api, schedule_event

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (TimelineQuery(), Span(TEN - 6 * HOUR, TEN + 18 * HOUR)),
        (TimelineQuery(hours=4), Span(TEN - HOUR, TEN + 3 * HOUR)),
        (TimelineQuery(start="2026-03-02T10:00:00Z", hours=2), Span(TEN, TEN + 2 * HOUR)),
        (TimelineQuery(end="2026-03-02T10:00:00Z", hours=2), Span(TEN - 2 * HOUR, TEN)),
        (
            TimelineQuery(start="2026-01-01T00:00:00Z", end="2026-01-02T00:00:00Z"),
            Span(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        ),
    ],
)
def test_range_is_around_the_present_or_fixed(query: TimelineQuery, shown: Span) -> None:
    assert query.range(TEN) == shown


async def test_range_of_the_url_is_that_of_the_chart_and_only_the_default_follows_the_present() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        chart = await read_chart(browser)
        assert (chart["from"] - START, chart["to"] - START, chart["follow"]) == (-6 * 3600, 18 * 3600, True)
        chart = await read_chart(browser, "from=2026-03-02T09:00:00Z&to=2026-03-02T11:00:00Z")
        assert (chart["from"] - START, chart["to"] - START, chart["follow"]) == (-3600, 3600, False)


async def test_wrong_parameters_are_explained() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for query in (
            "group=rack",
            "type=Dance",
            "campaign=none",
            "hours=0",
            "hours=99999",
            "from=yesterday",
            "from=2026-03-02T11:00:00Z&to=2026-03-02T10:00:00Z",
            "from=2026-03-02T11:00:00Z&to=2027-03-02T10:00:00Z",
        ):
            assert (await browser.get(f"/ui/timeline?{query}")).status in (400, 404), query


async def test_table_has_the_items_with_their_times_for_screen_readers() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert "No event or wave in this range." in await browser.text("/ui/timeline")
        event = await schedule_event(service, "Reboot", "web/web-0", notice="30m", unannounced=True)
        text = await browser.text("/ui/timeline")
        assert f"web Reboot {event[:8]} Notice 2026-03-02 10:00 UTC – 2026-03-02 10:30 UTC" in text
        assert "State scheduled; VMs web-0" in text


async def test_long_table_has_pages_that_are_linked_and_keep_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_chart, "TABLE_LINES", 2)
    async with run_api() as service:
        browser = await sign_in(service)
        for vm in ("web-0", "web-1", "web-2"):
            await schedule_event(service, "Reboot", f"web/{vm}", notice="30m", unannounced=True)
        first = (await browser.get("/ui/timeline?q=WEB&group=vm")).body.decode()
        assert ('<details id="timeline-table">' in first, "Items 1 to 2 of 3" in page_text(first)) == (True, True)
        links = re.findall(r'href="([^"]+)#timeline-table">(\w+)<', first)
        assert [name for _, name in links] == ["Next"]
        second = (await browser.get(unescape(links[0][0]))).body.decode()
        assert '<details id="timeline-table" open>' in second
        assert ("Items 3 to 3 of 3" in page_text(second), 'name="q" type="search" value="WEB"' in second) == (
            True,
            True,
        )
        assert re.findall(r'#timeline-table">(\w+)<', second) == ["Previous"]
        assert "web/web-2 Reboot" in page_text(second)


async def test_hostile_text_is_escaped() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        reason = "</script><script>alert(1)</script>"
        await schedule_event(service, "Reboot", "web/web-0", notice="30m", unannounced=True, reason=reason)
        assert b"<script>alert" not in (await browser.get("/ui/timeline?q=%3Cscript%3Ealert")).body
        assert b"<script>alert" not in (await browser.get("/ui/timeline")).body
        facts = dict((await read_chart(browser))["rows"][0]["items"][0]["facts"])
        assert facts["Reason"] == reason
