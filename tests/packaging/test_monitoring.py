"""Alert rules and dashboard: they use existing metrics, and every alert explains what to do."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are in a separate package, not worth it for one call
from prometheus_client.parser import text_string_to_metric_families

from forewarn.core.clock_offset import TimeResponse
from forewarn.fleet.clock_offset import ClockOffset
from forewarn.guest.counters import Counters
from forewarn.operator.counters import Counters as OperatorCounters
from forewarn.operator.metrics import metrics_text
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import run_fleet

ROOT = Path(__file__).parents[2]
RULES = ROOT / "packaging/prometheus/forewarn.rules.yml"
BOARD = ROOT / "packaging/grafana/forewarn.json"
REFERENCE = ROOT / "docs/reference/metrics.md"
SERIES = re.compile(r"\bforewarn_\w+")


@pytest.fixture
async def exported() -> dict[str, str]:
    """Every exported series, with the type of its metric family."""
    async with run_fleet(web_scope()) as fleet:
        offset = ClockOffset(fleet.clock, monotonic=lambda: 0.0)
        fleet.cluster = fleet.cluster._replace(clock_offset=offset)  # a cluster has one
        offset.take([TimeResponse(at=fleet.clock.now(), sent=0.0, received=0.0)])
        text = (await metrics_text(fleet, Counters(), OperatorCounters())).decode()
    names: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        match family.type:
            case "counter":
                names[f"{family.name}_total"] = family.type
            case "histogram":
                names |= {f"{family.name}{part}": family.type for part in ("_bucket", "_count", "_sum")}
            case _:
                names[family.name] = family.type
    return {name: type_ for name, type_ in names.items() if name.startswith("forewarn_")}


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    board = msgspec.json.decode(BOARD.read_bytes())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])


async def test_every_metric_in_rules_and_dashboard_exists(exported: dict[str, str]) -> None:
    named = {name for expression in expressions() for name in SERIES.findall(expression)}
    assert named
    assert named - set(exported) == set()


async def test_dashboard_shows_every_metric(exported: dict[str, str]) -> None:
    board = BOARD.read_text()
    families = {
        re.sub(r"_(bucket|count|sum)$", "", name) if exported[name] == "histogram" else name for name in exported
    }
    left_out = {"forewarn_build_info", "forewarn_scopes", "forewarn_journal_feeds"}
    assert {name for name in families if name not in board} <= left_out


async def test_reference_names_every_metric(exported: dict[str, str]) -> None:
    page = REFERENCE.read_text()
    listed = set(re.findall(r"^\| `(forewarn_\w+)`", page, re.MULTILINE))
    assert listed == {
        re.sub(r"_(bucket|count|sum)$", "", name) if type_ == "histogram" else name for name, type_ in exported.items()
    }


def test_every_alert_explains_its_meaning_and_what_to_do() -> None:
    assert rules()
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["alert"].startswith("Forewarn")
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"].endswith(".")
        assert len(rule["annotations"]["runbook"]) > 60, rule["alert"]
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


def test_every_alert_is_in_the_reference() -> None:
    page = REFERENCE.read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in page] == []


@pytest.mark.parametrize("expression", list(expressions()))
def test_every_expression_is_valid_promql(expression: str) -> None:
    promql_parser.parse(re.sub(r"\$__\w+", "5m", expression))  # Grafana substitutes the interval


def test_invalid_expression_would_be_found() -> None:
    with pytest.raises(ValueError, match=r"unclosed|unexpected|invalid"):
        promql_parser.parse("sum(rate(forewarn_guest_answers_total[5m])")


def test_dashboard_panels_do_not_overlap() -> None:
    board = msgspec.json.decode(BOARD.read_bytes())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
