"""`forewarn token …`: create, list and revoke API tokens."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.files import atomic_write
from forewarn.cli.options.common import Key, PlainUsage, Reason, choice_option
from forewarn.cli.options.completion import TokenId
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.times import read_expiry
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.tables import Column, write_table
from forewarn.core.access import Role

app = typer.Typer()


@app.command("create", cls=PlainUsage)
@with_service
def create(
    connection: ServiceConnection,
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    role: Annotated[
        Role,
        choice_option(
            Role, metavar="ROLE", help_="viewer sees everything, operator also changes it, admin also makes tokens."
        ),
    ] = Role.VIEWER,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only in this scope, or such: 'web-*'; repeatable.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Until when it is good: 90d (from now), 2026-01-31T10:15Z.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it to this file, readable by you alone, not to stdout.")
    ] = None,
    key: Key = None,
) -> None:
    """Make a token for somebody; the journal calls them NAME. Its secret is shown this once, and kept nowhere.

    The secret is all that goes to stdout.

    Example: forewarn token create grafana --role viewer --expires 90d --save grafana.token
    """
    request = v1.CreateToken(name=name, role=role, scopes=scope or (), expires_at=read_expiry(expires, "--expires"))
    if save is not None and save.exists():
        raise CliError(
            ExitCode.FAILED, f"{save} is there already, perhaps with the only copy of a secret: choose another file"
        )
    # The file comes first: a secret that cannot be written would be lost.
    with nullcontext() if save is None else atomic_write(save, private=True) as file:
        created = connection.api.create_token(request, key=key)
        if file is not None:
            file.write(f"{created.secret}\n".encode())
    if connection.output is Output.JSON:
        # One shape with and without --save: a secret that is in a file is null here.
        write_json({"token": created.token, "secret": created.secret if save is None else None})
    elif save is None:
        write(created.secret)
    kept = "shown this once" if save is None else f"in {save}"
    write_message(
        f"Token {created.token.id} for {name}: {_permission_text(created.token)}. "
        f"Its secret is {kept}, and kept nowhere else."
    )


@app.command("list")
@with_service
def list_tokens(connection: ServiceConnection) -> None:
    """List the tokens: what each is good for, and until when. Their secrets are kept nowhere.

    Example: forewarn token list
    """
    tokens = connection.api.tokens().tokens
    if connection.output is Output.JSON:
        write_json(tokens)
        return
    write_table(
        (
            Column("TOKEN"),
            Column("NAME"),
            Column("ROLE"),
            Column("SCOPES", max_width=32),
            Column("CREATED", drop_order=2),
            Column("BY", drop_order=3),
            Column("EXPIRES", drop_order=1),
            Column("STATE", colours={"good": Colour.GOOD, "expired": Colour.DIM, "revoked": Colour.DIM}),
        ),
        (
            (
                token.id,
                token.name,
                token.role.value,
                ", ".join(token.scopes) or "all",
                moment_text(token.created_at),
                token.created_by,
                "" if token.expires_at is None else moment_text(token.expires_at),
                _state_text(token),
            )
            for token in tokens
        ),
    )


@app.command("revoke", cls=PlainUsage)
@with_service
def revoke(connection: ServiceConnection, id_: TokenId, reason: Reason = "", key: Key = None) -> None:
    """Revoke a token: from now on it is refused.

    TOKEN is its id, as `forewarn token list` shows it.

    Example: forewarn token revoke tk_4f1c9a
    """
    connection.api.revoke_token(id_, reason=reason, key=key)
    write_message(f"Token {id_} is revoked.")


def _state_text(token: v1.Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.expires_at is None or token.expires_at > datetime.now(UTC) else "expired"


def _permission_text(token: v1.Token) -> str:
    where = f" in {', '.join(token.scopes)}" if token.scopes else ""
    until = "" if token.expires_at is None else f", until {moment_text(token.expires_at)}"
    return f"{token.role.value}{where}{until}"
