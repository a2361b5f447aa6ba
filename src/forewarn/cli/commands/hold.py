"""`forewarn hold` and `forewarn release`: no planned maintenance starts while a hold is in place."""

from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Key, Reason
from forewarn.cli.options.completion import complete_scopes
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.event import hold_text

Scope = Annotated[
    str | None,
    typer.Option(
        "--scope", metavar="NAME", help="This scope's alone, not the whole fleet's.", autocompletion=complete_scopes
    ),
]


@with_service
def hold(
    connection: ServiceConnection,
    reason: Annotated[str | None, typer.Argument(metavar="REASON", hidden=True)] = None,
    scope: Scope = None,
    key: Key = None,
) -> None:
    """Let no planned maintenance start until `forewarn release`. Failures and evictions go on.

    REASON is shown to whoever finds it held. Without a reason the command shows what is held.

    Example: forewarn hold "the switch in rack 4 is being replaced" --scope web
    """
    if reason is not None and reason.strip():
        before = connection.api.holds().of(scope)
        after = connection.api.hold(v1.CreateHold(reason=reason, scope=scope), key=key)
        _show(after, connection.output)
        if before is not None and before != after.of(scope):
            write_message(
                f"This replaces the hold of {before.created_by} since {moment_text(before.created_at)}: {before.reason}"
            )
    elif reason is not None or scope is not None or key is not None:
        raise CliError(ExitCode.USAGE, 'say why it is held, like `forewarn hold "the switch is being replaced"`')
    else:
        _show(connection.api.holds(), connection.output)


@with_service
def release(connection: ServiceConnection, scope: Scope = None, reason: Reason = "", key: Key = None) -> None:
    """End the hold on the whole fleet, or that of one scope. What waited for it goes on.

    Example: forewarn release --scope web
    """
    before = connection.api.holds().of(scope)
    after = connection.api.release(v1.ReleaseHold(scope=scope, reason=reason), key=key)
    what = "the whole fleet" if scope is None else f"scope {scope}"
    if before is None:
        write_message(f"Nothing to release: {what} was not held.")
    else:
        write_message(
            f"Released: {what}, held by {before.created_by} since {moment_text(before.created_at)}: {before.reason}"
        )
    _show(after, connection.output)


def _show(holds: v1.Holds, output: Output) -> None:
    if output is Output.JSON:
        write_json(holds.holds)
        return
    for each in holds.holds:
        write(hold_text(each))
    if not holds.holds:
        write_message("Nothing is held.")
