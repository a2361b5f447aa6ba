"""Rendering of the dashboard's pages: templates, filters, forms and error pages."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, ValidationException
from markupsafe import Markup

from forewarn import __version__
from forewarn.api import v1
from forewarn.clock import ManualClock
from forewarn.core.access import Role
from forewarn.core.errors import CoreError
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.idempotency import REQUEST_FACTS
from forewarn.core.text import GUID_PATTERN, Text
from forewarn.fleet.errors import FleetError
from forewarn.operator.auth import Caller
from forewarn.operator.dashboard.assets import assets
from forewarn.operator.dashboard.session_middleware import BACKGROUND, CSRF, ROOT, SESSION, SIGN_IN
from forewarn.operator.dashboard.time_chart import chart_data
from forewarn.operator.decode_errors import plain_message, with_choices
from forewarn.operator.emulator import is_time_virtual
from forewarn.operator.error_responses import (
    domain_error_response,
    http_error_response,
    internal_error_response,
    store_error_response,
)
from forewarn.operator.errors import OperatorError
from forewarn.operator.sessions import Session
from forewarn.operator.state import current_service
from forewarn.store.port import StoreError

AnyRequest = Request[Any, Any, Any]

T = TypeVar("T")

EMULATOR = f"{ROOT}/emulator"

NAVIGATION = (
    ("Overview", ROOT),
    ("Fleet", f"{ROOT}/fleet"),
    ("Timeline", f"{ROOT}/timeline"),
    ("Campaigns", f"{ROOT}/campaigns"),
    ("Emulator", EMULATOR),
    ("History", f"{ROOT}/history"),
    ("Holds", f"{ROOT}/holds"),
    ("Access", f"{ROOT}/access"),
)
"""The pages of the top bar. Emulator is among them only where time is virtual."""

PAUSE_PER_ITEM = 1
"""How many milliseconds a large page waits before it updates itself again (`pause`), for each item or scope on it."""

HTMX_CONFIG = {
    "allowEval": False,
    "includeIndicatorStyles": False,
    "historyCacheSize": 0,
    "selfRequestsOnly": True,
    "scrollBehavior": "auto",
    "responseHandling": [{"code": "204", "swap": False}, {"code": "...", "swap": True}],
}
"""Settings of htmx: nothing that needs an exception in the Content-Security-Policy; error responses are shown."""

MARKED_TEXT = re.compile(
    rf"`(?P<code>[^`]+)`|(?P<moment>\b\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ)|(?<=\bevent )(?P<event>{GUID_PATTERN})\b",
    re.ASCII,
)
"""A command, a time, or the id of an event, in a text of the service."""

ERRORS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "Malformed request",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.CONFLICT: "Not possible now",
    HTTPStatus.GONE: "Gone",
}
"""Titles of error pages, by status."""

CONSENT = "Go ahead even if VMs will not hear of it"
"""The box of a form that consents to an unannounced event."""

AT_ONCE = "Start at once, without notice"
"""The box of a form that starts an event at once."""

ADVICE = {
    "set unannounced": f"check “{CONSENT}”",
    "use now": f"check “{AT_ONCE}”",
    "there is no such path; see /openapi.json": "there is no such page",
    " (see /openapi.json)": "",
}
"""What the dashboard advises instead of a field or the description of the API, at the end of a message."""


@cache
def environment() -> Environment:
    """Return the environment of the templates. All values are escaped."""
    made = Environment(
        loader=PackageLoader("forewarn.operator.dashboard"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "chart_data": chart_data,
        "moment": show_moment,
        "plural": show_count,
        "prose": show_text,
        "segment": path_segment,
        "short": short_id,
    }
    made.globals |= {
        "asset": assets().url,
        "Role": Role,
        "htmx_config": msgspec.json.encode(HTMX_CONFIG).decode(),
        "version": __version__,
        "event_types": tuple(type_.value for type_ in EventType),
        "sources": tuple(source.value for source in Source),
        "causes": tuple(cause.value for cause in Cause),
        "background_headers": msgspec.json.encode({BACKGROUND.decode(): "1"}).decode(),
        "root": ROOT,
        "consent": CONSENT,
        "at_once": AT_ONCE,
        "hidden_facts": REQUEST_FACTS | {"epoch"},
    }
    return made


def show_moment(moment: datetime | None, kind: str = "moment") -> Markup:
    """Return a time in UTC, which the browser shows in its own zone; kinds are moment, relative and countdown."""
    if moment is None:
        return Markup('<span class="none">none</span>')
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}" data-kind="{}" title="{}">{}</time>').format(
        utc.isoformat().replace("+00:00", "Z"), kind, f"{utc:%Y-%m-%d %H:%M:%S} UTC", f"{utc:%Y-%m-%d %H:%M} UTC"
    )


def show_text(text: str) -> Markup:
    """Return a text of the service with times in the reader's zone, short links to events, and commands as code."""
    shown, place = Markup(), 0
    for found in MARKED_TEXT.finditer(text):
        shown += Markup.escape(text[place : found.start()]) + _show_found(found)
        place = found.end()
    return shown + Markup.escape(text[place:])


