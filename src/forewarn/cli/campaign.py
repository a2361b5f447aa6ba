"""`forewarn campaign …`: maintenance over many scopes, wave by wave."""

from collections.abc import Callable
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.api.errors import NotFound, Refusal
from forewarn.cli.campaign_deciding import AllFailed, Decide, FailedScopes, ScopeNames, chosen_scopes, decide_each
from forewarn.cli.campaign_options import takes_campaign
from forewarn.cli.campaign_showing import (
    next_steps,
    plan_summary,
    write_campaign,
    write_campaigns,
    write_plan,
    write_waves,
)
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.finding import LEAST
from forewarn.cli.names import CampaignName, complete_scopes
from forewarn.cli.options import Key, PlainUsage, Why, choice
from forewarn.cli.output import Output, say, write_json
from forewarn.cli.progress import Bar
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import mention_hold
from forewarn.core.campaign.record import CampaignState

app = typer.Typer()

Reason = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for the journal; it has to be said.")]
EveryWave = Annotated[bool, typer.Option("--waves", help="Show every wave of every scope instead.")]
WavesOf = Annotated[
    str | None,
    typer.Option("--scope", metavar="NAME", help="Show the waves of this scope.", autocompletion=complete_scopes),
]
WaitForIt = Annotated[bool, typer.Option("--wait", help="Follow it to its end. Ctrl-C stops watching, not it.")]


@app.command("plan", cls=PlainUsage)
@asks_service
@takes_campaign
def plan(asked: Asked, spec: v1.CampaignSpec) -> None:
    """Show every wave with its times, hosts and VMs. Nothing is announced.

    FILE is TOML, - is stdin; options come before what it says, and can say everything without it; none switches off
    what it says: --gate none. What has no place is shown with the rule and by how much it is missed; then the exit
    code is 3.

    Examples: forewarn campaign plan kernel.toml; forewarn campaign plan --name kernel --type Reboot --scope 'web-*'
    --gap 1h --scopes-at-once 10%
    """
    made = _plan(asked, spec)
    if asked.output is Output.JSON:
        write_json(made)
    else:
        write_plan(made)
    for remark in made.remarks:
        say(remark)
    say(plan_summary(made))
    if made.unplaced:
        raise typer.Exit(Exit.REFUSED)


@app.command("start", cls=PlainUsage)
@asks_service
@takes_campaign
def start(asked: Asked, spec: v1.CampaignSpec, why: Why = "", key: Key = None, wait: WaitForIt = False) -> None:
    """Start a campaign. It is planned anew; if not every VM has a place, nothing is started.

    FILE and options are those of `campaign plan`.

    Example: forewarn campaign start kernel.toml --wait
    """
    ask = v1.StartCampaign(
        name=spec.name,
        type=spec.type,
        selection=spec.selection,
        duration=spec.duration,
        description=spec.description,
        policy=spec.policy,
        start_at=spec.start_at,
        why=why,
    )
    started = asked.api.start_campaign(ask, key=key)
    if wait:
        _follow(asked, started)
        return
    _show_changed(started, asked.output)
    if asked.output is Output.TABLE:
        say(f"`forewarn campaign watch {started.name}` follows it.")
    mention_hold(asked)


