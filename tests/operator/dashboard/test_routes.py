"""All paths of the dashboard: not in the OpenAPI description, each with its permission, and read-only for viewers."""

import re

import msgspec

from forewarn.core.access import Role
from forewarn.operator.app import litestar_app
from forewarn.operator.auth import Permission
from forewarn.operator.dashboard.session_middleware import is_dashboard_path
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import run_api


def _example_path(path: str) -> str:
    """Return a path with values: the scope exists, and all tokens may see it; other things do not exist."""
    return re.sub(r"{\w+(:\w+)?}", "x", re.sub(r"{scope_id(:\w+)?}", "web", path))


async def test_openapi_description_has_no_page() -> None:
    async with run_api() as service:
        paths = (await service.request("GET", "/openapi.json")).json["paths"]
        assert [path for path in paths if is_dashboard_path(path)] == []


async def test_nothing_is_read_or_changed_without_a_session() -> None:
    """Every path and method of the dashboard, except those that sign in."""
    async with run_api() as service:
        before = await service.stored_state()
        for route in litestar_app().routes:
            path = _example_path(route.path_format)
            if not is_dashboard_path(path) or path.startswith("/ui/static"):
                continue
            for method in route.methods - {"OPTIONS", "HEAD"}:
                answer = await service.request(method, path, b"", token=None, Sec_Fetch_Site="same-origin")
                expected = {"GET /": 303, "GET /ui/sign-in": 200}.get(
                    f"{method} {path}", 303 if method == "GET" else 401
                )
                assert (method, path, answer.status) == (method, path, expected)
        assert await service.stored_state() == before


ROLES = {
    "viewer": (Role.VIEWER, ()),
    "operator": (Role.OPERATOR, ()),
    "admin": (Role.ADMIN, ()),
    "limited operator": (Role.OPERATOR, ("web",)),
    "limited admin": (Role.ADMIN, ("web",)),
}


async def test_every_page_and_change_enforces_its_declared_role() -> None:
    """Every path and method with every kind of token; those of the session itself are tested elsewhere."""
    wrong = []
    async with run_api() as service:
        for name, (role, scopes) in ROLES.items():
            browser = await sign_in(service, await service.token("a-" + name.replace(" ", "-"), role, *scopes))
            for route in litestar_app().routes:
                path = _example_path(route.path_format)
                if not is_dashboard_path(path) or path.startswith(("/ui/sign-", "/ui/static", "/ui/stream")):
                    continue
                for handler in getattr(route, "route_handlers", ()):
                    need = handler.opt.get("need", Permission(None))
                    allowed = need.role is None or (role.includes(need.role) and not (need.all_scopes and scopes))
                    for method in handler.http_methods & {"GET", "POST"}:
                        answer = await (browser.get(path) if method == "GET" else browser.post(path, {"scope": "web"}))
                        if (answer.status == 403) is allowed:
                            wrong.append((name, method, path, answer.status))
    assert wrong == []


def test_every_change_needs_an_operator() -> None:
    needed = {
        f"{'/'.join(sorted(handler.http_methods))} {route.path}": handler.opt["need"]
        for route in litestar_app().routes
        if is_dashboard_path(route.path)
        for handler in getattr(route, "route_handlers", ())
        if "need" in handler.opt
    }
    changes = {path: need for path, need in needed.items() if "POST" in path and need.role is None}
    assert changes == {"POST /ui/sign-in": Permission(None), "POST /ui/sign-out": Permission(None)}


async def test_viewing_changes_nothing_and_enables_no_scope() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        before = await service.stored_state()
        page = await browser.get("/ui")
        assert (page.status, await service.stored_state()) == (200, before)
        assert msgspec.json.encode([view.scope and view.scope.enabled for view in service.fleet.replica.views()]) == (
            b"[false,false,false,false]"
        )
