"""`forewarn campaign …`: plan, start, follow and control campaigns, and retry or skip their waves."""

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import NAMESPACE_OID, uuid5

import click
import msgspec

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.cli.errors import CliError, ExitCode, error_message, exit_code, with_advised_option
from forewarn.cli.options.campaign import with_campaign
from forewarn.cli.options.common import ChoiceType, CommandGroup, key_option, reason_option
from forewarn.cli.options.completion import campaign_argument, complete_failed_scopes, complete_scopes
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.consent import send_with_consent, unannounced_option
from forewarn.cli.options.lookup import MIN_PREFIX_LENGTH
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.campaign import (
    next_steps,
    plan_summary,
    unannounced_text,
    write_campaign,
    write_campaigns,
    write_plan,
    write_waves,
)
from forewarn.cli.views.event import write_fleet_hold
from forewarn.cli.views.progress import ProgressBar
from forewarn.core.campaign.record import CampaignState
from forewarn.core.text import count_text

failed_option = click.option("--failed", is_flag=True, help="All scopes with a failed wave.")


class WaveAction(Protocol):
    """A request to the service for one scope of a campaign."""

    def __call__(self, scope: str, *, key: str | None) -> v1.Campaign:
        """Send the request and return the changed campaign."""
        ...


def selected_scopes(
    connection: ServiceConnection, campaign: v1.Campaign, named: Sequence[str], failed: bool
) -> list[str]:
    """Return the given scopes, or with `failed` those with a failed wave, without duplicates."""
    if bool(named) is failed:
        raise CliError(ExitCode.USAGE, "specify SCOPE, or --failed for all scopes with a failed wave")
    if named:
        return list(dict.fromkeys(named))
    return list(dict.fromkeys(wave.scope for wave in connection.api.waves(campaign.id, state=v1.WaveState.FAILED)))


def apply_to_scopes(
    campaign: v1.Campaign,
    scopes: Sequence[str],
    action: WaveAction,
    *,
    key: str | None,
    show: Callable[[v1.Campaign], None],
) -> None:
    """Send one request per scope. Report refused requests and continue with the other scopes.

    The exit code is that of the first refusal.
    """
    if len(scopes) == 1:
        show(action(scopes[0], key=key))
        return
    refused: list[RequestRefused] = []
    for scope in scopes:
        try:
            campaign = action(scope, key=_key_of(scope, key))
        except RequestRefused as error:
            refused.append(error)
            write_message(f"{scope}: {error_message(error)}")
    show(campaign)
    write_message(_summary(len(scopes), len(refused)))
    if refused:
        raise click.exceptions.Exit(exit_code(refused[0]))


def _key_of(scope: str, key: str | None) -> str | None:
    """Derive an idempotency key for the scope, because one key identifies one request."""
    return None if key is None else str(uuid5(NAMESPACE_OID, f"{key}/{scope}"))


def _summary(scopes: int, refused: int) -> str:
    if not scopes:
        return "No wave has failed; nothing to do."
    return f"Done in {count_text(scopes - refused, 'scope')}" + (f", refused in {refused}." if refused else ".")


app = CommandGroup()

required_reason_option = click.option(
    "--reason", metavar="TEXT", default="", help="The reason for the journal; required."
)


@app.command("plan")
@with_campaign
@with_service
def plan(connection: ServiceConnection, spec: v1.CampaignRequest) -> None:
    """Plan a campaign: show every wave with its times, hosts and VMs. Nothing is announced.

    FILE is TOML; - is stdin. Options override the file, and can replace it completely; the value none removes a value
    of the file: --gate none. VMs that do not fit into the plan are listed with the rule that excludes them, and by how
    much; the exit code is then 3.

    Examples: forewarn campaign plan kernel.toml; forewarn campaign plan --name kernel --type Reboot --scope 'web-*'
    --gap 1h --scopes-at-once 10%
    """
    campaign_plan = _plan(connection, spec)
    if connection.output is Output.JSON:
        write_json(campaign_plan)
    else:
        write_plan(campaign_plan)
    for remark in campaign_plan.warnings:
        write_message(with_advised_option(remark))
    write_message(plan_summary(campaign_plan))
    if campaign_plan.unplaced:
        raise click.exceptions.Exit(ExitCode.REFUSED)


