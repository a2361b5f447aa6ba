"""The operator API as an application: its parts put together, and its description."""

import hmac
from collections.abc import Iterator

from litestar import Litestar, MediaType, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, ControllerRouterHandler

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.fleet.service import Fleet
from forewarn.operator.access import Caller, TokenGate, check_role, needs, provide_caller
from forewarn.operator.backstage import Backstage, GuestSide
from forewarn.operator.errors import OperatorError
from forewarn.operator.events import EventController
from forewarn.operator.inventory import VmController
from forewarn.operator.parameters import provide_once, refuse_unknown_query
from forewarn.operator.reading import StrictRequest
from forewarn.operator.refusals import answer_failure, answer_malformed, answer_refusal
from forewarn.operator.service import ClockController, health, me

BODY_BYTES = 1024 * 1024

PATHS: list[ControllerRouterHandler] = [VmController, EventController, ClockController, health, me]


def operator_app(fleet: Fleet, *, token: str, guests: GuestSide) -> ASGIApp:
    """Make the application that answers operators who have a token."""
    return TokenGate(open_app(fleet, guests=guests), lambda given: _admin(token, given))


def _admin(token: str, given: str) -> Caller | None:
    is_it = hmac.compare_digest(token.encode(), given.encode())
    return Caller(name="operator", role=Role.ADMIN) if is_it else None


def open_app(fleet: Fleet, *, guests: GuestSide) -> Litestar:
    """Make the application without its gate: something before it must say who calls."""
    app = Litestar(
        PATHS,
        before_request=refuse_unknown_query,
        dependencies={"caller": Provide(provide_caller), "once": Provide(provide_once)},
        exception_handlers={
            CoreError: answer_refusal,
            FleetError: answer_refusal,
            OperatorError: answer_refusal,
            HTTPException: answer_malformed,
            Exception: answer_failure,
        },
        guards=[check_role],
        logging_config=None,
        openapi_config=_described(),
        request_class=StrictRequest,
        request_max_body_size=BODY_BYTES,
        state=Backstage({"fleet": fleet, "guests": guests}, deep_copy=False),
    )
    _close_requests(app)
    return app


def _close_requests(app: Litestar) -> None:
    """Say in the description, too, that requests take no unknown fields."""
    schemas = app.openapi_schema.components.schemas or {}
    for request in _requests(v1.Request):
        if request.__name__ in schemas:
            schemas[request.__name__].additional_properties = False


def _requests(base: type[v1.Request]) -> Iterator[type[v1.Request]]:
    for request in base.__subclasses__():
        yield request
        yield from _requests(request)


def _described() -> OpenAPIConfig:
    """Describe the API. The description is served as JSON; no page here loads anything from elsewhere."""
    return OpenAPIConfig(
        title="Forewarn operator API",
        version="1",
        summary="What the people who run a fleet ask of Forewarn.",
        openapi_router=Router("/openapi.json", route_handlers=[], opt=needs(Role.VIEWER), include_in_schema=False),
        render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
