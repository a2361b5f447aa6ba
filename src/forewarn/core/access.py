"""Authorization of operators: roles, and the scope patterns that limit a token."""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase


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
