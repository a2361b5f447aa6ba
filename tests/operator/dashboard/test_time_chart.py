"""Time charts: the data that the script reads, and the table of the same items."""

import re
from datetime import UTC, datetime

import msgspec
import pytest

from forewarn.operator.dashboard import time_chart
from forewarn.operator.dashboard.assets import assets
from forewarn.operator.dashboard.time_chart import (
    BACKGROUND_NAMES,
    BAR_NAMES,
    BackgroundKind,
    BarKind,
    ChartBackground,
    ChartBar,
    ChartItem,
    ChartOutcome,
    ChartRow,
    TablePage,
    TablePhase,
    TableRow,
    TableSpan,
    TimeChart,
    chart_data,
    to_moment,
    to_seconds,
)

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
START = to_seconds(TEN)

REBOOT = ChartItem(
    label="Reboot",
    href="/ui/events/1",
    bars=(ChartBar(BarKind.NOTICE, START, START + 900), ChartBar(BarKind.IMPACT, START + 900, None)),
    facts=(("VMs", "web-0"),),
)
EARLIER = ChartItem(
    label="</script>&", bars=(ChartBar(BarKind.WAVE, START - 60, START),), facts=(), mark=ChartOutcome.DONE, plan=True
)
CHART = TimeChart(
    start=START,
    end=START + 3600,
    rows=(ChartRow(label="web", href="/ui/fleet", items=(REBOOT, EARLIER)),),
    backgrounds=(ChartBackground(kind=BackgroundKind.BLACKOUT, start=START, end=START + 60, label="fair"),),
)


def test_data_has_the_shape_that_the_script_documents() -> None:
    assert msgspec.json.decode(str(chart_data(CHART))) == {
        "from": START,
        "to": START + 3600,
        "follow": False,
        "rows": [
            {
                "label": "web",
                "href": "/ui/fleet",
                "items": [
                    {
                        "label": "Reboot",
                        "href": "/ui/events/1",
                        "bars": [["notice", START, START + 900], ["impact", START + 900, None]],
                        "facts": [["VMs", "web-0"]],
                    },
                    {
                        "label": "</script>&",
                        "bars": [["wave", START - 60, START]],
                        "facts": [],
                        "mark": "done",
                        "plan": True,
                    },
                ],
            }
        ],
        "backgrounds": [{"kind": "blackout", "from": START, "to": START + 60, "label": "fair"}],
    }


def test_no_text_of_a_user_ends_the_element_with_the_data() -> None:
    assert set("<>&") & set(chart_data(CHART)) == set()


def test_table_has_the_items_in_order_of_time_with_their_phases() -> None:
    (row,) = CHART.rows
    lines = [
        TableRow(row, EARLIER, (TablePhase("Wave", to_moment(START - 60), TEN),)),
        TableRow(
            row,
            REBOOT,
            (TablePhase("Notice", TEN, to_moment(START + 900)), TablePhase("Impact", to_moment(START + 900), None)),
        ),
    ]
    assert CHART.table(1) == TablePage(1, lines, 1, 2)
    assert CHART.item_count == 2
    assert CHART.ranges == [TableSpan("Black-out", "fair", TEN, to_moment(START + 60))]


def test_long_table_has_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_chart, "TABLE_LINES", 1)
    items = {number: [line.item for line in CHART.table(number).lines] for number in (0, 1, 2, 9)}
    assert items == {0: [EARLIER], 1: [EARLIER], 2: [REBOOT], 9: [REBOOT]}
    assert CHART.table(9)._replace(lines=[]) == TablePage(2, [], 2, 2)
    empty = msgspec.structs.replace(CHART, rows=())
    assert empty.table(1) == TablePage(1, [], 1, 0)


def test_script_has_a_pattern_and_the_same_name_for_every_kind() -> None:
    script = assets().contents["chart-drawing.js"].decode()
    names = dict(re.findall(r'^  (\w+): \{ name: "([^"]*)"', script, re.MULTILINE))
    assert names == {
        **{kind.value: name for kind, name in BAR_NAMES.items()},
        **{kind.value: name for kind, name in BACKGROUND_NAMES.items()},
        "done": "Completed",
        "failed": "Failed",
        "canceled": "Canceled",
    }
