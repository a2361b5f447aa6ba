"""The names of things, as commands take them: the shell completes them with what the service has.

Completion is a convenience. Where the service cannot be asked, or takes long, nothing is offered, and nothing is said.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import Annotated, TypeAlias

import typer

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.v1 import WaveState
from forewarn.cli.exits import Stop
from forewarn.cli.reaching import WHERE, connect
from forewarn.settings import SettingsError

PATIENCE = 2.0
"""For how many seconds a person waits for a completion."""

MOST = 500
"""Nobody reads more completions than this."""

Offered: TypeAlias = list[str] | list[tuple[str, str]]
Completion: TypeAlias = Callable[[typer.Context, str], Offered]


def _completed(offers: Callable[[ApiClient, str], Iterable[tuple[str, str]]]) -> Completion:
    """Return what asks the service for names that begin as typed, each with a word about it."""

    def complete(ctx: typer.Context, incomplete: str) -> Offered:
        where = {item.name: ctx.params.get(item.name) for item in WHERE}
        found: list[tuple[str, str]] = []

        def ask() -> None:
            with suppress(ApiError, SettingsError, Stop):
                offered = offers(connect(**where, timeout=PATIENCE), incomplete)
                found.extend(islice((offer for offer in offered if offer[0].startswith(incomplete)), MOST))

        # A thread can be left behind: a service that says a little now and then would hold us for ever.
        asking = Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE)
        return [] if asking.is_alive() else found

    return complete


def _vms(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    scope, slash, name = incomplete.rpartition("/")
    for vm in api.vms(scope=scope or None, name=f"{name}*"):
        yield f"{vm.scope}/{vm.name}" if slash else vm.name, f"{vm.kind.value} {vm.scope}"


def _scopes(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return ((scope.id, f"{scope.kind.value}, {scope.vms} VMs") for scope in api.scopes(name=f"{incomplete}*"))


def _hosts(api: ApiClient, incomplete: str) -> Iterable[tuple[str, str]]:
    return ((host.name, f"{len(host.vms)} VMs") for host in api.hosts(name=f"{incomplete}*"))


def _events(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((event.id, f"{event.status} {event.type.value} of {', '.join(event.vms)}") for event in api.events())


def _campaigns(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((campaign.name, f"{campaign.state.value} {campaign.type.value}") for campaign in api.campaigns())


def complete_failed_scopes(ctx: typer.Context, incomplete: str) -> Offered:
    """Offer the scopes whose wave has failed in the campaign that was named before them."""
    campaign = ctx.params.get("campaign")

    def failed(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
        waves = api.waves(campaign, state=WaveState.FAILED) if campaign else ()
        return ((wave.scope, f"wave {wave.n} has failed") for wave in waves)

    return _completed(failed)(ctx, incomplete)


def _tokens(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((token.id, f"{token.name}, {token.role.value}") for token in api.tokens().tokens if not token.revoked_at)


def _faults(api: ApiClient, _: str) -> Iterable[tuple[str, str]]:
    return ((fault.id, f"{fault.kind.value} of {fault.vm or 'all VMs'}") for fault in api.faults().faults)


complete_vms = _completed(_vms)
complete_scopes = _completed(_scopes)
complete_hosts = _completed(_hosts)

# Typer would show the types of these as Python knows them; the commands' own words say what they are.
VmName = Annotated[str, typer.Argument(metavar="VM", autocompletion=complete_vms, hidden=True)]
VmNames = Annotated[list[str] | None, typer.Argument(metavar="VM", autocompletion=complete_vms, hidden=True)]
ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", autocompletion=complete_scopes, hidden=True)]
HostName = Annotated[str, typer.Argument(metavar="HOST", autocompletion=complete_hosts, hidden=True)]
EventId = Annotated[str, typer.Argument(metavar="EVENT", autocompletion=_completed(_events), hidden=True)]
EventIds = Annotated[list[str], typer.Argument(metavar="EVENT", autocompletion=_completed(_events), hidden=True)]
CampaignName = Annotated[str, typer.Argument(metavar="CAMPAIGN", autocompletion=_completed(_campaigns), hidden=True)]
FaultId = Annotated[str | None, typer.Argument(metavar="[FAULT]", autocompletion=_completed(_faults), hidden=True)]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN", autocompletion=_completed(_tokens), hidden=True)]

OfVm = Annotated[
    str | None,
    typer.Option("--vm", metavar="VM", help="Only what concerns this VM.", autocompletion=complete_vms),
]
OfScope = Annotated[
    str | None,
    typer.Option("--scope", metavar="NAME", help="Only what is in this scope.", autocompletion=complete_scopes),
]
OfHost = Annotated[
    str | None,
    typer.Option("--host", metavar="NAME", help="Only what is on this host.", autocompletion=complete_hosts),
]
OfEvent = Annotated[
    str | None,
    typer.Option("--event", metavar="EVENT", help="Only what concerns this event.", autocompletion=_completed(_events)),
]
OfCampaign = Annotated[
    str | None,
    typer.Option(
        "--campaign", metavar="NAME", help="Only what is said of this campaign.", autocompletion=_completed(_campaigns)
    ),
]
