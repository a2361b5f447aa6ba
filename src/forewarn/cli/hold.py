"""`forewarn hold` and `forewarn release`: nothing planned starts while it is held."""

from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.names import complete_scopes
from forewarn.cli.options import Key, Why
from forewarn.cli.output import Output, say, write, write_json
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
        _show(asked.api.hold(v1.MakeHold(reason=reason, scope=scope), key=key), asked.output)
    elif reason is not None or scope is not None or key is not None:
        raise Stop(Exit.USAGE, 'say why it is held, like `forewarn hold "the switch is being replaced"`')
    else:
        _show(asked.api.holds(), asked.output)


@asks_service
def release(asked: Asked, scope: Scope = None, why: Why = "", key: Key = None) -> None:
    """End the hold on the whole fleet, or that of one scope. What waited for it goes on.

    Example: forewarn release --scope web
    """
    _show(asked.api.release(v1.ReleaseHold(scope=scope, why=why), key=key), asked.output)


def _show(holds: v1.Holds, output: Output) -> None:
    if output is Output.JSON:
        write_json(holds)
        return
    held = [*((holds.fleet,) if holds.fleet is not None else ()), *holds.scopes]
    for each in held:
        write(hold_sentence(each))
    if not held:
        say("Nothing is held.")
