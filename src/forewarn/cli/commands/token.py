"""`forewarn token …`: create, list and revoke API tokens."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import click

from forewarn.api import v1
from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.files import atomic_write
from forewarn.cli.options.common import FILE_PATH, ChoiceType, CommandGroup, key_option, reason_option
from forewarn.cli.options.completion import token_argument
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.times import read_expiry
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.tables import Column, with_cells, write_table
from forewarn.core.access import Role

app = CommandGroup()


@app.command("create")
@click.argument("name", metavar="NAME")
@click.option(
    "--role",
    type=ChoiceType(Role),
    metavar="ROLE",
    default=Role.VIEWER.value,
    show_default=True,
    help="viewer reads, operator also changes, admin also manages tokens.",
)
@click.option(
    "--scope",
    "scopes",
    metavar="NAME",
    multiple=True,
    help="Restrict it to this scope, or to scopes like 'web-*'; repeatable.",
)
@click.option("--expires", metavar="TIME", help="When it expires: 90d (from now), 2026-01-31T10:15Z.")
@click.option(
    "--save", type=FILE_PATH, metavar="FILE", help="Write the secret to this file (mode 600) instead of stdout."
)
@key_option
@with_service
def create(
    connection: ServiceConnection,
    name: str,
    role: Role,
    scopes: Sequence[str],
    expires: str | None,
    save: Path | None,
    key: str | None,
) -> None:
    """Create a token. Its secret is shown only once and not stored.

    The journal records the token's actions under NAME. Only the secret goes to stdout.

    Example: forewarn token create grafana --role viewer --expires 90d --save grafana.token
    """
    request = v1.CreateToken(name=name, role=role, scopes=scopes, expires_at=read_expiry(expires, "--expires"))
    if save is not None and save.exists():
        raise CliError(ExitCode.FAILED, f"{save} already exists and will not be overwritten; choose another file")
    # Open the file first: a secret that cannot be written would be lost.
    with nullcontext() if save is None else atomic_write(save, private=True) as file:
        created = connection.api.create_token(request, key=key)
        if file is not None:
            file.write(f"{created.secret}\n".encode())
    if connection.output is Output.JSON:
        # The same fields with and without --save: a secret that is in a file is null here.
        write_json({"token": created.token, "secret": created.secret if save is None else None})
    elif save is None:
        write(created.secret)
    kept = "shown only once" if save is None else f"in {save}"
    write_message(
        f"Token {created.token.id} for {name}: {_permission_text(created.token)}. "
        f"The secret is {kept} and not stored by the service."
    )


@app.command("list")
@with_service
def list_tokens(connection: ServiceConnection) -> None:
    """List the tokens with their roles and expiry. Their secrets are not stored.

    Example: forewarn token list
    """
    tokens = connection.api.tokens().tokens
    if connection.output is Output.JSON:
        write_json(tokens)
        return
    write_table(
        *with_cells(
            tokens,
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
    )


@app.command("revoke")
@token_argument
@click.option("--force", is_flag=True, help="Revoke it even if it is the last admin token for all scopes.")
@reason_option
@key_option
@with_service
def revoke(connection: ServiceConnection, token_id: str, force: bool, reason: str, key: str | None) -> None:
    """Revoke a token: the service refuses it from now on.

    TOKEN is an id from `forewarn token list`. The last valid admin token for all scopes is revoked only with --force.

    Example: forewarn token revoke tk_4f1c9a
    """
    connection.api.revoke_token(token_id, force=force, reason=reason, key=key)
    write_message(f"Token {token_id} is revoked.")


def _state_text(token: v1.Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.expires_at is None or token.expires_at > datetime.now(UTC) else "expired"


def _permission_text(token: v1.Token) -> str:
    where = f" in {', '.join(token.scopes)}" if token.scopes else ""
    until = "" if token.expires_at is None else f", until {moment_text(token.expires_at)}"
    return f"{token.role.value}{where}{until}"
