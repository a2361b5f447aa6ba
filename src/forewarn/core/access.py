"""Authorization of operators: roles, and the scope patterns that limit a token."""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase


class Role(StrEnum):
    """What the holder of a token may do; each may do what those before it may."""

    VIEWER = "viewer"
    """See everything."""
    OPERATOR = "operator"
    """Also change inventory and events, hold and release."""
    ADMIN = "admin"
    """Also make and revoke tokens."""

    def includes(self, other: "Role") -> bool:
        """Tell whether this role may do what the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


def is_within(scope: str, patterns: Sequence[str]) -> bool:
    """Tell whether a scope is among those named, by name or by a pattern such as `web-*`; no names are all scopes."""
    return not patterns or any(fnmatchcase(scope, pattern) for pattern in patterns)
