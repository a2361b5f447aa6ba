"""Campaign views: tables of plans, waves and campaigns, progress bars, and the next steps for the operator."""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from forewarn.api import v1
from forewarn.api.table_reader import NONE
from forewarn.api.v1.campaign_spec import spec_from_request
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.output import moment_text, write, write_message
from forewarn.cli.views.tables import Column, Row, with_cells, write_details, write_table
from forewarn.core.campaign.record import CampaignState
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, HttpCheck, Window
from forewarn.core.duration import format_duration
from forewarn.core.text import count_text

MAX_ROWS = 200
"""How many waves are shown on a terminal at most."""

BAR_WIDTH = 24
"""The width of a progress bar in characters."""

MAX_NAMES = 3
"""How many hosts or VMs a line names; of more it shows the number. `-o json` has all names."""

MAX_HINTS = 3
"""For how many failures the next steps are shown."""

SECOND = timedelta(seconds=1)
UNDER_WAY = "under way"
"""The displayed state of waves that are cleared to start, have started, or are retried."""

STATE_COLOURS = {
    CampaignState.RUNNING.value: Colour.WARNING,
    CampaignState.PAUSED.value: Colour.WARNING,
    CampaignState.HALTED.value: Colour.BAD,
    CampaignState.COMPLETED.value: Colour.GOOD,
    CampaignState.ABORTED.value: Colour.DIM,
}

WAVE_COLOURS = {
    v1.WaveState.ANNOUNCED.value: Colour.WARNING,
    v1.WaveState.UNANNOUNCED.value: Colour.WARNING,
    UNDER_WAY: Colour.WARNING,
    v1.WaveState.FAILED.value: Colour.BAD,
    v1.WaveState.DONE.value: Colour.GOOD,
    v1.WaveState.SKIPPED.value: Colour.DIM,
    v1.WaveState.ABANDONED.value: Colour.DIM,
}

PLAN_COLUMNS = (
    Column("ANNOUNCED", drop_order=4),
    Column("NOT BEFORE"),
    Column("ENDS", drop_order=2),
    Column("SCOPE"),
    Column("WAVE"),
    Column("UPDATE DOMAIN", drop_order=3),
    Column("HOSTS", max_width=32, drop_order=1),
    Column("VMS", can_fold=True),
)
UNPLACED_COLUMNS = (
    Column("UNPLACED"),
    Column("UPDATE DOMAIN", drop_order=1),
    Column("VMS", max_width=32, drop_order=2),
    Column("POLICY KEY"),
    Column("EXCESS"),
    Column("REASON", can_fold=True),
)
WAVE_COLUMNS = (
    Column("SCOPE"),
    Column("WAVE"),
    Column("STATE", colours=WAVE_COLOURS),
    Column("NOT BEFORE"),
    Column("SINCE"),
    Column("PLANNED FOR", drop_order=2),
    Column("UPDATE DOMAIN", drop_order=3),
    Column("VMS", drop_order=1),
)
EXPECTED_END, ENDED = "EXPECTED END", "ENDED"
CAMPAIGN_COLUMNS = (
    Column("CAMPAIGN"),
    Column("STATE", colours=STATE_COLOURS),
    Column("TYPE", drop_order=2),
    Column("WAVES"),
    Column("FAILED"),
    Column("STARTED", drop_order=3),
    Column(EXPECTED_END, drop_order=1),
    Column(ENDED, drop_order=1),
    Column("ID", drop_order=4, has_ids=True),
)


def write_plan(plan: v1.CampaignPlan) -> None:
    """Write every wave and the unplaced VMs."""
    shown = plan.waves[:MAX_ROWS] if sys.stdout.isatty() else plan.waves
    if shown:
        write_table(PLAN_COLUMNS, map(_wave_row, shown))
    if len(shown) < len(plan.waves):
        write_message(
            f"… and {len(plan.waves) - len(shown)} more waves; to see all, redirect to a file or use -o json."
        )
    if plan.unplaced:
        if shown:
            write("")
        write_table(UNPLACED_COLUMNS, map(_unplaced_row, plan.unplaced))


