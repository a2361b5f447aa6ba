"""Requests as people send them, for the description of the API."""

from typing import Any

import msgspec

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.campaign.spec import Weekday
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Priority

_ALL: tuple[v1.Request, ...] = (
    v1.ScheduleEvents(
        type=EventType.REBOOT,
        vms=("web/web-0",),
        notice="20m",
        duration="90s",
        description="The host gets a new kernel.",
        why="ticket 4711",
    ),
    v1.Operate(vm="web/web-0", why="it hangs"),
    v1.Evict(vm="batch/batch_1", notice="45s"),
    v1.Fail(host="hv-1", why="memory error"),
    v1.PredictFailure(host="hv-1", ahead="7d", why="a disk reports errors"),
    v1.CancelEvent(why="the patch was withdrawn"),
    v1.ApproveEvent(vm="web-0", why="drained by hand"),
    v1.RetryImpact(vm="web-0", why="the host is back"),
    v1.ResolveImpact(vm="web-0", done=True, why="restarted by hand"),
    v1.StartCampaign(
        name="kernel-6.1",
        type=v1.CampaignType.REBOOT,
        selection=v1.CampaignSelection(scopes=("web", "shop-*"), exclude_tags={"critical": "yes"}),
        duration="90s",
        description="The host gets a new kernel.",
        policy=v1.CampaignPolicy(
            gap="1h",
            scopes_at_once="10%",
            windows=(
                v1.CampaignWindow(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00", zone="Europe/Vienna"),
            ),
        ),
        why="ticket 4711",
    ),
    v1.PauseCampaign(why="let us look at the first wave"),
    v1.ResumeCampaign(why="the first wave is fine"),
    v1.AbortCampaign(why="the kernel was withdrawn"),
    v1.RetryWave(scope="web", why="the host is back"),
    v1.SkipWave(scope="web", why="rebooted by hand"),
    v1.MakeHold(scope="web", reason="quarter-end closing"),
    v1.ReleaseHold(scope="web", why="closing is done"),
    v1.SetFault(kind=FaultKind.STATUS_410, vm="web/web-0", times=3, why="does it ask again?"),
    v1.OpenSocket(vm="web-0"),
    v1.AddScope(id="cache", kind=ScopeKind.AVAILABILITY_SET, approval=ApprovalRule.ALL),
    v1.ChangeScope(approval=ApprovalRule.ALL),
    v1.AddVm(
        name="cache-0",
        scope="cache",
        host="hv-1",
        addresses=(v1.NewAddress(ip="10.20.9.4"),),
        priority=Priority.LOW,
        tags={"role": "cache"},
    ),
    v1.ChangeVm(host="hv-2"),
    v1.CreateToken(name="night-shift", role=Role.OPERATOR, scopes=("web", "shop-*")),
    v1.AdvanceClock(by="15m"),
)


def _said(request: v1.Request) -> dict[str, Any]:
    """Return what a person would write: nothing that holds anyway."""
    usual = {field.name: field.default for field in msgspec.structs.fields(request)}
    said = (name for name, value in usual.items() if getattr(request, name) not in (value, msgspec.UNSET))
    return {name: msgspec.to_builtins(getattr(request, name)) for name in said}


EXAMPLES: dict[str, dict[str, Any]] = {type(request).__name__: _said(request) for request in _ALL}
"""An example for each type of request."""
