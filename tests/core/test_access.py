"""Roles and scope patterns: what the holder of a token may do, and where."""

import pytest

from forewarn.core.access import Role, is_within


def test_each_role_includes_itself_and_those_below_it() -> None:
    included = {role: [other for other in Role if role.includes(other)] for role in Role}
    assert included == {
        Role.VIEWER: [Role.VIEWER],
        Role.OPERATOR: [Role.VIEWER, Role.OPERATOR],
        Role.ADMIN: [Role.VIEWER, Role.OPERATOR, Role.ADMIN],
    }


@pytest.mark.parametrize(
    ("patterns", "scopes"),
    [
        ((), {"web", "web-1", "Web", "db"}),
        (("web",), {"web"}),
        (("web-*",), {"web-1"}),
        (("web*", "db"), {"web", "web-1", "db"}),
        (("[wd]*",), {"web", "web-1", "db"}),
        (("",), set()),
    ],
    ids=["no pattern is every scope", "name", "pattern", "several", "character class", "empty pattern is no scope"],
)
def test_scope_is_within_the_patterns_of_a_token(patterns: tuple[str, ...], scopes: set[str]) -> None:
    """Case matters: a token for `web` is not one for `Web`."""
    assert {scope for scope in ("web", "web-1", "Web", "db") if is_within(scope, patterns)} == scopes