def _show_found(found: re.Match[str]) -> Markup:
    if code := found["code"]:
        return Markup("<code>{}</code>").format(code)
    if id_ := found["event"]:
        return Markup('<a href="{}/events/{}"><span class="id">{}</span></a>').format(ROOT, id_, short_id(id_))
    try:
        return show_moment(datetime.fromisoformat(found["moment"]))
    except ValueError:  # a text of a user
        return Markup.escape(found["moment"])


def show_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: 1 VM, 1,200 VMs."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def short_id(id_: str) -> str:
    """Return the first part of an event's or campaign's id, as the command line shows it."""
    return id_[:8]


def path_segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def render_page(
    request: AnyRequest,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: object,
) -> Response[str]:
    """Render a page for the caller of a request."""
    session: Session | None = request.scope.get(SESSION)  # type: ignore[assignment]  # our own key
    caller: Caller | None = request.scope.get("user")
    clock = current_service().fleet.clock
    values = {"live": "", "renews": False, "pause": 0} | values
    text = environment().get_template(template)
    content = text.render(
        caller=caller,
        session=session,
        csrf_headers=None if session is None else msgspec.json.encode({CSRF.decode(): session.csrf}).decode(),
        path=request.scope["path"].rstrip("/") or ROOT,
        navigation=[item for item in NAVIGATION if item[1] != EMULATOR or is_time_virtual(current_service())],
        clock_now=clock.now(),
        clock_manual=isinstance(clock, ManualClock),
        sign_in_path=SIGN_IN,
        own_path=_own_path(request),
        can_change=caller is not None and caller.role.includes(Role.OPERATOR),
        **values,
    )
    return Response(content, media_type=MediaType.HTML, status_code=status, headers=headers)


def _own_path(request: AnyRequest) -> str:
    """Return the path with which a page requests itself again."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{quote(request.scope['path'])}?{query}" if query else quote(request.scope["path"])


async def read_form(request: AnyRequest) -> dict[str, str]:
    """Return the fields of a form; of repeated fields the last, empty ones left out."""
    try:
        pairs = parse_qsl((await request.body()).decode(), max_num_fields=100)
    except ValueError as error:
        raise ValidationException(f"malformed form: {error}") from None
    return {name: value.strip() for name, value in pairs if value.strip()}


def convert_form(form: Mapping[str, object], type_: type[T]) -> T:
    """Return the fields of a form as a request of the API, which checks them."""
    try:
        return msgspec.convert(form, type=type_, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationException(with_choices(plain_message(str(error)), type_)) from None


class ReasonForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A form whose only field is the reason for the journal."""

    reason: Text = ""


def empty_page(status: int, **headers: str) -> Response[str]:
    """Return a response without a page."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response("", media_type=MediaType.TEXT, status_code=status, headers=names)


def changed(location: str | None = None) -> Response[str]:
    """Return the response to a change: the browser updates the page, or shows another one."""
    return empty_page(204, HX_Trigger="changed") if location is None else empty_page(204, HX_Redirect=location)


def error_page(request: AnyRequest, error: Exception) -> Response[str]:
    """Show an error, as the API would describe it, in the form that was sent or on its own page."""
    found = _api_response(request, error)
    message, status = found.content.error.message, found.status_code or HTTPStatus.INTERNAL_SERVER_ERROR
    for field, advice in ADVICE.items():
        if message.endswith(field):
            message = message.removesuffix(field) + advice
    if "hx-request" in request.headers:  # dashboard.js shows it
        return Response(message, media_type=MediaType.TEXT, status_code=status)
    title = ERRORS.get(status, "Something went wrong")
    return render_page(request, "error.html", status=status, title=title, message=message)


def _api_response(request: AnyRequest, error: Exception) -> Response[v1.ErrorResponse]:
    match error:
        case CoreError() | FleetError() | OperatorError():
            return domain_error_response(request, error)
        case StoreError():
            return store_error_response(request, error)
        case HTTPException():
            return http_error_response(request, error)
        case _:
            return internal_error_response(request, error)
