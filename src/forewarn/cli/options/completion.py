"""Shell completion: arguments and filters whose values are completed with names from the service.

Where the service cannot be reached in time, completion offers nothing and reports nothing."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import Annotated, TypeAlias

import typer

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.v1 import WaveState
from forewarn.cli.errors import CliError
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.settings import SettingsError

TIMEOUT = 2.0
"""For how many seconds a person waits for a completion."""

MAX_COMPLETIONS = 500
"""Nobody reads more completions than this."""

Completions: TypeAlias = list[str] | list[tuple[str, str]]
Completer: TypeAlias = Callable[[typer.Context, str], Completions]


def _completer(source: Callable[[ApiClient, str], Iterable[tuple[str, str]]]) -> Completer:
    """Return what asks the service for names that begin as typed, each with a word about it."""

    def complete(ctx: typer.Context, incomplete: str) -> Completions:
        service_options = {item.name: ctx.params.get(item.name) for item in SERVICE_OPTIONS}
        found: list[tuple[str, str]] = []

        def fetch() -> None:
            with suppress(ApiError, SettingsError, CliError):
                offered = source(connect(**service_options, timeout=TIMEOUT), incomplete)
                found.extend(islice((offer for offer in offered if offer[0].startswith(incomplete)), MAX_COMPLETIONS))

        # A thread can be left behind: a service that says a little now and then would hold us for ever.
        thread = Thread(target=fetch, daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        return [] if thread.is_alive() else found

    return complete


def _vms(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    scope, slash, name = incomplete.rpartition("/")
    for vm in api.vms(scope=scope or None, name=f"{name}*"):
        yield f"{vm.scope}/{vm.name}" if slash else vm.name, f"{vm.scope_kind.value} {vm.scope}"


def _scopes(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return ((scope.id, f"{scope.kind.value}, {scope.vm_count} VMs") for scope in api.scopes(name=f"{incomplete}*"))


def _hosts(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return ((host.name, f"{len(host.vms)} VMs") for host in api.hosts(name=f"{incomplete}*"))


def _events(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((event.id, f"{event.status} {event.type.value} of {', '.join(event.vms)}") for event in api.events())


def _campaigns(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((campaign.name, f"{campaign.state.value} {campaign.type.value}") for campaign in api.campaigns())


def complete_failed_scopes(ctx: typer.Context, incomplete: str) -> Completions:
    """Offer the scopes whose wave has failed in the campaign that was named before them."""
    campaign = ctx.params.get("campaign")

    def failed(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
        waves = api.waves(campaign, state=WaveState.FAILED) if campaign else ()
        return ((wave.scope, f"wave {wave.number} has failed") for wave in waves)

    return _completer(failed)(ctx, incomplete)


def _tokens(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((token.id, f"{token.name}, {token.role.value}") for token in api.tokens().tokens if not token.revoked_at)


def _faults(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((fault.id, f"{fault.kind.value} of {fault.vm or 'all VMs'}") for fault in api.faults().faults)


complete_vms = _completer(_vms)
complete_scopes = _completer(_scopes)
complete_hosts = _completer(_hosts)

# Typer would show the types of these as Python knows them; the commands' own words say what they are.
VmName = Annotated[str, typer.Argument(metavar="VM", autocompletion=complete_vms, hidden=True)]
VmNames = Annotated[list[str] | None, typer.Argument(metavar="VM", autocompletion=complete_vms, hidden=True)]
ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", autocompletion=complete_scopes, hidden=True)]
HostName = Annotated[str, typer.Argument(metavar="HOST", autocompletion=complete_hosts, hidden=True)]
EventId = Annotated[str, typer.Argument(metavar="EVENT", autocompletion=_completer(_events), hidden=True)]
EventIds = Annotated[list[str], typer.Argument(metavar="EVENT", autocompletion=_completer(_events), hidden=True)]
CampaignName = Annotated[str, typer.Argument(metavar="CAMPAIGN", autocompletion=_completer(_campaigns), hidden=True)]
FaultId = Annotated[str | None, typer.Argument(metavar="[FAULT]", autocompletion=_completer(_faults), hidden=True)]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN", autocompletion=_completer(_tokens), hidden=True)]

VmFilter = Annotated[
    str | None,
    typer.Option("--vm", metavar="VM", help="Only what concerns this VM.", autocompletion=complete_vms),
]
ScopeFilter = Annotated[
    str | None,
    typer.Option("--scope", metavar="NAME", help="Only what is in this scope.", autocompletion=complete_scopes),
]
HostFilter = Annotated[
    str | None,
    typer.Option("--host", metavar="NAME", help="Only what is on this host.", autocompletion=complete_hosts),
]
EventFilter = Annotated[
    str | None,
    typer.Option("--event", metavar="EVENT", help="Only what concerns this event.", autocompletion=_completer(_events)),
]
CampaignFilter = Annotated[
    str | None,
    typer.Option(
        "--campaign", metavar="NAME", help="Only what is said of this campaign.", autocompletion=_completer(_campaigns)
    ),
]
