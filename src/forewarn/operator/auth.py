"""Authentication and authorization: the token middleware, the caller, and the role that each route requires."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Container, Iterable, Mapping
from math import ceil
from typing import Any, Protocol

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import BaseRouteHandler
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.core.access import Role, is_within
from forewarn.operator.counters import Counters
from forewarn.operator.error_responses import send_error
from forewarn.operator.errors import ScopeNotAllowed, TokenNotAllowed
from forewarn.operator.limits import WRONG_TOKENS, CallerLog, WrongTokenLimit, caller_address

OPEN_PATHS = frozenset({"/healthz", "/readyz"})

PROBE_METHODS = ("GET", "HEAD")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

WRITE_SCHEMES = {b"bearer": b"Bearer"}
READ_SCHEMES = WRITE_SCHEMES | {b"basic": b'Basic realm="Forewarn: the password is the token"'}
"""Authentication schemes and their challenges. Browsers send stored passwords automatically, also for requests of
foreign pages (CSRF), so Basic authentication is accepted only for requests that change nothing."""

IS_STILL_VALID = "forewarn.still_known"
"""Key in the ASGI scope of a function that checks the token again, for long-lived responses."""

_WHERE_TOKENS_ARE = (
    "the service's own token is in the file `token` of its data directory; `forewarn token create` creates others"
)
_TOKEN_MISSING = f"missing header Authorization: Bearer TOKEN; {_WHERE_TOKENS_ARE}"
_TOKEN_INVALID = f"invalid, expired or revoked token; {_WHERE_TOKENS_ARE}"
_TOO_MANY_WRONG_TOKENS = (
    f"more than {WRONG_TOKENS} requests with a wrong token came from your address in a minute; valid tokens still "
    f"work; {_WHERE_TOKENS_ARE}"
)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: the id of its token, its name for the journal, and the role and scopes of its token."""

    token: str
    name: str
    role: Role
    scopes: tuple[str, ...] = ()

    def can_see(self, scope: str) -> bool:
        """Return whether the token is valid for the scope."""
        return is_within(scope, self.scopes)

    def check_scope(self, scope: str) -> None:
        """Refuse a scope that the token is not valid for, without revealing whether it exists."""
        if not self.can_see(scope):
            raise ScopeNotAllowed(self.name, scope, self.scopes)

    def check_unlimited(self) -> None:
        """Refuse a token that is limited to scopes."""
        if self.scopes:
            raise TokenNotAllowed(self.name, self.role, self.role, is_limited=True)


class TokenRecord(Protocol):
    """A stored token."""

    @property
    def id(self) -> str:
        """The public id."""
        ...

    @property
    def name(self) -> str:
        """The name for the journal."""
        ...

    @property
    def role(self) -> Role:
        """The role."""
        ...

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the token is limited to; empty if it is not limited."""
        ...


FindToken = Callable[[str], TokenRecord | None]
"""Looks up a token by its secret; None if it is invalid, expired or revoked."""


class TokenCheck:
    """Finds tokens by their secrets, and limits wrong ones per address, for the API and the dashboard together.

    An address with many wrong tokens gets 429 for further wrong ones. A valid token always works: behind a proxy, all
    callers have one address, and one of them must not lock out the others. Guessing stays hopeless, because a secret
    has 256 random bits.
    """

    def __init__(self, find: FindToken, counters: Counters) -> None:
        self.find = find
        self._counters = counters
        self._limit = WrongTokenLimit()
        self._log = CallerLog()

    def count_wrong(self, scope: Scope) -> int:
        """Count a wrong token of a request; return for how many seconds its address has sent too many, or 0."""
        self._counters.wrong_tokens += 1
        now = asyncio.get_running_loop().time()
        address = client_address(scope)
        wait = ceil(self._limit.count(address, now=now))
        if wait:
            self._log.warn(address, f"more than {WRONG_TOKENS} requests with a wrong token in a minute", now=now)
        return wait


def client_address(scope: Scope) -> str:
    """Return the address by which the caller of a request is counted."""
    return caller_address(scope["client"][0]) if scope["client"] is not None else ""


class TokenMiddleware:
    """ASGI middleware that requires a valid token and sets the caller."""

    def __init__(self, app: ASGIApp, check: TokenCheck) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or answer 401 or 429."""
        method = scope["method"] if scope["type"] == ScopeType.HTTP else ""
        if method in PROBE_METHODS and scope["path"] in OPEN_PATHS:
            # Many load balancers probe with HEAD; the server omits the body of the response.
            await self._app({**scope, "method": "GET"}, receive, send)  # type: ignore[arg-type]  # a copy is a plain dict
            return
        schemes = READ_SCHEMES if method in SAFE_METHODS else WRITE_SCHEMES
        token = _find_token(scope["headers"], schemes)
        if token is None:
            await send_error(send, "token-required", _TOKEN_MISSING, _challenges(schemes))
        elif (principal := self._check.find(token)) is not None:
            scope["user"] = caller_of(principal)
            scope[IS_STILL_VALID] = lambda: self._check.find(token) is not None  # type: ignore[literal-required]  # our own key
            await self._app(scope, receive, send)
        elif wait := self._check.count_wrong(scope):
            headers = [(b"retry-after", str(wait).encode()), (b"connection", b"close")]
            await send_error(send, "too-many-wrong-tokens", _TOO_MANY_WRONG_TOKENS, headers)
        else:
            await send_error(send, "invalid-token", _TOKEN_INVALID, _challenges(schemes))


