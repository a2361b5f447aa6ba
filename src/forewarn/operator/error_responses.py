"""Error responses: status code and body for each error. A test fails on an error class without a row."""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import Send

from forewarn.api import v1
from forewarn.api.errors import NOT_FOUND_HINTS
from forewarn.core import errors as core
from forewarn.fleet import errors as fleet
from forewarn.operator import errors as operator
from forewarn.operator.decode_errors import plain_message, with_choices
from forewarn.store.port import StoreError

AnyRequest = Request[Any, Any, Any]

log = logging.getLogger(__name__)

HIDDEN_VM = "a VM of another scope"
"""Replaces the name of a VM in responses to callers who may not see it."""

DomainError = core.CoreError | fleet.FleetError | operator.OperatorError

STATUS_BY_ERROR: dict[type[DomainError], int] = {
    core.CoreError: 409,
    core.Invalid: 422,
    core.NotFound: 404,
    core.ScopeVmNotFound: 404,
    core.EventVmNotFound: 404,
    core.ScopeEventNotFound: 404,
    core.CampaignScopeNotFound: 404,
    core.RefusedError: 409,
    core.InvalidTransition: 409,
    core.NoticeTooShort: 409,
    core.NotAnnounced: 409,
    core.EvictionNotAllowed: 409,
    core.TypeNotReleased: 409,
    core.SourceNotAllowed: 409,
    core.KeyConflict: 409,
    core.TooManyOperations: 409,
    core.ResourceInUse: 409,
    core.HostInUse: 409,
    core.WrongHost: 409,
    core.ResourceExists: 409,
    core.PlacementFailed: 409,
    core.InvalidCampaignState: 409,
    core.ScopeTooLarge: 409,
    fleet.FleetError: 409,
    fleet.ScopeNotFound: 404,
    fleet.VmNotFound: 404,
    fleet.EventNotFound: 404,
    fleet.HostNotFound: 404,
    fleet.HostTaken: 409,
    fleet.HostRunning: 409,
    fleet.HostUnheard: 409,
    fleet.CommandRefused: 409,
    fleet.TokenNotFound: 404,
    fleet.GateNotFound: 404,
    fleet.CampaignNotFound: 404,
    fleet.FaultNotFound: 404,
    fleet.SecretUnavailable: 409,
    fleet.LastToken: 409,
    fleet.AmbiguousVm: 409,
    fleet.AmbiguousCampaign: 409,
    fleet.ScopeExists: 409,
    fleet.AddressInUse: 409,
    fleet.VmIdInUse: 409,
    fleet.ManualTimeUnavailable: 409,
    fleet.PositionNotFound: 404,
    fleet.PositionNotReached: 503,
    fleet.JournalPruned: 410,
    fleet.PartialSchedule: 409,
    fleet.SaveFailed: 503,
    fleet.LeaseLost: 503,
    fleet.OutcomeUnknown: 503,
    operator.OperatorError: 409,
    operator.TokenNotAllowed: 403,
    operator.ScopeNotAllowed: 403,
    operator.ImportConflict: 409,
    operator.ImportFailed: 503,
    operator.ImportCanceled: 409,
    operator.ImportNotFound: 404,
    operator.FaultNotAllowed: 409,
    operator.EmulatorNotRunning: 409,
    operator.TimeNotVirtual: 409,
    operator.ScenarioNotFound: 404,
    operator.ScenarioRunNotFound: 404,
    operator.ScenarioConflict: 409,
    operator.ScenarioRefused: 409,
    operator.InvalidScenario: 422,
    operator.ReportNotFound: 404,
    operator.ReportNotSaved: 503,
    operator.SocketNotAllowed: 409,
    operator.SocketUnavailable: 503,
    operator.InvalidFleetFile: 422,
    operator.HostNotAllowed: 403,
    operator.TokenVmNotFound: 404,
    operator.JournalEventNotFound: 404,
    operator.VmNameNotFound: 404,
    operator.TooManyStreams: 503,
    operator.GateNotAllowed: 403,
    operator.SelectionNotAllowed: 403,
    operator.PlanFailed: 503,
}


MALFORMED = {
    "path-not-found": "there is no such path; see /openapi.json",
    "method-not-allowed": "this path does not support this method; see /openapi.json",
    "body-too-large": "the request body is too large; split the request",
}
"""Messages for requests that do not reach a handler, by code."""

INVALID_REQUEST = "invalid-request"
CLIENT_GONE = "client disconnected prematurely"
"""What Litestar says when a client leaves within its body. The error has no class or status of its own."""

INTERNAL_ERROR = "internal-error"
INTERNAL_ERROR_MESSAGE = "internal error; see the log of the service"


class OtherError(NamedTuple):
    """Status and meaning of an error code that has no class."""

    status: int
    meaning: str