def _wave_row(wave: v1.PlannedWave) -> Row:
    return (
        moment_text(wave.announce_at) if wave.announced else "no",
        moment_text(wave.not_before),
        moment_text(wave.ends_at),
        wave.scope,
        str(wave.number),
        str(wave.update_domain),
        short_list(wave.hosts),
        short_list(wave.vms),
    )


def _unplaced_row(unplaced: v1.UnplacedVms) -> Row:
    return (
        unplaced.scope,
        str(unplaced.update_domain),
        short_list(unplaced.vms),
        unplaced.policy_key,
        unplaced.excess,
        unplaced.reason,
    )


def short_list(names: Sequence[str]) -> str:
    """Return the names; if there are too many, the first ones and the number of the others."""
    if len(names) <= MAX_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_NAMES - 1])} and {len(names) - MAX_NAMES + 1} more"


def plan_summary(plan: v1.CampaignPlan) -> str:
    """Return a summary of a plan in one sentence."""
    without = sum(len(each.vms) for each in plan.unplaced)
    amounts = ", ".join(count_text(number, what) for number, what in ((plan.vm_count, "VM"), (plan.host_count, "host")))
    if not plan.waves:
        return f"No wave could be placed: {amounts} in {count_text(plan.scope_count, 'scope')}."
    first = min(wave.announce_at for wave in plan.waves)
    is_first = "announced" if any(wave.announced for wave in plan.waves) else "scheduled"
    last = "" if plan.ends_at is None else f", expected to end at {moment_text(plan.ends_at)}"
    rest = f"; {count_text(without, 'VM')} unplaced" if without else ""
    return (
        f"{count_text(len(plan.waves), 'wave')} in {count_text(plan.scope_count, 'scope')}: {amounts}; "
        f"first {is_first} at {moment_text(first)}{last}{rest}."
    )


def write_campaigns(campaigns: Iterable[v1.Campaign]) -> None:
    """Write a table of campaigns."""
    known = list(campaigns)
    over = {campaign.state.is_over for campaign in known}
    needless = {title for title, is_for in ((ENDED, True), (EXPECTED_END, False)) if is_for not in over}
    shown = [n for n, column in enumerate(CAMPAIGN_COLUMNS) if column.title not in needless]
    rows = ([_campaign_row(each)[n] for n in shown] for each in known)
    write_table(*with_cells(known, [CAMPAIGN_COLUMNS[n] for n in shown], rows))


def _campaign_row(campaign: v1.Campaign) -> Row:
    return (
        campaign.name,
        campaign.state.value,
        campaign.type.value,
        f"{campaign.finished_wave_count}/{campaign.wave_count}",
        str(len(campaign.failures)),
        moment_text(campaign.started_at),
        _expected_end(campaign),
        "" if campaign.ended_at is None else moment_text(campaign.ended_at),
        campaign.id,
    )


def write_waves(waves: Sequence[v1.CampaignWave]) -> None:
    """Write every wave of a campaign, by scope."""
    shown = waves[:MAX_ROWS] if sys.stdout.isatty() else waves
    write_table(WAVE_COLUMNS, map(_campaign_wave_row, shown))
    if len(shown) < len(waves):
        write_message(
            f"… and {len(waves) - len(shown)} more; to see all, redirect to a file, or use -o json or --scope NAME."
        )


def _campaign_wave_row(wave: v1.CampaignWave) -> Row:
    at = "" if wave.state_changed_at is None else moment_text(wave.state_changed_at)
    announced = wave.state in (v1.WaveState.ANNOUNCED, v1.WaveState.UNANNOUNCED)
    return (
        wave.scope,
        str(wave.number),
        UNDER_WAY if wave.state in (v1.WaveState.CLEARED, v1.WaveState.RETRYING) else wave.state.value,
        at if announced else "",
        "" if announced else at,
        moment_text(wave.planned_at),
        str(wave.update_domain),
        str(wave.vm_count),
    )


