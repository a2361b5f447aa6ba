"""Parameters and error responses that routes share, the idempotency key, and the check for unknown query parameters."""

from collections.abc import Mapping
from hashlib import blake2s
from typing import Annotated, Any

from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.exceptions import ValidationException
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, PathParameter, QueryParameter
from litestar.typing import FieldDefinition

from forewarn.api import v1
from forewarn.core.errors import Invalid
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.limits import DIGEST_LENGTH, MAX_KEY_LENGTH, MAX_NAME_LENGTH
from forewarn.core.text import KEY_CHARACTER
from forewarn.fleet.errors import (
    AmbiguousCampaign,
    AmbiguousVm,
    CampaignNotFound,
    OutcomeUnknown,
    SaveFailed,
    ScopeNotFound,
    VmNotFound,
)
from forewarn.operator.error_responses import DomainError, meaning_of, status_of
from forewarn.operator.errors import ScopeNotAllowed, TokenNotAllowed, TokenVmNotFound
from forewarn.operator.position import wait_for_position

ScopeId = Annotated[str, PathParameter(min_length=1, max_length=MAX_NAME_LENGTH, description="The scope's id.")]
VmName = Annotated[str, PathParameter(min_length=1, max_length=MAX_NAME_LENGTH, description="The VM's name.")]
HostName = Annotated[str, PathParameter(min_length=1, max_length=MAX_NAME_LENGTH, description="The host's name.")]
EventId = Annotated[str, PathParameter(max_length=64, description="The event's id, case-insensitive.")]
CampaignId = Annotated[
    str, PathParameter(min_length=1, max_length=128, description="The campaign's id, or its name while it is open.")
]
FaultId = Annotated[str, PathParameter(min_length=1, max_length=16, description="The fault's id.")]
RunId = Annotated[str, PathParameter(min_length=1, max_length=16, description="The id of the run.")]
ReportId = Annotated[str, PathParameter(min_length=1, max_length=16, description="The id of the report.")]
TokenId = Annotated[str, PathParameter(min_length=1, max_length=64, description="The token's id, never its secret.")]
Limit = Annotated[int, QueryParameter(ge=1, le=v1.LARGEST_PAGE, description="The maximum number of items.")]
After = Annotated[str, QueryParameter(max_length=512, description="`next` of the previous page.")]
OnlyScope = Annotated[
    str | None, QueryParameter(name="scope", min_length=1, max_length=128, description="Only those in this scope.")
]
OnlyCampaign = Annotated[
    str | None,
    QueryParameter(
        name="campaign", min_length=1, max_length=128, description="Only those of this campaign, by its id or name."
    ),
]
OnlyVm = Annotated[
    str | None, QueryParameter(name="vm", min_length=1, max_length=257, description="Only those that affect this VM.")
]
Reason = Annotated[str, QueryParameter(max_length=512, description="The reason for the journal.")]
Force = Annotated[
    bool, QueryParameter(description="Remove it even if it has open events; they are canceled or given up.")
]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        pattern=f"^{KEY_CHARACTER}+$",
        description="A repeated request of the same caller with the same key has no effect and gets the same response.",
    ),
]


ApiError = type[DomainError] | str
"""An error class, or an error code that has no class."""

COMMON_ERRORS: tuple[ApiError, ...] = (
    "invalid-request",
    "token-required",
    "invalid-token",
    TokenNotAllowed,
    ScopeNotAllowed,
    "host-not-allowed",
    "too-many-wrong-tokens",
)
"""The errors that every path can have."""

VM_ERRORS: tuple[ApiError, ...] = (VmNotFound, TokenVmNotFound, ScopeNotFound, AmbiguousVm)
"""The errors of a path that finds a VM by its name."""

CAMPAIGN_ERRORS: tuple[ApiError, ...] = (CampaignNotFound, AmbiguousCampaign)
"""The errors of a path that finds a campaign by its id or name."""


