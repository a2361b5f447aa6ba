"""Sign-in page: a browser signs in with a token, or with the one-time code of a link; and signing out."""

import re
from typing import Annotated

from litestar import Response, get, post
from litestar.params import QueryParameter

from forewarn.operator.auth import client_address, requires
from forewarn.operator.dashboard.pages import AnyRequest, empty_page, read_form, render_page
from forewarn.operator.dashboard.session_middleware import ROOT, SESSION, SIGN_IN, session_cookie
from forewarn.operator.error_responses import status_of
from forewarn.operator.sessions import Session
from forewarn.operator.state import AppState

OWN_PATH = re.compile(rf"{ROOT}(/[\w.~%+:/-]*)?(\?[\w.~%+:=&/-]*)?", re.ASCII)
"""A path of the dashboard, to which the sign-in page may lead."""

MAX_PATH = 1024

WRONG_TOKEN = "This token is wrong, expired or revoked."  # noqa: S105 - a message
WRONG_CODE = "This link is no longer valid: it works once, and for one minute. Sign in with a token."
TOO_MANY = "Too many wrong tokens came from your address. Wait {} seconds."

Next = Annotated[str, QueryParameter(name="next", max_length=MAX_PATH)]


@get("/", opt=requires(None))
async def root() -> Response[str]:
    """Lead to the overview, which leads to the sign-in page without a session."""
    return empty_page(303, Location=ROOT)


@get(SIGN_IN, opt=requires(None))
async def show_sign_in(request: AnyRequest, next_path: Next = ROOT) -> Response[str]:
    """Show the sign-in page."""
    return _page(request, next_path)


@post(SIGN_IN, opt=requires(None), status_code=303)
async def sign_in(request: AnyRequest, state: AppState) -> Response[str]:
    """Exchange a token or a code for a session."""
    form = await read_form(request)
    next_path = form.get("next", ROOT)
    code, secret = form.get("code"), form.get("token", "")
    token = state.sessions.redeem_code(code) if code is not None else _id_of(state, secret)
    if token is None:
        if wait := state.token_check.count_wrong(request.scope):
            headers = {"Retry-After": str(wait)}
            status = status_of("too-many-wrong-tokens")
            return _page(request, next_path, TOO_MANY.format(wait), status=status, headers=headers)
        return _page(request, next_path, WRONG_TOKEN if code is None else WRONG_CODE, status=status_of("invalid-token"))
    if (present := _session(request)) is not None:
        state.sessions.end(present.id)
    _, cookie = state.sessions.create(token, address=client_address(request.scope))
    location = next_path if OWN_PATH.fullmatch(next_path) else ROOT
    return empty_page(303, Location=location, Set_Cookie=session_cookie(request.scope, cookie))


@post(f"{ROOT}/sign-out", opt=requires(None))
async def sign_out(request: AnyRequest, state: AppState) -> Response[str]:
    """End the session."""
    if (present := _session(request)) is not None:
        state.sessions.end(present.id)
    return empty_page(204, HX_Redirect=SIGN_IN, Set_Cookie=session_cookie(request.scope, None))


def _id_of(state: AppState, secret: str) -> str | None:
    token = state.token_check.find(secret)
    return None if token is None else token.id


def _session(request: AnyRequest) -> Session | None:
    found: Session | None = request.scope.get(SESSION)  # type: ignore[assignment]  # our own key
    return found


def _page(
    request: AnyRequest,
    next_path: str,
    problem: str = "",
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response[str]:
    wanted = next_path if OWN_PATH.fullmatch(next_path) else ROOT
    return render_page(
        request, "sign-in.html", status=status, headers=headers, title="Sign in", problem=problem, next_path=wanted
    )
