"""`forewarn hold` and `forewarn release`: stop planned maintenance from starting, and allow it again."""

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import key_option, reason_option
from forewarn.cli.options.completion import complete_scopes
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.event import hold_text

scope_option = click.option(
    "--scope", metavar="NAME", help="Only this scope, not the whole fleet.", shell_complete=complete_scopes
)


@click.command()
@click.argument("reason", metavar="[REASON]", required=False)
@scope_option
@key_option
@with_service
def hold(connection: ServiceConnection, reason: str | None, scope: str | None, key: str | None) -> None:
    """Stop planned maintenance from starting until `forewarn release`. Failures and evictions still happen.

    REASON is shown with the hold. Without a reason, list the holds.

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
        raise CliError(ExitCode.USAGE, 'specify REASON, such as `forewarn hold "the switch is being replaced"`')
    else:
        _show(connection.api.holds(), connection.output)


@click.command()
@scope_option
@reason_option
@key_option
@with_service
def release(connection: ServiceConnection, scope: str | None, reason: str, key: str | None) -> None:
    """End the hold of the whole fleet or of one scope. Events that were held can start.

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
