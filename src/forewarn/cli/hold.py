"""`forewarn hold` and `forewarn release`: nothing planned starts while it is held."""

from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.names import complete_scopes
from forewarn.cli.options import Key, Why
from forewarn.cli.output import Output, moment_text, say, write, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import hold_sentence

Scope = Annotated[
    str | None,
    typer.Option(
        "--scope", metavar="NAME", help="This scope's alone, not the whole fleet's.", autocompletion=complete_scopes
    ),
]


@asks_service
def hold(
    asked: Asked,
    reason: Annotated[str | None, typer.Argument(metavar="REASON", hidden=True)] = None,
    scope: Scope = None,
    key: Key = None,
) -> None:
    """Let no planned maintenance start until `forewarn release`. Failures and evictions go on.

    REASON is shown to whoever finds it held. Without a reason the command shows what is held.

    Example: forewarn hold "the switch in rack 4 is being replaced" --scope web
    """
    if reason is not None and reason.strip():
        before = _held(asked.api.holds(), scope)
        after = asked.api.hold(v1.MakeHold(reason=reason, scope=scope), key=key)
        _show(after, asked.output)
        if before is not None and before != _held(after, scope):
            say(f"This replaces the hold of {before.by} since {moment_text(before.at)}: {before.reason}")
    elif reason is not None or scope is not None or key is not None:
        raise Stop(Exit.USAGE, 'say why it is held, like `forewarn hold "the switch is being replaced"`')
    else:
        _show(asked.api.holds(), asked.output)


@asks_service
def release(asked: Asked, scope: Scope = None, why: Why = "", key: Key = None) -> None:
    """End the hold on the whole fleet, or that of one scope. What waited for it goes on.

    Example: forewarn release --scope web
    """
    before = _held(asked.api.holds(), scope)
    after = asked.api.release(v1.ReleaseHold(scope=scope, why=why), key=key)
    what = "the whole fleet" if scope is None else f"scope {scope}"
    if before is None:
        say(f"Nothing to release: {what} was not held.")
    else:
        say(f"Released: {what}, held by {before.by} since {moment_text(before.at)}: {before.reason}")
    _show(after, asked.output)


def _held(holds: v1.Holds, scope: str | None) -> v1.Hold | None:
    """Return the hold on the whole fleet, or on one scope."""
    if scope is None:
        return holds.fleet
    return next((hold for hold in holds.scopes if hold.scope == scope), None)


def _show(holds: v1.Holds, output: Output) -> None:
    if output is Output.JSON:
        write_json(holds)
        return
    held = [*((holds.fleet,) if holds.fleet is not None else ()), *holds.scopes]
    for each in held:
        write(hold_sentence(each))
    if not held:
        say("Nothing is held.")
