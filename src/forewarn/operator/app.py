"""The operator API as an application: its parts put together, and its description."""

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
from forewarn.operator.access import TokenGate, check_declared, check_role, needs, provide_caller
from forewarn.operator.backstage import Backstage, GuestSide
from forewarn.operator.errors import OperatorError
from forewarn.operator.events import EventController
from forewarn.operator.inventory import HostController, ScopeController, VmController
from forewarn.operator.paging import Roll
from forewarn.operator.parameters import before_handling, provide_once
from forewarn.operator.reading import StrictRequest
from forewarn.operator.refusals import answer_failure, answer_malformed, answer_refusal
from forewarn.operator.service import ClockController, health, me
from forewarn.operator.tokens import TokenController

BODY_BYTES = 1024 * 1024

PATHS: list[ControllerRouterHandler] = [
    ScopeController,
    VmController,
    HostController,
    EventController,
    TokenController,
    ClockController,
    health,
    me,
]


def operator_app(fleet: Fleet, *, guests: GuestSide) -> ASGIApp:
    """Make the application that answers operators who have a token."""
    return TokenGate(open_app(fleet, guests=guests), fleet.tokens.find)


def open_app(fleet: Fleet, *, guests: GuestSide) -> Litestar:
    """Make the application without its gate: something before it must say who calls."""
    app = Litestar(
        PATHS,
        before_request=before_handling,
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
        state=Backstage({"fleet": fleet, "guests": guests, "roll": Roll(fleet)}, deep_copy=False),
    )
    check_declared(app.routes)
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
