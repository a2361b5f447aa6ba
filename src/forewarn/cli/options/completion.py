"""Shell completion: arguments and filters whose values are completed with names from the service.

If the service does not answer in time, there are no completions and no error messages."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

import click

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.v1 import WaveState
from forewarn.cli.errors import CliError
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.core.text import count_text
from forewarn.settings.errors import SettingsError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TIMEOUT = 2.0
"""How many seconds a user waits for completions."""

MAX_COMPLETIONS = 500
"""More completions than a user reads."""

Completer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"
NameSource: TypeAlias = Callable[[ApiClient, str], Iterable[tuple[str, str]]]
"""Fetches names from the service that start with the typed text, each with a description."""


def _completer(source: NameSource) -> Completer:
    """Return a completer with the names of a source."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        return _complete(source, ctx, incomplete)

    return complete


def _complete(source: NameSource, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    service_options = {name: ctx.params.get(name) for name in SERVICE_OPTIONS}
    found: list[CompletionItem] = []

    def fetch() -> None:
        with suppress(ApiError, SettingsError, CliError):
            offered = source(connect(**service_options, timeout=TIMEOUT), incomplete)
            matching = ((name, text) for name, text in offered if name.startswith(incomplete))
            found.extend(CompletionItem(name, help=text) for name, text in islice(matching, MAX_COMPLETIONS))

    # A thread, because it can be abandoned: a service that answers byte by byte would block forever.
    thread = Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return [] if thread.is_alive() else found


def _vms(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    scope, slash, name = incomplete.rpartition("/")
    for vm in api.vms(scope=scope or None, name=f"{name}*"):
        yield f"{vm.scope}/{vm.name}" if slash else vm.name, f"{vm.scope_kind.value} {vm.scope}"


def _scopes(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return (
        (scope.id, f"{scope.kind.value}, {count_text(scope.vm_count, 'VM')}")
        for scope in api.scopes(name=f"{incomplete}*")
    )


def _hosts(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return ((host.name, count_text(len(host.vms), "VM")) for host in api.hosts(name=f"{incomplete}*"))


def _events(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((event.id, f"{event.status} {event.type.value} of {', '.join(event.vms)}") for event in api.events())


def _campaigns(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((campaign.name, f"{campaign.state.value} {campaign.type.value}") for campaign in api.campaigns())


def _tokens(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((token.id, f"{token.name}, {token.role.value}") for token in api.tokens().tokens if not token.revoked_at)


def _faults(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((fault.id, f"{fault.kind.value} of {fault.vm or 'all VMs'}") for fault in api.faults().faults)


def complete_failed_scopes(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the scopes with a failed wave in the campaign that precedes them on the command line."""
    campaign = ctx.params.get("campaign")

    def failed(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
        waves = api.waves(campaign, state=WaveState.FAILED) if campaign else ()
        return ((wave.scope, f"wave {wave.number} has failed") for wave in waves)

    return _complete(failed, ctx, incomplete)


complete_vms = _completer(_vms)
complete_scopes = _completer(_scopes)
complete_hosts = _completer(_hosts)
complete_events = _completer(_events)
complete_campaigns = _completer(_campaigns)

vm_argument = click.argument("vm", metavar="VM", shell_complete=complete_vms)
vms_argument = click.argument("vms", metavar="[VM]...", nargs=-1, shell_complete=complete_vms)
scope_argument = click.argument("scope", metavar="SCOPE", shell_complete=complete_scopes)
host_argument = click.argument("host", metavar="HOST", shell_complete=complete_hosts)
event_argument = click.argument("event", metavar="EVENT", shell_complete=complete_events)
events_argument = click.argument("events", metavar="EVENT...", nargs=-1, required=True, shell_complete=complete_events)
campaign_argument = click.argument("campaign", metavar="CAMPAIGN", shell_complete=complete_campaigns)
fault_argument = click.argument("fault", metavar="[FAULT]", required=False, shell_complete=_completer(_faults))
token_argument = click.argument("token_id", metavar="TOKEN", shell_complete=_completer(_tokens))

vm_filter = click.option("--vm", metavar="VM", help="Only those that affect this VM.", shell_complete=complete_vms)
scope_filter = click.option("--scope", metavar="NAME", help="Only those in this scope.", shell_complete=complete_scopes)
host_filter = click.option("--host", metavar="NAME", help="Only those on this host.", shell_complete=complete_hosts)
event_filter = click.option(
    "--event", metavar="EVENT", help="Only those about this event.", shell_complete=complete_events
)
campaign_filter = click.option(
    "--campaign", metavar="NAME", help="Only those about this campaign.", shell_complete=complete_campaigns
)
