"""Token routes: create, list and revoke API tokens."""

from typing import Annotated

from litestar import Controller, delete, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict, ResourceExists
from forewarn.fleet.errors import LastToken, SecretUnavailable, TokenNotFound
from forewarn.fleet.tokens import Token
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.parameters import IdempotencyKeyDep, Reason, TokenId, change_error_specs, error_specs
from forewarn.operator.state import AppState
from forewarn.operator.strict_request import to_utc

ForceRevoke = Annotated[
    bool, QueryParameter(description="Revoke it even if it is the last valid admin token for all scopes.")
]


class TokenController(Controller):
    """Tokens. A secret is shown only once, in the response to its creation, and not stored."""

    path = "/v1/tokens"
    tags = ("tokens",)
    opt = requires(Role.ADMIN, all_scopes=True)

    @get(operation_id="listTokens", summary="List tokens", responses=error_specs())
    async def list_tokens(self, state: AppState) -> v1.TokenPage:
        """List all tokens, including expired and revoked ones, oldest first."""
        return v1.TokenPage(tokens=tuple(show_token(token) for token in state.fleet.tokens.all()))

    @post(
        operation_id="createToken",
        summary="Create a token",
        responses=change_error_specs(ResourceExists, SecretUnavailable, KeyConflict),
    )
    async def create_token(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.CreateToken]
    ) -> v1.NewToken:
        """Create a token. The response has its secret, which is never shown again."""
        token, secret = await state.fleet.tokens.create(
            data.name,
            data.role,
            tuple(data.scopes),
            by=caller.name,
            expires_at=None if data.expires_at is None else to_utc(data.expires_at, "expires_at"),
            idempotency_key=idempotency_key,
        )
        return v1.NewToken(token=show_token(token), secret=secret)

    @delete(
        "/{token_id:str}",
        operation_id="revokeToken",
        summary="Revoke a token",
        responses=change_error_specs(TokenNotFound, LastToken, KeyConflict),
    )
    async def revoke_token(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        token_id: TokenId,
        force: ForceRevoke = False,
        reason: Reason = "",
    ) -> None:
        """Revoke a token permanently. It stays in the list."""
        await state.fleet.tokens.revoke(
            token_id, by=caller.name, why=reason, force=force, idempotency_key=idempotency_key
        )


def show_token(token: Token) -> v1.Token:
    """Return a token as a response type, without its secret, which is not stored."""
    return v1.Token(
        id=token.id,
        name=token.name,
        role=token.role,
        scopes=token.scopes,
        created_at=token.created_at,
        created_by=token.created_by,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
