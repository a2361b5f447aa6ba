"""Why the operator side said no before the fleet was asked.

OperatorError
├── Forbidden        the token's role does not go that far, or it is limited to scopes
└── ScopeForbidden   the token is limited to other scopes
"""

from forewarn.core.access import Role


class OperatorError(Exception):
    """It was not done. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class Forbidden(OperatorError):
    """The token does not go that far."""

    code = "forbidden"

    def __init__(self, name: str, role: Role, needed: Role, *, is_limited: bool) -> None:
        self.name, self.role, self.needed = name, role.value, needed.value
        why = (
            f"token {name} is limited to some scopes, and this is about all: use a token without scopes"
            if is_limited
            else f"token {name} has the role {role.value}, and this needs {needed.value}: use another token"
        )
        super().__init__(why)


class ScopeForbidden(OperatorError):
    """The token is limited to other scopes."""

    code = "scope-forbidden"

    def __init__(self, name: str, scope: str, scopes: tuple[str, ...]) -> None:
        self.name, self.scope, self.scopes = name, scope, scopes
        super().__init__(f"token {name} is for {', '.join(scopes)} only, not for scope {scope}: use another token")