def error_specs(*errors: ApiError) -> Mapping[int, ResponseSpec]:
    """Describe the error responses of a path: its own and the common ones, by status."""
    meanings: dict[int, list[str]] = {}
    for error in (*COMMON_ERRORS, *errors):
        meanings.setdefault(status_of(error), []).append(meaning_of(error))
    return {
        status: ResponseSpec(
            data_container=v1.ErrorResponse, description=" ".join(dict.fromkeys(texts)), generate_examples=False
        )
        for status, texts in meanings.items()
    }


def change_error_specs(*errors: ApiError) -> Mapping[int, ResponseSpec]:
    """Describe the error responses of a path that changes something: its own and the common ones."""
    return error_specs("body-too-large", Invalid, SaveFailed, OutcomeUnknown, *errors)


OMITTED_FROM_DIGEST = (b',"now":false', b',"unannounced":false', b',"unannounced":true')
"""Defaults of fields that were added later, and consent: a request is the same with and without them."""

IdempotencyKeyDep = NamedDependency[IdempotencyKey | None]
"""The request's key and digest, as handlers take them: `idempotency_key: IdempotencyKeyDep`."""


async def provide_idempotency_key(request: Request[Any, Any, Any], key: Key = None) -> IdempotencyKey | None:
    """Provide the request's key with its caller, and a digest of the request and of the caller's name."""
    if key is None:
        return None
    digest = blake2s(digest_size=DIGEST_LENGTH // 2)
    scope = request.scope  # not the request's URL, because its host comes from the client and may be invalid
    path = scope["path"]
    query, body = _with_first_names(path, scope["query_string"], await request.body())
    for part in (request.method.encode(), path.encode(), query, request.user.name.encode(), body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return IdempotencyKey(key, digest.hexdigest(), request.user.token)


def _with_first_names(path: str, query: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Return query and body with the names and fields that they had when digests were first stored.

    Digests are stored: a key that came with `why` identifies the same request with `reason`. The old names
    themselves are refused, so that no two requests share a digest. A consent does not change what is requested.
    """
    for default in OMITTED_FROM_DIGEST:
        body = body.replace(default, b"")
    if path != "/v1/holds":  # its field was always called `reason`
        body = body.replace(b'"reason":', b'"why":')
    if path == "/v1/faults":
        body = body.replace(b'"duration":', b'"lasting":')
    if path == "/v1/operations/predict-failure":
        body = body.replace(b'"notice":', b'"ahead":')
    return query.replace(b"reason=", b"why="), body


async def before_request(request: Request[Any, Any, Any]) -> Response[None] | None:
    """Answer OPTIONS with the methods of the path; refuse unknown query parameters; wait for the position."""
    if request.method == "OPTIONS":
        return Response(None, status_code=204, headers={"Allow": _methods(request)})
    _check_query(request)
    await wait_for_position(request)
    return None


def _methods(request: Request[Any, Any, Any]) -> str:
    """Return the methods of all handlers of the path; the framework's own response has those of one."""
    here = (route for route in request.app.routes if route.path_format == request.scope["path_template"])
    return ", ".join(sorted({method for route in here for method in route.methods}))


def _check_query(request: Request[Any, Any, Any]) -> None:
    """Refuse unknown and repeated parameters: a misspelt filter must not list everything."""
    handler = request.route_handler
    taken, given = handler.parsed_fn_signature, handler.resolve_dependencies()
    dependencies = [given[name].parsed_fn_signature for name in taken.parameters if name in given]
    known = {
        field.kwarg_definition.name or name: field
        for signature in (taken, *dependencies)
        for name, field in signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }
    for name, values in request.query_params.dict().items():
        if name not in known:
            raise ValidationException(f"unknown query parameter {name} (see /openapi.json)")
        if len(values) > 1 and not _takes_several(known[name]):
            raise ValidationException(f"query parameter {name} given more than once")


def _takes_several(field: FieldDefinition) -> bool:
    return any(type_.is_non_string_collection for type_ in (field, *field.inner_types))
