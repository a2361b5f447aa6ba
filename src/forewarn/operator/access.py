"""No token, no answer: the gate before everything of the operator side but its health."""

import hmac
from collections.abc import Iterable

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.operator.refusals import error_body

OPEN_PATHS = frozenset({"/healthz"})

_NO_TOKEN = msgspec.json.encode(
    error_body(
        "no-token",
        "this needs the header Authorization: Bearer TOKEN; the token is in the file `token` of the data directory",
    )
)


class TokenGate:
    """An ASGI application around another: lets requests through that carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or answer 401."""
        if scope["path"] in OPEN_PATHS or self._is_carried(scope["headers"]):
            await self._app(scope, receive, send)
        else:
            await _refuse(send)

    def _is_carried(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_NO_TOKEN)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": _NO_TOKEN, "more_body": False})