@app.command("start")
@with_campaign
@unannounced_option
@reason_option
@key_option
@click.option("--wait", is_flag=True, help="Follow it until it ends. Ctrl-C stops watching, not the campaign.")
@with_service
def start(
    connection: ServiceConnection,
    spec: v1.CampaignRequest,
    unannounced: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Start a campaign. The service plans it again; if a VM does not fit into the plan, nothing is started.

    FILE and the options are the same as for `campaign plan`. If VMs will not hear of it, because their scope does not
    poll for events, the command asks on a terminal, and elsewhere needs --unannounced.

    Example: forewarn campaign start kernel.toml --wait
    """

    def send(consent: bool) -> v1.Campaign:
        return connection.api.start_campaign(msgspec.structs.replace(request, unannounced=consent), key=key)

    request = v1.StartCampaign(**msgspec.structs.asdict(spec), reason=reason)
    started = send_with_consent(send, unannounced=unannounced)
    if text := unannounced_text(started):
        write_message(text)
    if wait:
        _follow(connection, started)
        return
    _show_changed(started, connection.output)
    if connection.output is Output.TABLE:
        write_message(f"To follow it: forewarn campaign watch {started.name}")
    write_fleet_hold(connection)


@app.command("list")
@click.option(
    "--state", type=ChoiceType(CampaignState), metavar="STATE", help="Only campaigns in this state, such as Halted."
)
@click.option("--all", "all_", is_flag=True, help="Include ended campaigns.")
@with_service
def list_campaigns(connection: ServiceConnection, state: CampaignState | None, all_: bool) -> None:
    """List the campaigns that have not ended, newest first.

    Example: forewarn campaign list --all
    """
    campaigns = list(connection.api.campaigns(state=state, only_open=not all_ and state is None))
    if connection.output is Output.JSON:
        write_json(campaigns)
    elif campaigns:
        write_campaigns(campaigns)
    else:
        write_message("No campaigns." if all_ or state is not None else "No open campaigns; --all includes ended ones.")


@app.command("show")
@campaign_argument
@click.option("--waves", is_flag=True, help="Show every wave of every scope instead of the summary.")
@click.option("--scope", metavar="NAME", help="Show the waves of this scope.", shell_complete=complete_scopes)
@with_service
def show(connection: ServiceConnection, campaign: str, waves: bool, scope: str | None) -> None:
    """Show a campaign: its progress, what it waits for, its failures.

    CAMPAIGN is its name, its id, or a prefix of its id.

    Examples: forewarn campaign show kernel; forewarn campaign show kernel --waves --scope web
    """
    found = _find_campaign(connection, campaign)
    if waves or scope is not None:
        _show_waves(connection, found, scope)
        return
    _show(found, connection.output)
    write_fleet_hold(connection)


@app.command("watch")
@campaign_argument
@with_service
def watch(connection: ServiceConnection, campaign: str) -> None:
    """Follow a campaign until it ends, live. Ctrl-C stops watching, not the campaign.

    If the campaign needs a decision of an operator, the command shows the possible next steps and exits with code 1.

    Example: forewarn campaign watch kernel
    """
    _follow(connection, _find_campaign(connection, campaign))


@app.command("pause")
@campaign_argument
@reason_option
@key_option
@with_service
def pause(connection: ServiceConnection, campaign: str, reason: str, key: str | None) -> None:
    """Pause a campaign: no further wave starts. Events that have started continue.

    Example: forewarn campaign pause kernel --reason "checking the first wave"
    """
    _change(
        connection, campaign, lambda id_: connection.api.pause_campaign(id_, v1.PauseCampaign(reason=reason), key=key)
    )


@app.command("resume")
@campaign_argument
@reason_option
@key_option
@with_service
def resume(connection: ServiceConnection, campaign: str, reason: str, key: str | None) -> None:
    """Resume a paused or halted campaign. Failures are counted from zero again.

    Example: forewarn campaign resume kernel
    """
    _change(
        connection, campaign, lambda id_: connection.api.resume_campaign(id_, v1.ResumeCampaign(reason=reason), key=key)
    )


@app.command("abort")
@campaign_argument
@required_reason_option
@key_option
@with_service
def abort(connection: ServiceConnection, campaign: str, reason: str, key: str | None) -> None:
    """Abort a campaign permanently. Scheduled events are canceled; events that have started continue.

    Example: forewarn campaign abort kernel --reason "the kernel was withdrawn"
    """
    _check_reason(reason)
    _change(
        connection, campaign, lambda id_: connection.api.abort_campaign(id_, v1.AbortCampaign(reason=reason), key=key)
    )


@app.command("retry")
@campaign_argument
@click.argument("scopes", metavar="[SCOPE]...", nargs=-1, shell_complete=complete_failed_scopes)
@failed_option
@reason_option
@key_option
@with_service
def retry(
    connection: ServiceConnection, campaign: str, scopes: Sequence[str], failed: bool, reason: str, key: str | None
) -> None:
    """Retry failed waves.

    Each scope is a separate request: a refused one is reported, and the others are processed.

    Examples: forewarn campaign retry kernel web --reason "the host is back"; forewarn campaign retry kernel --failed
    """
    found = _find_campaign(connection, campaign)

    def retry_scope(scope: str, *, key: str | None) -> v1.Campaign:
        return connection.api.retry_wave(found.id, v1.RetryWave(scope=scope, reason=reason), key=key)

    _decide(connection, found, selected_scopes(connection, found, scopes, failed), retry_scope, key)


@app.command("skip")
@campaign_argument
@click.argument("scopes", metavar="[SCOPE]...", nargs=-1, shell_complete=complete_scopes)
@failed_option
@required_reason_option
@key_option
@with_service
def skip(
    connection: ServiceConnection, campaign: str, scopes: Sequence[str], failed: bool, reason: str, key: str | None
) -> None:
    """Skip failed or waiting waves and continue without them.

    Each scope is a separate request: a refused one is reported, and the others are processed.

    Examples: forewarn campaign skip kernel web --reason "rebooted by hand"; forewarn campaign skip kernel --failed
    --reason "the rack is gone"
    """
    _check_reason(reason)
    found = _find_campaign(connection, campaign)

    def skip_scope(scope: str, *, key: str | None) -> v1.Campaign:
        return connection.api.skip_wave(found.id, v1.SkipWave(scope=scope, reason=reason), key=key)

    _decide(connection, found, selected_scopes(connection, found, scopes, failed), skip_scope, key)


def _decide(
    connection: ServiceConnection, campaign: v1.Campaign, scopes: list[str], decide: WaveAction, key: str | None
) -> None:
    apply_to_scopes(campaign, scopes, decide, key=key, show=lambda changed: _show_changed(changed, connection.output))


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise CliError(ExitCode.USAGE, "specify a reason for the journal: --reason TEXT")


def _plan(connection: ServiceConnection, spec: v1.CampaignRequest) -> v1.CampaignPlan:
    """Plan the campaign and show a progress bar."""
    with ProgressBar("Planning") as bar:
        for progress in connection.api.plan_campaign(spec):
            bar.show(progress.done, progress.total)
            if progress.error is not None:
                error = progress.error.error
                raise RequestRefused(409, error.code, error.message, error.details)
            if progress.result is not None:
                return progress.result
    raise CliError(ExitCode.FAILED, "planning ended without a result; run the command again")


def _find_campaign(connection: ServiceConnection, name_or_id: str) -> v1.Campaign:
    """Find a campaign by its name, its id or a unique prefix of its id."""
    try:
        return connection.api.campaign(name_or_id)
    except NotFound:
        matches = [campaign for campaign in connection.api.campaigns() if campaign.id.startswith(name_or_id.upper())]
        if not matches:
            raise
    if len(name_or_id) < MIN_PREFIX_LENGTH:
        raise CliError(
            ExitCode.NOT_FOUND,
            f"there is no campaign {name_or_id}; a prefix of an id needs at least {MIN_PREFIX_LENGTH} characters",
        )
    if len(matches) > 1:
        ids = " or ".join(sorted(campaign.id for campaign in matches))
        raise CliError(ExitCode.USAGE, f"CAMPAIGN: {name_or_id} is ambiguous: {ids}")
    return matches[0]


def _change(connection: ServiceConnection, name_or_id: str, change: Callable[[str], v1.Campaign]) -> None:
    _show_changed(change(_find_campaign(connection, name_or_id).id), connection.output)


def _show_changed(campaign: v1.Campaign, output: Output) -> None:
    """Show a changed campaign in one line and the next steps; `campaign show` shows the progress."""
    if output is Output.JSON:
        write_json(campaign)
        return
    write_campaigns([campaign])
    for step in next_steps(campaign):
        write_message(step)


def _show(campaign: v1.Campaign, output: Output) -> None:
    if output is Output.JSON:
        write_json(campaign)
    else:
        write_campaign(campaign)


def _show_waves(connection: ServiceConnection, campaign: v1.Campaign, scope: str | None) -> None:
    waves = list(connection.api.waves(campaign.id, scope=scope))
    if scope is not None and not waves:
        raise CliError(ExitCode.NOT_FOUND, f"campaign {campaign.name} has no scope {scope}; --waves alone shows all")
    if connection.output is Output.JSON:
        write_json(waves)
    else:
        write_waves(waves)


def _follow(connection: ServiceConnection, campaign: v1.Campaign) -> None:
    from forewarn.cli.live.campaign_follow import follow

    follow(connection, campaign)
