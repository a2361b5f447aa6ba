"""Read your writes: each response has the position of the replica, and a request can wait for one.

With several control nodes, a change may reach the node that answers the next request a moment later.
"""

from typing import Any

from litestar import Request
from litestar.enums import ScopeType
from litestar.exceptions import ValidationException
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.v1 import AFTER_HEADER, POSITION_HEADER
from forewarn.core.errors import Invalid
from forewarn.fleet.position import Positions
from forewarn.operator.state import current_service


class PositionMiddleware:
    """ASGI middleware that adds the position to every response."""

    def __init__(self, app: ASGIApp, positions: Positions) -> None:
        self._app = app
        self._positions = positions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, and add the position to the response."""

        async def send_with_position(message: Message) -> None:
            if message["type"] == "http.response.start":
                header = (POSITION_HEADER.lower().encode(), self._positions.current.encode())
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self._app(scope, receive, send_with_position if scope["type"] == ScopeType.HTTP else send)


async def wait_for_position(request: Request[Any, Any, Any]) -> None:
    """Wait until the replica has the position that the request names, if it names one."""
    position = request.headers.get(AFTER_HEADER)
    if position and request.scope["path"].startswith("/v1/"):
        try:
            await current_service().fleet.cluster.positions.wait(position)
        except Invalid as error:
            raise ValidationException(f"{AFTER_HEADER}: {error}") from error
