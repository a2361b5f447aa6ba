"""The plan that is drawn in the documentation is the one that is made."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from forewarn.core.campaign.plan import Plan, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection, Window
from forewarn.core.campaign.windows import is_open
from forewarn.core.event import EventType
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from tests.core.builders import a_scope, a_vm

PAGE = Path(__file__).parents[3] / "docs/explanation/campaigns.md"
BEGIN, END = "<!-- drawing -->\n", "<!-- end of drawing -->\n"

ASKED_AT = datetime(2030, 1, 12, 21, 50, tzinfo=UTC)
STEP = timedelta(minutes=5)
STEPS = 22

SPEC = CampaignSpec(
    name="kernel",
    type=EventType.REBOOT,
    selection=Selection(all=True),
    policy=CampaignPolicy(
        expected=timedelta(minutes=10),
        vms_at_once=Limit(number=3),
        windows=(Window(start="22:00", end="23:30"),),
    ),
)


def a_set(id_: str, *domains: int) -> Scope:
    """Return a scope with so many VMs in each update domain."""
    vms = [a_vm(f"{id_}_{ud}{n}", update_domain=ud) for ud, number in enumerate(domains) for n in range(number)]
    return a_scope(vms, id=id_)


def made() -> Plan:
    fleet = [a_set("api", 2, 2), a_set("db", 1, 1), a_set("web", 2, 2, 2)]
    inputs = plan_scopes(fleet, SPEC, RuleContext(), now=ASKED_AT)
    return plan(SPEC, inputs, RuleContext(), now=ASKED_AT, zones=ZoneInfo)


def drawing() -> Iterator[str]:
    """Draw the plan, two characters for five minutes, and write its waves as a table."""
    whole = made()
    moments = [ASKED_AT + number * STEP for number in range(STEPS)]
    marks = [f"{moment:%H:%M}".ljust(12) for moment in moments if moment.minute % 30 == 0]
    yield "```"
    yield f"{'':10}{'':{2 * ((30 - ASKED_AT.minute) % 30 // 5)}}{''.join(marks)}".rstrip()
    yield line("window", ["==" if is_open(SPEC.policy, moment, ZoneInfo) else "  " for moment in moments])
    for scope in ("web", "api", "db"):
        yield line(scope, [mark(whole, scope, moment) for moment in moments])
    yield line("VMs", [f"{in_impact(whole, moment) or '':<2}" for moment in moments])
    yield "```"
    yield ""
    yield "| wave | announced | starts | expected to end | VMs |"
    yield "|---|---|---|---|---|"
    for wave in whole.waves:
        times = " | ".join(f"{moment:%H:%M}" for moment in (wave.announce_at, wave.not_before, wave.ends_at))
        yield f"| {wave.scope} {wave.n}: update domain {wave.update_domain} | {times} | {', '.join(wave.vms)} |"


def line(name: str, cells: list[str]) -> str:
    return f"{name:10}{''.join(cells)}".rstrip()


def mark(whole: Plan, scope: str, moment: datetime) -> str:
    """Return what is drawn for a scope: its notice, the update domain in impact, or nothing."""
    for wave in whole.waves:
        if wave.scope == scope and wave.announce_at <= moment < wave.not_before:
            return "--"
        if wave.scope == scope and wave.not_before <= moment < wave.ends_at:
            return 2 * str(wave.update_domain)
    return "  "


def in_impact(whole: Plan, moment: datetime) -> int:
    return sum(len(wave.vms) for wave in whole.waves if wave.not_before <= moment < wave.ends_at)


def drawn(page: str) -> str:
    """Return the page with the drawing as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(f"{line}\n" for line in drawing()) + END + after


def test_drawing_in_the_documentation_shows_the_plan(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(drawn(page))
    else:
        assert page == drawn(page)


def test_stale_drawing_is_seen() -> None:
    page = PAGE.read_text()
    stale = page.replace("| 21:50 | 22:05 |", "| 21:50 | 22:00 |")
    assert stale != page
    assert drawn(stale) == page