def caller_of(token: TokenRecord) -> Caller:
    """Return the caller that uses a token."""
    return Caller(token=token.id, name=token.name, role=token.role, scopes=tuple(token.scopes))


def _find_token(headers: Iterable[tuple[bytes, bytes]], schemes: Container[bytes]) -> str | None:
    """Return the token of a Bearer header, or of a Basic header with the token as password, as browsers send it."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, rest = given[0].partition(b" ")
    if scheme.lower() not in schemes:
        return None
    return _password(rest.strip()) if scheme.lower() == b"basic" else rest.strip().decode("latin-1") or None


def _password(pair: bytes) -> str | None:
    try:
        _, _, password = base64.b64decode(pair, validate=True).partition(b":")
    except binascii.Error:
        return None
    return password.decode("latin-1") or None


def _challenges(schemes: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [(b"www-authenticate", challenge) for challenge in schemes.values()]


class Permission(msgspec.Struct, frozen=True):
    """The permission that a path requires. `role` None: not even a token."""

    role: Role | None
    all_scopes: bool = False


DEFAULT_PERMISSION = Permission(Role.VIEWER)


def requires(role: Role | None, *, all_scopes: bool = False) -> Mapping[str, Permission]:
    """Declare the permission that a path requires, as `opt` of its handler. Every handler must declare it."""
    return {"need": Permission(role, all_scopes)}


def check_permissions_declared(routes: Iterable[BaseRoute]) -> None:
    """Raise an error if a handler does not declare its permission."""
    handlers = (handler for route in routes if isinstance(route, HTTPRoute) for handler in route.route_handlers)
    for handler in handlers:
        if "need" not in handler.opt and handler.http_methods != {"OPTIONS"}:
            raise ImproperlyConfiguredException(f"{handler} does not declare the role that it requires")


async def check_permission(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse callers whose token lacks the permission that the path requires.

    Async only because the framework would run a sync function in a thread.
    """
    permission: Permission = handler.opt.get("need", DEFAULT_PERMISSION)
    if permission.role is None:
        return
    caller: Caller = connection.user
    if not caller.role.includes(permission.role):
        raise TokenNotAllowed(caller.name, caller.role, permission.role, is_limited=False)
    if permission.all_scopes:
        caller.check_unlimited()


CallerDep = NamedDependency[Caller]
"""The caller, as handlers take it: `caller: CallerDep`."""


async def provide_caller(request: Request[Any, Any, Any]) -> Caller:
    """Provide the caller to handlers."""
    caller: Caller = request.user
    return caller
