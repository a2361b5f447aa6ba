"""Counting what operators are answered, whoever answers: the gate, the application or a failure of either."""

from collections import defaultdict

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

STATUSES = (200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 422, 500, 503)
"""What is counted from the start: a rate can be had of what has been 0, not of what has been nothing."""

Answers = dict[int, int]
"""How many answers had which status."""


class Counted:
    """An ASGI application around another: counts its answers by status."""

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, and look at how its answer begins."""

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, send_counted if scope["type"] == ScopeType.HTTP else send)


def none_yet() -> Answers:
    """Make the counts of a service that has answered nobody yet."""
    return defaultdict(int, dict.fromkeys(STATUSES, 0))