OTHER_ERRORS = {
    INVALID_REQUEST: OtherError(400, "The request is malformed."),
    "token-required": OtherError(401, "The request has no token."),
    "invalid-token": OtherError(401, "The token is wrong, expired or revoked."),
    "path-not-found": OtherError(404, "There is no such path."),
    "method-not-allowed": OtherError(405, "The path does not support this method."),
    "body-too-large": OtherError(413, "The body is too large."),
    "host-not-allowed": OtherError(421, "The request is for another host name."),
    "too-many-wrong-tokens": OtherError(429, "Too many wrong tokens came from this address."),
    "head-too-large": OtherError(431, "The head of the request, or of a chunk of its body, is too large."),
    INTERNAL_ERROR: OtherError(500, "The service has an error; its log has the details."),
    "transfer-encoding-not-allowed": OtherError(501, "The transfer coding is not a single `chunked`."),
    "store-unavailable": OtherError(503, "The data cannot be read now."),
    "too-many-connections": OtherError(503, "The limit of connections is reached."),
}
"""The error codes that have no class."""

NOT_READY = 503
"""Status of /readyz if the service is not ready; the body has the problems instead of an error."""


def status_of(error: type[DomainError] | str) -> int:
    """Return the status of an error class, or of a code that has no class."""
    return OTHER_ERRORS[error].status if isinstance(error, str) else STATUS_BY_ERROR[error]


def meaning_of(error: type[DomainError] | str) -> str:
    """Return what an error means: the first line of its docstring."""
    return OTHER_ERRORS[error].meaning if isinstance(error, str) else (error.__doc__ or "").partition("\n")[0]


def statuses_by_code() -> dict[str, int]:
    """Return every error code of the API, with its status."""
    others = {code: other.status for code, other in OTHER_ERRORS.items()}
    by_class = {error.code: status for error, status in STATUS_BY_ERROR.items()}
    return dict(sorted((others | by_class).items()))


def error_body(code: str, message: str, **details: str | list[str]) -> v1.ErrorResponse:
    """Return the body of an error response."""
    return v1.ErrorResponse(error=v1.ErrorBody(code=code, message=message, details=details))


async def send_error(send: Send, code: str, message: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send the response for one of `OTHER_ERRORS`, from an ASGI application."""
    body = msgspec.json.encode(error_body(code, message))
    own = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status_of(code), "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def domain_error_body(error: DomainError) -> v1.ErrorResponse:
    """Return the response body for an error of the core, the fleet or the operator API."""
    details = {name: _detail(value) for name, value in error.details.items()}
    # Core errors have the same text everywhere, so they get no hint to a command.
    advice = "" if isinstance(error, core.CoreError) else NOT_FOUND_HINTS.get(error.code, "")
    return error_body(error.code, str(error) + advice, **details)


def domain_error_response(request: AnyRequest, error: DomainError) -> Response[v1.ErrorResponse]:
    """Return the response for an error of the core, the fleet or the operator API."""
    if isinstance(error, fleet.AddressInUse | fleet.VmIdInUse) and not request.user.can_see(
        error.vm.rpartition("/")[0]
    ):
        error = type(error)(**error.details | {"vm": HIDDEN_VM})
    headers = {"Retry-After": "1"} if isinstance(error, fleet.PositionNotReached) else None
    return Response(domain_error_body(error), status_code=STATUS_BY_ERROR[type(error)], headers=headers)


def store_error_response(request: AnyRequest, error: StoreError) -> Response[v1.ErrorResponse]:
    """Return the response for a failed read of the store."""
    log.error("%s %s failed: %s", request.method, request.scope["path"], error)
    return _other_response("store-unavailable", f"the data cannot be read now: {error}; try again later")


def http_error_response(request: AnyRequest, error: HTTPException) -> Response[v1.ErrorResponse]:
    """Return the response for an error of Litestar: the request reaches no handler, or the service has a bug."""
    if error.status_code >= 500 and error.detail != CLIENT_GONE:
        return internal_error_response(request, error)
    code = next((code for code in MALFORMED if status_of(code) == error.status_code), INVALID_REQUEST)
    body = error_body(code, _message(request, error, code))
    return Response(body, status_code=status_of(code), headers=error.headers)


def internal_error_response(request: AnyRequest, error: Exception) -> Response[v1.ErrorResponse]:
    """Log an unexpected error and return its response."""
    log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
    return _other_response(INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE)


def _other_response(code: str, message: str) -> Response[v1.ErrorResponse]:
    return Response(error_body(code, message), status_code=status_of(code))


def _message(request: AnyRequest, error: HTTPException, code: str) -> str:
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        wrong = "; ".join(plain_message(_parameter_message(request, item)) for item in error.extra)
        return f"{wrong} (see /openapi.json)"
    if code in MALFORMED:
        return MALFORMED[code]
    return error.detail if isinstance(error, ValidationException) else f"malformed request: {error.detail}"


def _parameter_message(request: AnyRequest, item: dict[str, str]) -> str:
    if item.get("key") == "data":  # errors within a body are reported elsewhere
        return "the request has no body; send JSON"
    parameter = item.get("key", "")
    if parameter == "key":  # a dependency takes it, not the handlers
        return f"Idempotency-Key: {item.get('message', '')}"
    field = request.route_handler.parsed_fn_signature.parameters.get(parameter)
    name = getattr(field and field.kwarg_definition, "name", None) or parameter  # the public name
    message = item.get("message", "")
    return f"{name}: {message if field is None else with_choices(message, field.annotation)}".strip(": ")


def _detail(value: object) -> str | list[str]:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case tuple() | list():
            return [str(item) for item in value]
        case _:
            return str(value)
