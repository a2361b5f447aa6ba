"""No token, no answer: the gate before everything of the operator side but its health."""

import hmac
from collections.abc import Iterable

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.operator.refusals import error_body

OPEN_PATHS = frozenset({"/healthz"})

_WHERE = "it is in the file `token` of the data directory"
_NO_TOKEN = msgspec.json.encode(
    error_body("no-token", f"this needs the header Authorization: Bearer TOKEN with the token; {_WHERE}")
)
_WRONG_TOKEN = msgspec.json.encode(error_body("wrong-token", f"the token is wrong; {_WHERE}"))


class TokenGate:
    """An ASGI application around another: lets requests through that carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or answer 401."""
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        token = _token_in(scope["headers"])
        if token is None:
            await _refuse(send, _NO_TOKEN)
        elif hmac.compare_digest(token, self._token):
            await self._app(scope, receive, send)
        else:
            await _refuse(send, _WRONG_TOKEN)


def _token_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


async def _refuse(send: Send, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
