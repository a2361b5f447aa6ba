"""The plan of a small campaign as bars. The plan is made by the planner itself."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import NAMESPACE_DNS, uuid5
from zoneinfo import ZoneInfo

from forewarn.core.campaign.plan import Plan, PlannedWave, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection, Window
from forewarn.core.event import EventType
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Roster, Vm
from tools.pictures.svg import AMBER, BLUE, GREEN, LINE, MUTED, PLAIN, Canvas

ASKED_AT = datetime(2030, 1, 12, 21, 50, tzinfo=UTC)
END = datetime(2030, 1, 12, 23, 40, tzinfo=UTC)
OPENS, CLOSES = "22:00", "23:30"
ORDER = ("web", "api", "db")
LEFT, MINUTE, ROW, TOP = 90, 6.6, 44, 80

SPEC = CampaignSpec(
    name="kernel",
    type=EventType.REBOOT,
    selection=Selection(all=True),
    policy=CampaignPolicy(
        expected=timedelta(minutes=10),
        vms_at_once=Limit(number=3),
        windows=(Window(start=OPENS, end=CLOSES),),
    ),
)


def example_plan() -> Plan:
    """Make the plan: `web` with three update domains of two VMs, `api` with two of two, `db` with two of one."""
    fleet = [_scope("api", 2, 2), _scope("db", 1, 1), _scope("web", 2, 2, 2)]
    inputs = plan_scopes(fleet, SPEC, RuleContext(), now=ASKED_AT)
    return plan(SPEC, inputs, RuleContext(), now=ASKED_AT, zones=ZoneInfo)


def _scope(id_: str, *domains: int) -> Scope:
    names = [(f"{id_}_{domain}{n}", domain) for domain, size in enumerate(domains) for n in range(size)]
    vms = tuple(
        Vm(name=name, vm_id=str(uuid5(NAMESPACE_DNS, name)).upper(), update_domain=domain) for name, domain in names
    )
    return Scope(id=id_, kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=ASKED_AT, roster=Roster(vms))


def x_of(moment: datetime) -> float:
    return LEFT + (moment - ASKED_AT) / timedelta(minutes=1) * MINUTE


def vms_at_once(whole: Plan, moment: datetime) -> int:
    """Return how many VMs are in impact."""
    return sum(len(wave.vms) for wave in whole.waves if wave.not_before <= moment < wave.ends_at)


def draw() -> str:
    """Draw the picture."""
    whole = example_plan()
    bottom = TOP + ROW * len(ORDER)
    canvas = Canvas(
        x_of(END) + 30, bottom + 108, title="The plan of a campaign: three scopes, at most three VMs at once"
    )
    window = [_clock(OPENS), _clock(CLOSES)]
    canvas.box(
        x_of(window[0]), 38, x_of(window[1]) - x_of(window[0]), 24, f"window {OPENS} to {CLOSES}", colour=GREEN, size=12
    )
    for edge in window:
        canvas.line((x_of(edge), 62), (x_of(edge), bottom), colour=GREEN.stroke, dashed=True)
    canvas.text(x_of(ASKED_AT), 30, "asked for at 21:50", size=12, colour=MUTED, anchor="start")
    for number, scope in enumerate(ORDER):
        y = TOP + ROW * number
        canvas.text(20, y + 21, scope, anchor="start", bold=True, size=14)
        for wave in whole.waves:
            if wave.scope == scope:
                _draw_wave(canvas, wave, y)
    canvas.text(20, bottom + 18, "VMs", anchor="start", bold=True, size=14)
    _draw_load(canvas, whole, bottom + 18)
    _draw_axis(canvas, bottom + 40)
    y = bottom + 78
    canvas.box(LEFT, y, 30, 16, colour=PLAIN)
    canvas.text(LEFT + 38, y + 13, "notice", anchor="start", size=12)
    canvas.box(LEFT + 110, y, 30, 16, colour=AMBER)
    canvas.text(LEFT + 148, y + 13, "impact on one update domain (UD)", anchor="start", size=12)
    return canvas.render()


def _clock(text: str) -> datetime:
    hour, minute = text.split(":")
    return ASKED_AT.replace(hour=int(hour), minute=int(minute))


def _draw_wave(canvas: Canvas, wave: PlannedWave, y: float) -> None:
    notice, start, end = (x_of(moment) for moment in (wave.announce_at, wave.not_before, wave.ends_at))
    canvas.box(notice, y + 6, start - notice, 20, colour=PLAIN)
    canvas.box(start, y, end - start, 32, f"UD {wave.update_domain}", colour=AMBER, size=12)


def _draw_load(canvas: Canvas, whole: Plan, y: float) -> None:
    edges = sorted({moment for wave in whole.waves for moment in (wave.not_before, wave.ends_at)})
    for start, end in pairwise(edges):
        if load := vms_at_once(whole, start):
            canvas.text((x_of(start) + x_of(end)) / 2, y, str(load), size=13, bold=True, colour=BLUE.stroke)


def _draw_axis(canvas: Canvas, y: float) -> None:
    canvas.line((LEFT, y), (x_of(END), y))
    moment = _clock("22:00")
    while moment <= END:
        canvas.line((x_of(moment), y - 5), (x_of(moment), y + 5), colour=LINE)
        canvas.text(x_of(moment), y + 22, f"{moment:%H:%M}", size=12, colour=MUTED)
        moment += timedelta(minutes=30)
