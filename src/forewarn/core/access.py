"""Authorization of operators: roles, and the scope patterns that limit a token."""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from forewarn.core.text import schema_pattern

SCOPE_PATTERN = r"[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,127}"

ScopePattern = Annotated[str, Meta(min_length=1, max_length=128, extra_json_schema=schema_pattern(SCOPE_PATTERN))]
"""The name of a scope, or a pattern such as `web-*`, to which a token is limited."""


class Role(StrEnum):
    """The permissions of a token; each role includes those before it."""

    VIEWER = "viewer"
    """Read everything."""
    OPERATOR = "operator"
    """Also change inventory and events, hold and release."""
    ADMIN = "admin"
    """Also create and revoke tokens."""

    def includes(self, other: "Role") -> bool:
        """Return whether this role has all permissions of the other."""
        order = list(Role)
        return order.index(self) >= order.index(other)


def is_within(scope: str, patterns: Sequence[str]) -> bool:
    """Return whether a scope matches one of the names or patterns such as `web-*`; an empty list matches all scopes."""
    return not patterns or any(fnmatchcase(scope, pattern) for pattern in patterns)