@app.command("list")
@asks_service
def list_campaigns(
    asked: Asked,
    state: Annotated[
        CampaignState | None, choice(CampaignState, metavar="STATE", help_="Only those that stand so: Halted.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
) -> None:
    """List the campaigns that are not over, the newest first.

    Example: forewarn campaign list --all
    """
    campaigns = list(asked.api.campaigns(state=state, only_open=not all_ and state is None))
    if asked.output is Output.JSON:
        write_json(campaigns)
    elif campaigns:
        write_campaigns(campaigns)
    else:
        say("No campaigns." if all_ or state is not None else "No campaign is under way; --all shows those before.")


@app.command("show", cls=PlainUsage)
@asks_service
def show(asked: Asked, campaign: CampaignName, waves: EveryWave = False, scope: WavesOf = None) -> None:
    """Show how far a campaign is. Its progress wave by wave, what it waits for, and what has failed.

    CAMPAIGN is its name, its id, or the beginning of that.

    Examples: forewarn campaign show kernel; forewarn campaign show kernel --waves --scope web
    """
    found = _find(asked, campaign)
    if waves or scope is not None:
        _show_waves(asked, found, scope)
        return
    _show(found, asked.output)
    mention_hold(asked)


@app.command("watch", cls=PlainUsage)
@asks_service
def watch(asked: Asked, campaign: CampaignName) -> None:
    """Follow a campaign to its end, live. Ctrl-C stops watching, not the campaign.

    Where it does not go on unless a person decides, it says what can be done, and ends with exit code 1.

    Example: forewarn campaign watch kernel
    """
    _follow(asked, _find(asked, campaign))


@app.command("pause", cls=PlainUsage)
@asks_service
def pause(asked: Asked, campaign: CampaignName, why: Why = "", key: Key = None) -> None:
    """Let no further wave start. What is Started ends.

    Example: forewarn campaign pause kernel --why "let us look at the first wave"
    """
    _change(asked, campaign, lambda id_: asked.api.pause_campaign(id_, v1.PauseCampaign(why=why), key=key))


@app.command("resume", cls=PlainUsage)
@asks_service
def resume(asked: Asked, campaign: CampaignName, why: Why = "", key: Key = None) -> None:
    """Go on after a pause or a halt. Failures are counted anew.

    Example: forewarn campaign resume kernel
    """
    _change(asked, campaign, lambda id_: asked.api.resume_campaign(id_, v1.ResumeCampaign(why=why), key=key))


@app.command("abort", cls=PlainUsage)
@asks_service
def abort(asked: Asked, campaign: CampaignName, why: Reason = "", key: Key = None) -> None:
    """End a campaign for good. What is Scheduled is canceled, what is Started ends.

    Example: forewarn campaign abort kernel --why "the kernel was withdrawn"
    """
    _check_reason(why)
    _change(asked, campaign, lambda id_: asked.api.abort_campaign(id_, v1.AbortCampaign(why=why), key=key))


@app.command("retry", cls=PlainUsage)
@asks_service
def retry(
    asked: Asked,
    campaign: CampaignName,
    scopes: FailedScopes = None,
    failed: AllFailed = False,
    why: Why = "",
    key: Key = None,
) -> None:
    """Have failed waves made once more.

    Each scope is asked for by itself: what is refused in one is said, and the others are done.

    Examples: forewarn campaign retry kernel web --why "the host is back"; forewarn campaign retry kernel --failed
    """
    found = _find(asked, campaign)

    def once_more(scope: str, *, key: str | None) -> v1.Campaign:
        return asked.api.retry_wave(found.id, v1.RetryWave(scope=scope, why=why), key=key)

    _decide(asked, found, chosen_scopes(asked, found, scopes, failed), once_more, key)


@app.command("skip", cls=PlainUsage)
@asks_service
def skip(
    asked: Asked,
    campaign: CampaignName,
    scopes: ScopeNames = None,
    failed: AllFailed = False,
    why: Reason = "",
    key: Key = None,
) -> None:
    """Go on without waves that failed, or wait.

    Each scope is asked for by itself: what is refused in one is said, and the others are done.

    Examples: forewarn campaign skip kernel web --why "rebooted by hand"; forewarn campaign skip kernel --failed
    --why "the rack is gone"
    """
    _check_reason(why)
    found = _find(asked, campaign)

    def without(scope: str, *, key: str | None) -> v1.Campaign:
        return asked.api.skip_wave(found.id, v1.SkipWave(scope=scope, why=why), key=key)

    _decide(asked, found, chosen_scopes(asked, found, scopes, failed), without, key)


def _decide(asked: Asked, campaign: v1.Campaign, scopes: list[str], decide: Decide, key: str | None) -> None:
    decide_each(campaign, scopes, decide, key=key, show=lambda changed: _show_changed(changed, asked.output))


def _check_reason(why: str) -> None:
    if not why.strip():
        raise Stop(Exit.USAGE, "say why, for the journal: --why TEXT")


def _plan(asked: Asked, spec: v1.CampaignSpec) -> v1.CampaignPlan:
    """Plan, and show how far that is."""
    with Bar("Planning") as bar:
        for progress in asked.api.plan_campaign(spec):
            bar.show(progress.done, progress.total)
            if progress.error is not None:
                wrong = progress.error.error
                raise Refusal(409, wrong.code, wrong.message, wrong.details)
            if progress.result is not None:
                return progress.result
    raise Stop(Exit.FAILED, "the planning ended without a plan: say it again")


def _find(asked: Asked, said: str) -> v1.Campaign:
    """Find a campaign by its name or id, or by as much of its id as tells it from others."""
    try:
        return asked.api.campaign(said)
    except NotFound:
        begun = [campaign for campaign in asked.api.campaigns() if campaign.id.startswith(said.upper())]
        if not begun:
            raise
    if len(said) < LEAST:
        raise Stop(
            Exit.NOT_FOUND,
            f"there is no campaign {said}; as the beginning of an id, say at least {LEAST} characters of it",
        )
    if len(begun) > 1:
        ids = " or ".join(sorted(campaign.id for campaign in begun))
        raise Stop(Exit.USAGE, f"{said} is the beginning of several campaigns: {ids}")
    return begun[0]


def _change(asked: Asked, said: str, change: Callable[[str], v1.Campaign]) -> None:
    _show_changed(change(_find(asked, said).id), asked.output)


def _show_changed(campaign: v1.Campaign, output: Output) -> None:
    """Show what has become of a campaign in a line; how far it is, is left to `campaign show`."""
    if output is Output.JSON:
        write_json(campaign)
        return
    write_campaigns([campaign])
    for step in next_steps(campaign):
        say(step)


def _show(campaign: v1.Campaign, output: Output) -> None:
    if output is Output.JSON:
        write_json(campaign)
    else:
        write_campaign(campaign)


def _show_waves(asked: Asked, campaign: v1.Campaign, scope: str | None) -> None:
    waves = list(asked.api.waves(campaign.id, scope=scope))
    if scope is not None and not waves:
        raise Stop(Exit.NOT_FOUND, f"campaign {campaign.name} has no scope {scope}; --waves alone shows all")
    if asked.output is Output.JSON:
        write_json(waves)
    else:
        write_waves(waves)


def _follow(asked: Asked, campaign: v1.Campaign) -> None:
    from forewarn.cli.campaign_following import follow

    follow(asked, campaign)
