"""What a person decides about waves: one question per scope, each with its own answer, and what it all came to."""

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol
from uuid import NAMESPACE_OID, uuid5

import typer

from forewarn.api import v1
from forewarn.api.errors import Refusal
from forewarn.cli.campaign_showing import amount
from forewarn.cli.exits import Exit, Stop, exit_code, sentence
from forewarn.cli.names import complete_failed_scopes, complete_scopes
from forewarn.cli.output import say
from forewarn.cli.reaching import Asked

ScopeNames = Annotated[list[str] | None, typer.Argument(metavar="SCOPE", autocompletion=complete_scopes, hidden=True)]
FailedScopes = Annotated[
    list[str] | None, typer.Argument(metavar="SCOPE", autocompletion=complete_failed_scopes, hidden=True)
]
AllFailed = Annotated[bool, typer.Option("--failed", help="In every scope whose wave has failed.")]


class Decide(Protocol):
    """Asks the service for one scope."""

    def __call__(self, scope: str, *, key: str | None) -> v1.Campaign:
        """Return what has become of the campaign."""
        ...


def chosen_scopes(asked: Asked, campaign: v1.Campaign, named: Sequence[str] | None, failed: bool) -> list[str]:
    """Return the scopes that were named, or those with a failed wave, each once."""
    if bool(named) is failed:
        raise Stop(Exit.USAGE, "say which: SCOPE, or several, or --failed for every scope whose wave has failed")
    if named:
        return list(dict.fromkeys(named))
    return list(dict.fromkeys(wave.scope for wave in asked.api.waves(campaign.id, state=v1.WaveState.FAILED)))


def decide_each(
    campaign: v1.Campaign,
    scopes: Sequence[str],
    decide: Decide,
    *,
    key: str | None,
    show: Callable[[v1.Campaign], None],
) -> None:
    """Ask for each scope; tell which were refused and why, and go on with the others.

    It ends as the first refusal would alone.
    """
    if len(scopes) == 1:
        show(decide(scopes[0], key=key))
        return
    refused: list[Refusal] = []
    for scope in scopes:
        try:
            campaign = decide(scope, key=_key_of(scope, key))
        except Refusal as error:
            refused.append(error)
            say(f"{scope}: {sentence(error)}")
    show(campaign)
    say(_summary(len(scopes), len(refused)))
    if refused:
        raise typer.Exit(exit_code(refused[0]))


def _key_of(scope: str, key: str | None) -> str | None:
    """Return a key of the scope's own: one key is for one question."""
    return None if key is None else str(uuid5(NAMESPACE_OID, f"{key}/{scope}"))


def _summary(scopes: int, refused: int) -> str:
    if not scopes:
        return "No wave has failed: there is nothing to do."
    return f"Done in {amount(scopes - refused, 'scope')}" + (f", refused in {refused}." if refused else ".")
