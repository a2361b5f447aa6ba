"""Session middleware: finds the session of a browser by its cookie, and protects every path of the dashboard.

The cookie is accepted only below `/ui`, so a browser cannot use it for the API. A change needs two proofs that a page
of the dashboard makes it: the browser says that the request comes from the same origin, and the page repeats the
session's CSRF token.
"""

from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from forewarn.operator.auth import IS_STILL_VALID, SAFE_METHODS, TokenRecord, caller_of
from forewarn.operator.routes.calendar import FEEDS
from forewarn.operator.sessions import Session, Sessions, is_same_secret

ROOT = "/ui"
SIGN_IN = f"{ROOT}/sign-in"
STATIC = f"{ROOT}/static"
STREAM = f"{ROOT}/stream"

SESSION = "forewarn.session"
"""Key of the session in the ASGI scope."""

BACKGROUND = b"forewarn-background"
"""Header of requests by which a page updates itself; they do not prolong a session."""

CSRF = b"forewarn-csrf"
"""Header with the CSRF token of the session."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every response. With `no-referrer`, browsers would send forms with `Origin: null`."""

NOT_STORED = (b"cache-control", b"no-store")

SAME_SITE_PAGE = b'<!doctype html><title>Forewarn</title><meta http-equiv="refresh" content="0">'
"""Loads the same page again. A browser does not send the cookie (SameSite=Strict) if a link on another site was
followed; the second request comes from our own page, so it has the cookie."""

FindToken = Callable[[str], TokenRecord | None]
"""Looks up a token by its id; None if it is unknown, expired or revoked."""


def cookie_name(scope: Scope) -> str:
    """Return the name of the session's cookie: browsers do not separate the ports of a host, so it has the port."""
    return f"forewarn_session_{scope['server'][1] if scope['server'] is not None else ''}"


def session_cookie(scope: Scope, secret: str | None) -> str:
    """Return the value of Set-Cookie that sets the secret of a session, or deletes it."""
    value = f"{cookie_name(scope)}={secret or ''}; Path={ROOT}; HttpOnly; SameSite=Strict"
    return f"{value}{'; Secure' if scope['scheme'] == 'https' else ''}{'' if secret else '; Max-Age=0'}"


class SessionMiddleware:
    """ASGI middleware that serves the dashboard to browsers with a session; other paths go to `api`."""

    def __init__(self, app: ASGIApp, api: ASGIApp, sessions: Sessions, find_token: FindToken) -> None:
        self._app = app
        self._api = api
        self._sessions = sessions
        self._find_token = find_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or answer 303, 401 or 403."""
        if scope["type"] != ScopeType.HTTP or not is_dashboard_path(scope["path"]):
            await self._api(scope, receive, send)
            return
        send = _with_headers(send, is_static=scope["path"].startswith(f"{STATIC}/"))
        if scope["method"] == "HEAD" and scope["path"] != STREAM:  # the server omits the body of the response
            scope = {**scope, "method": "GET"}
        await self._serve(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        is_change = scope["method"] not in SAFE_METHODS
        if is_change and not is_same_origin(scope):
            text = b"This change does not come from a page of this service."
            await _send_text(send, HTTPStatus.FORBIDDEN, text)
            return
        session, token = self._find_session(scope)
        if session is None or token is None:
            await (self._app(scope, receive, send) if _is_open(scope["path"]) else _ask_to_sign_in(scope, send))
            return
        given = (_header(scope, CSRF) or b"").decode("latin-1")
        if is_change and scope["path"] != SIGN_IN and not is_same_secret(given, session.csrf):
            await _send_text(send, HTTPStatus.FORBIDDEN, b"This page is older than your session. Reload it.")
            return
        scope["user"] = caller_of(token)
        scope[SESSION] = session  # type: ignore[literal-required]  # our own key
        scope[IS_STILL_VALID] = lambda: self._sessions.is_open(session)  # type: ignore[literal-required]  # our own key
        await self._app(scope, receive, send)

    def _find_session(self, scope: HTTPScope) -> tuple[Session | None, TokenRecord | None]:
        secret = _cookie(scope, cookie_name(scope))
        if not secret:
            return None, None
        # A browser opens the stream again by itself, and its requests for streams cannot have headers of ours.
        is_background = scope["path"] == STREAM or _header(scope, BACKGROUND) is not None
        session = self._sessions.find(secret, is_background=is_background)
        return session, None if session is None else self._find_token(session.token)


def is_dashboard_path(path: str) -> bool:
    """Return whether a path belongs to the dashboard."""
    return path in ("/", ROOT) or path.startswith(f"{ROOT}/")


def is_same_origin(scope: HTTPScope) -> bool:
    """Return whether no header of a browser shows that the request comes from another origin."""
    if (site := _header(scope, b"sec-fetch-site")) is not None:
        return site in (b"same-origin", b"none")
    origin = _header(scope, b"origin")
    return origin is None or urlsplit(origin).netloc == _header(scope, b"host")


def _is_open(path: str) -> bool:
    return path in ("/", SIGN_IN) or path.startswith((f"{STATIC}/", f"{FEEDS}/"))


async def _ask_to_sign_in(scope: HTTPScope, send: Send) -> None:
    """Lead to the sign-in page, and from there back to the page that the user wanted."""
    if scope["method"] != "GET" or _header(scope, b"hx-request") is not None:
        current = urlsplit(_header(scope, b"hx-current-url") or b"").path.decode("latin-1")
        headers = [(b"hx-redirect", _sign_in_path(current).encode())]
        await _send_text(send, HTTPStatus.UNAUTHORIZED, b"Your session has ended. Sign in again.", headers)
    elif b"text/event-stream" in (_header(scope, b"accept") or b""):
        await _send_text(send, HTTPStatus.UNAUTHORIZED, b"Your session has ended. Sign in again.")
    elif _header(scope, b"sec-fetch-site") == b"cross-site":
        await _send_text(send, 200, SAME_SITE_PAGE, [(b"content-type", b"text/html; charset=utf-8")])
    else:
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        await _send_text(send, 303, b"", [(b"location", _sign_in_path(quote(scope["path"]) + query).encode())])


def _sign_in_path(wanted: str) -> str:
    return SIGN_IN if wanted in ("", ROOT) else f"{SIGN_IN}?next={quote(wanted, safe='/')}"


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def _cookie(scope: Scope, name: str) -> str | None:
    for key, value in scope["headers"]:
        if key == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return None


def _with_headers(send: Send, *, is_static: bool) -> Send:
    """Add the security headers to a response; only static files may be stored by a browser."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = HEADERS if is_static else (*HEADERS, NOT_STORED)
            message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
        await send(message)

    return send_with_headers


async def _send_text(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [*(headers or []), (b"content-length", str(len(body)).encode())]
    if not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", b"text/plain; charset=utf-8"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