def write_campaign(campaign: v1.Campaign) -> None:
    """Write a campaign: its progress by wave, what it waits for, and the next steps for the operator."""
    write_details(_details(campaign))
    write("")
    for line in state_lines(campaign):
        write(line)
    for line in next_steps(campaign):
        write_message(line)


def state_lines(campaign: v1.Campaign) -> list[str]:
    """Return the progress bars and what the campaign waits for."""
    waits = ["", "Waits for:", *(f"  {line}" for line in campaign.explanation)] if campaign.explanation else []
    return [*progress_lines(campaign), *waits]


def _details(campaign: v1.Campaign) -> Sequence[tuple[str, str]]:
    spec = campaign.spec
    return (
        ("campaign", campaign.name),
        ("id", campaign.id),
        ("state", coloured(campaign.state.value, STATE_COLOURS.get(campaign.state.value))),
        ("type", campaign.type.value),
        ("duration", spec.duration or ""),
        ("description", spec.description),
        (
            "selected",
            (
                f"{count_text(campaign.vm_count, 'VM')} on {count_text(campaign.host_count, 'host')} "
                f"in {count_text(campaign.scope_count, 'scope')}"
            ),
        ),
        ("not announced", _unannounced_amounts(campaign)),
        ("policy", policy_text(spec_from_request(spec).policy)),
        ("started", _attribution(campaign.started_at, campaign.created_by, _start_reason(campaign))),
        ("planned end", "" if campaign.planned_end_at is None else moment_text(campaign.planned_end_at)),
        ("expected end", _expected_end(campaign)),
        ("resumed", _resumed(campaign)),
        ("ended", _ended(campaign)),
    )


def unannounced_text(campaign: v1.Campaign) -> str:
    """Return how many scopes and VMs will not hear of a campaign; empty if all will."""
    amounts = _unannounced_amounts(campaign)
    return f"Will not hear of it, because they do not poll for events: {amounts}." if amounts else ""


def _unannounced_amounts(campaign: v1.Campaign) -> str:
    if not campaign.unannounced_scope_count:
        return ""
    vms = f"{campaign.unannounced_vm_count} of {count_text(campaign.vm_count, 'VM')}"
    return f"{vms} in {campaign.unannounced_scope_count} of {count_text(campaign.scope_count, 'scope')}"


def _start_reason(campaign: v1.Campaign) -> str:
    return campaign.reason or (campaign.state_reason if _is_as_started(campaign) else "")


def _expected_end(campaign: v1.Campaign) -> str:
    if campaign.expected_end_at is None or campaign.ended_at is not None:
        return ""
    return moment_text(campaign.expected_end_at)


def _resumed(campaign: v1.Campaign) -> str:
    """Return who resumed the campaign, if anyone did. In other states its explanation names the actor."""
    if campaign.state is not CampaignState.RUNNING or _is_as_started(campaign):
        return ""
    return _attribution(campaign.state_changed_at, campaign.state_changed_by, campaign.state_reason)


def _is_as_started(campaign: v1.Campaign) -> bool:
    """Return whether the state is unchanged since the start, whose time is stored to the second."""
    return campaign.state_changed_at - campaign.started_at < SECOND


def _ended(campaign: v1.Campaign) -> str:
    return (
        ""
        if campaign.ended_at is None
        else _attribution(campaign.ended_at, campaign.state_changed_by, campaign.state_reason)
    )


def _attribution(at: datetime, by: str, why: str) -> str:
    return f"{moment_text(at)} by {by}" + (f": {why}" if why else "")


