"""All paths of the dashboard: not in the OpenAPI description, each with its permission, and read-only for viewers."""

import re
from collections.abc import Iterator
from typing import NamedTuple, get_type_hints
from urllib.parse import quote, urlencode

import pytest
from litestar.params import QueryParameter

from forewarn.core.access import Role
from forewarn.operator.app import litestar_app
from forewarn.operator.auth import Permission
from forewarn.operator.dashboard.session_middleware import is_dashboard_path
from tests.operator.dashboard.signed_in import SignedIn, sign_in
from tests.operator.running_api import run_api
from tests.operator.test_auth_matrix import Names, World, run_world


def _example_path(path: str) -> str:
    """Return a path with values: the scope exists, and all tokens may see it; other things do not exist."""
    return re.sub(r"{\w+(:\w+)?}", "x", re.sub(r"{scope_id(:\w+)?}", "web", path))


async def test_openapi_description_has_no_page() -> None:
    async with run_api() as service:
        paths = (await service.request("GET", "/openapi.json")).json["paths"]
        assert [path for path in paths if is_dashboard_path(path)] == []


async def test_nothing_is_read_or_changed_without_a_session() -> None:
    """Every path and method of the dashboard, except those that sign in; a calendar has its own secret."""
    async with run_api() as service:
        before = await service.stored_state()
        for route in litestar_app().routes:
            path = _example_path(route.path_format)
            if not is_dashboard_path(path) or path.startswith("/ui/static"):
                continue
            for method in route.methods - {"OPTIONS", "HEAD"}:
                answer = await service.request(method, path, b"", token=None, Sec_Fetch_Site="same-origin")
                expected = {"GET /": 303, "GET /ui/sign-in": 200, "GET /ui/calendar/x": 404}.get(
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


async def test_every_change_needs_the_csrf_token_of_its_session() -> None:
    async with run_world() as world:
        browser = await sign_in(world.service)
        before = await world.service.stored_state()
        for page in PAGES.values():
            if page.method == "POST":
                path, form = _example_path(page.path), FORMS[page.name]
                for headers in ({"forewarn_csrf": ""}, {"Sec_Fetch_Site": "cross-site"}):
                    answer = await browser.post(path, form, **headers)
                    assert (page.name, answer.status) == (page.name, 403)
        assert await world.service.stored_state() == before
        assert len(world.service.sessions.all()) == 1


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


FORMS: dict[str, dict[str, str]] = {
    "advance": {"duration": "1m"},
    "approve_event": {"vm": "web-1", "reason": "a test"},
    "cancel_event": {"reason": "a test"},
    "cancel_run": {},
    "change_campaign": {"action": "pause", "reason": "a test"},
    "clear_fault_form": {"reason": "a test"},
    "create_calendar": {},
    "create_hold": {"scope": "SCOPE", "reason": "a test"},
    "create_token": {"name": "new", "role": "viewer", "scopes": "web"},
    "end_session": {},
    "operate_vm": {"operation": "restart"},
    "plan_input": {"source": "form", "name": "kernel", "type": "Reboot", "selection.scopes": "SCOPE"},
    "play": {"name": "user-restart"},
    "release_hold": {"scope": "SCOPE"},
    "resolve_impact": {"done": "true", "reason": "a test"},
    "retry_impact": {},
    "revoke_calendar": {},
    "revoke_token": {"reason": "a test"},
    "schedule_vm": {"type": "Reboot", "notice": "1d"},
    "set_fault_form": {"kind": "hang", "vm": "SCOPE"},
    "set_speed": {"speed": "1"},
    "start_planned": {"toml": 'name = "kernel"\ntype = "Reboot"\nselection = { scopes = ["shop"] }'},
}
"""The forms of the changes. In SCOPE, a form names a scope; a change that is missing here fails the test."""

NAMED: dict[str | tuple[str, str], str] = {
    "scope_id": "scope",
    "scope": "scope",
    "vm": "vm",
    "event": "event",
    "campaign": "campaign",
    ("show_editor", "clone"): "campaign",
    ("show_campaigns", "after"): "campaign",
    "selection.scopes": "scope",
    "actor": "actor",
    "session_id": "token",
    "token_id": "token",
    ("show_vm_page", "name"): "vm name",
    ("operate_vm", "name"): "vm name",
    ("schedule_vm", "name"): "vm name",
    ("search_all", "q"): "any",
    "host_name": "host",
    **{
        (handler, name): kind
        for handler in ("show_fleet", "show_part", "show_scope_block", "show_host_block")
        for name, kind in (("q", "any"), ("host", "host"))
    },
    ("show_states", "scope"): "",
    ("show_timeline", "q"): "any",
}
"""Parameters that name a thing which belongs to a scope, by name or by handler and name."""

FLEET_HANDLERS = ("show_fleet", "show_part", "show_states", "show_scope_block", "show_host_block")

UNNAMED = {
    *((handler, name) for handler in FLEET_HANDLERS for name in ("state", "view")),
    *(("show_part", name) for name in ("after", "until")),
    *(("show_states", name) for name in ("q", "scope", "host")),
    *(("show_history", name) for name in ("action", "since", "until", "after")),
    *(("export_history", name) for name in ("action", "since", "until", "format")),
    *(("show_timeline", name) for name in ("group", "type", "hours", "from", "to", "table")),
    ("show_campaign_page", "table"),
    *(("show_exchanges", name) for name in ("seen", "paused")),
    ("stream", "after"),
}
"""Other parameters; the numbers of states are those of the whole fleet, whatever the filters are."""

SESSION_PATHS = ("/ui/sign-", "/ui/static", "/ui/stream", "/ui/calendar/")
"""Paths without things of scopes, the stream, which has no end, and calendars, which need no session."""

OTHERS = {"version": "2020-07-01"}
"""Values of other parameters in paths."""

MISSING = {"report_id", "run_id", "guest", "rest"}
"""What the fleet of these tests does not have: reports, runs of scenarios, guest endpoints, and unknown pages."""

PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


class Page(NamedTuple):
    """A handler of the dashboard: how it is requested, and which parameters it has."""

    name: str
    method: str
    path: str
    query: tuple[str, ...]

    @property
    def references(self) -> dict[str, str]:
        """The parameters and fields that name a thing, and its kind."""
        form = [field for field, value in FORMS.get(self.name, {}).items() if value == "SCOPE"]
        names = (*PARAMETER.findall(self.path), *self.query, *form)
        return {name: kind for name in names if (kind := NAMED.get((self.name, name), NAMED.get(name)))}


def _pages() -> Iterator[Page]:
    for route in litestar_app().routes:
        if not is_dashboard_path(_example_path(route.path_format)) or route.path.startswith(SESSION_PATHS):
            continue
        for handler in getattr(route, "route_handlers", ()):
            for method in handler.http_methods & {"GET", "POST"}:
                functions = (handler.fn, *(each.dependency for each in (handler.dependencies or {}).values()))
                hints = [hint for each in functions for hint in get_type_hints(each, include_extras=True).values()]
                described = (each for hint in hints for each in getattr(hint, "__metadata__", ()))
                query = tuple(each.name or "" for each in described if isinstance(each, QueryParameter))
                yield Page(handler.handler_name, method, route.path, query)


PAGES = {f"{page.method} {page.path}": page for page in sorted(_pages())}


def test_every_parameter_and_change_is_listed() -> None:
    names = [(page.name, name) for page in PAGES.values() for name in page.query if name not in page.references]
    assert set(names) - UNNAMED == set()
    assert {page.name for page in PAGES.values() if page.method == "POST"} == set(FORMS)


def _ways(world: World, kind: str) -> Iterator[Names]:
    match kind:
        case "any":
            for each in ("scope", "vm", "host", "event"):
                yield from world.names(each)
        case "vm name":
            yield Names("web-0", "db-0", "db-9")
        case _:
            yield from world.names(kind)


async def _ask(browser: SignedIn, page: Page, values: dict[str, str]) -> tuple[int, str]:
    """Request a page or send its form; return the answer without the names that were asked for and random values."""
    path = PARAMETER.sub(lambda found: quote(values.get(found[1], OTHERS.get(found[1], "x")), safe=""), page.path)
    if page.method == "GET":
        answer = await browser.get(f"{path}?{urlencode({name: values[name] for name in page.query if name in values})}")
    else:
        form = {field: values[field] if value == "SCOPE" else value for field, value in FORMS[page.name].items()}
        answer = await browser.post(path, form)
    text = "\n".join(
        [*(f"{name}: {value}" for name, value in answer.headers.items() if name != "date"), answer.body.decode()]
    )
    for name, value in values.items():
        for part in (value, *value.split("/")):
            for spelled in (quote(part, safe=""), part):
                text = text.replace(spelled, f"<{name}>")
    return answer.status, re.sub(r"\b[0-9a-f]{32}\b", "<random>", text)


async def test_pages_reveal_nothing_of_another_scope() -> None:
    """Every page, with things of the token's scope."""
    revealed: dict[str, set[str]] = {}
    async with run_world() as world:
        for caller, token in world.tokens.items():
            browser = await sign_in(world.service, token)
            for page in PAGES.values():
                own = {
                    each: next(iter(_ways(world, kind))).own
                    for each, kind in page.references.items()
                    if f"{{{each}:" in page.path
                }
                status, text = await _ask(browser, page, own) if page.method == "GET" else (0, "")
                if status == 200 and world.reveals_foreign(text):
                    revealed.setdefault(caller, set()).add(page.name)
    assert set(revealed) == {"admin"}
    assert len(revealed["admin"]) > 5


async def test_viewing_changes_nothing_and_enables_no_scope() -> None:
    """Every page, with things that exist; only those of the emulator and of the guest endpoints are missing here."""
    async with run_world() as world:
        browser = await sign_in(world.service)
        before, enabled = await world.service.stored_state(), _enabled_scopes(world)
        answers = {}
        for name, page in PAGES.items():
            if page.method == "GET":
                own = {
                    each: next(iter(_ways(world, kind))).own
                    for each, kind in page.references.items()
                    if f"{{{each}:" in page.path
                }
                answers[name], _ = await _ask(browser, page, own)
        failed = {name for name, status in answers.items() if status not in (200, 303)}
        assert {name for name in failed if not any(part in name for part in MISSING)} == set()
        assert (await world.service.stored_state(), _enabled_scopes(world)) == (before, enabled)
        assert False in enabled.values()


def _enabled_scopes(world: World) -> dict[str, bool]:
    views = world.service.fleet.replica.views()
    return {view.id: view.scope.enabled for view in views if view.scope is not None}


@pytest.mark.parametrize("page", sorted(name for name, page in PAGES.items() if page.references))
async def test_another_scope_is_shown_like_a_missing_one(page: str) -> None:
    """Every page and change × role × scope, as `test_auth_matrix` does for the API."""
    found = PAGES[page]
    told_apart: list[object] = []
    told_apart_by_admin: list[object] = []
    async with run_world() as world:
        before = await world.service.stored_state()
        browsers = {name: await sign_in(world.service, token) for name, token in world.tokens.items()}
        for reference, kind in found.references.items():
            for names in _ways(world, kind):
                for caller, browser in browsers.items():
                    if caller == "admin" and found.method == "POST":
                        continue
                    own = {
                        name: next(iter(_ways(world, other))).own
                        for name, other in found.references.items()
                        if name not in found.query
                    }
                    answers = [
                        await _ask(browser, found, own | {reference: value}) for value in (names.foreign, names.missing)
                    ]
                    if answers[0] != answers[1]:
                        (told_apart_by_admin if caller == "admin" else told_apart).append((caller, names, *answers))
        assert told_apart == []
        assert await world.service.stored_state() == before
    assert found.method == "POST" or told_apart_by_admin, "the other scope exists: without a limit, it is shown"
