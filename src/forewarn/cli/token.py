"""`forewarn token …`: who may ask the service for what."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.colours import Colour
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.files import written_anew
from forewarn.cli.names import TokenId
from forewarn.cli.options import Key, PlainUsage, Why, choice
from forewarn.cli.output import Output, moment_text, say, write, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.tables import Column, write_table
from forewarn.cli.times import read_later
from forewarn.core.access import Role

app = typer.Typer()


@app.command("create", cls=PlainUsage)
@asks_service
def create(
    asked: Asked,
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    role: Annotated[
        Role,
        choice(
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
    ask = v1.CreateToken(name=name, role=role, scopes=scope or (), expires_at=read_later(expires, "--expires"))
    if save is not None and save.exists():
        raise Stop(Exit.FAILED, f"{save} is there already, perhaps with the only copy of a secret: choose another file")
    # The file comes first: a secret that cannot be written would be lost.
    with nullcontext() if save is None else written_anew(save, private=True) as file:
        made = asked.api.create_token(ask, key=key)
        if file is not None:
            file.write(f"{made.secret}\n".encode())
    if asked.output is Output.JSON:
        write_json(made if save is None else made.token)
    elif save is None:
        write(made.secret)
    kept = "shown this once" if save is None else f"in {save}"
    say(f"Token {made.token.id} for {name}: {_may(made.token)}. Its secret is {kept}, and kept nowhere else.")


@app.command("list")
@asks_service
def list_tokens(asked: Asked) -> None:
    """List the tokens: what each is good for, and until when. Their secrets are kept nowhere.

    Example: forewarn token list
    """
    tokens = asked.api.tokens().tokens
    if asked.output is Output.JSON:
        write_json(tokens)
        return
    write_table(
        (
            Column("TOKEN"),
            Column("NAME"),
            Column("ROLE"),
            Column("SCOPES", most=32),
            Column("MADE", spare=2),
            Column("BY", spare=3),
            Column("EXPIRES", spare=1),
            Column("STATE", colours={"good": Colour.GOOD, "expired": Colour.FAINT, "revoked": Colour.FAINT}),
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
                _state(token),
            )
            for token in tokens
        ),
    )


@app.command("revoke", cls=PlainUsage)
@asks_service
def revoke(asked: Asked, id_: TokenId, why: Why = "", key: Key = None) -> None:
    """Revoke a token: from now on it is refused.

    TOKEN is its id, as `forewarn token list` shows it.

    Example: forewarn token revoke tk_4f1c9a
    """
    asked.api.revoke_token(id_, why=why, key=key)
    say(f"Token {id_} is revoked.")


def _state(token: v1.Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.expires_at is None or token.expires_at > datetime.now(UTC) else "expired"


def _may(token: v1.Token) -> str:
    where = f" in {', '.join(token.scopes)}" if token.scopes else ""
    until = "" if token.expires_at is None else f", until {moment_text(token.expires_at)}"
    return f"{token.role.value}{where}{until}"