def policy_text(policy: CampaignPolicy) -> str:
    """Return the policy keys that differ from their defaults, in one line."""
    defaults = CampaignPolicy()
    given = {key: getattr(policy, key) for key in CampaignPolicy.__struct_fields__}
    return "; ".join(
        f"{key.replace('_', ' ')} {_value_text(value, policy.zone)}"
        for key, value in given.items()
        if value != getattr(defaults, key)
    )


def _value_text(value: object, zone: str) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return format_duration(value)
        case tuple():
            return " or ".join(_value_text(item, zone) for item in value)
        case Window():
            return str(value) if value.zone else f"{value} {zone}"
        case Blackout():
            times = f"{moment_text(value.start)} to {moment_text(value.end)}"
            return f"{times} ({value.why})" if value.why else times
        case HttpCheck():
            return value.display_url
        case _:
            return str(value)


def progress_lines(campaign: v1.Campaign) -> list[str]:
    """Return a progress bar for the first waves of all scopes, one for their second waves, and so on."""
    number = len(str(len(campaign.progress)))
    count = max((len(str(each.wave_count)) for each in campaign.progress), default=1)
    return [
        f"wave {each.number:>{number}}  {_bar(each)}  {_waves_over(each):>{count}}/{each.wave_count:<{count}} scopes, "
        f"{count_text(each.vm_count, 'VM')}: {_states(each)}"
        for each in campaign.progress
    ]


def _waves_over(wave: v1.WaveProgress) -> int:
    return wave.done + wave.skipped


def _bar(wave: v1.WaveProgress) -> str:
    """Draw the shares of finished, open, failed, planned and abandoned waves."""
    parts = (
        (_waves_over(wave), "█", Colour.GOOD),
        (wave.announced + wave.unannounced + wave.cleared + wave.retrying, "▒", Colour.WARNING),
        (wave.failed, "▚", Colour.BAD),
        (wave.planned, "░", Colour.DIM),
        (wave.abandoned, "·", Colour.DIM),
    )
    cells = _cells([number for number, _, _ in parts])
    return "".join(coloured(sign * share, colour) for share, (_, sign, colour) in zip(cells, parts, strict=True))


def _cells(numbers: Sequence[int]) -> list[int]:
    """Distribute the cells of a bar; each part above zero gets at least one cell, if there are enough."""
    ends = [round(BAR_WIDTH * end / (sum(numbers) or 1)) for end in accumulate(numbers)]
    cells = [end - start for start, end in pairwise([0, *ends])]
    for n, number in enumerate(numbers):
        largest = cells.index(max(cells))
        if number and not cells[n] and cells[largest] > 1:
            cells[largest] -= 1
            cells[n] += 1
    return cells


def _states(wave: v1.WaveProgress) -> str:
    counts = {
        "done": wave.done,
        "skipped": wave.skipped,
        UNDER_WAY: wave.cleared + wave.retrying,
        "announced": wave.announced,
        "unannounced": wave.unannounced,
        "failed": wave.failed,
        "planned": wave.planned,
        "abandoned": wave.abandoned,
    }
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def next_steps(campaign: v1.Campaign) -> list[str]:
    """Return what the operator can do if the campaign does not continue by itself."""
    if campaign.state.is_over:
        return []
    name, steps = campaign.name, []
    for failure in campaign.failures[:MAX_HINTS]:
        retry = f"`forewarn campaign retry {name} {failure.scope}`"
        skip = f"`forewarn campaign skip {name} {failure.scope} --reason …`"
        steps.append(f"{retry} retries wave {failure.number} of {failure.scope}, {skip} skips it.")
    if len(campaign.failures) > MAX_HINTS:
        rest = len(campaign.failures) - MAX_HINTS
        steps.append(f"{rest} more {'has' if rest == 1 else 'have'} failed; use --failed instead of a scope for all.")
    if campaign.state in (CampaignState.PAUSED, CampaignState.HALTED):
        resume, abort = f"`forewarn campaign resume {name}`", f"`forewarn campaign abort {name} --reason …`"
        steps.append(f"{resume} resumes it, {abort} aborts it.")
    return steps
