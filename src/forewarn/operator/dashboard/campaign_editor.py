"""Campaign editor: a form and the TOML beside it, the plan of both while the user types, and the start.

A page sends each change. The response is a stream of lines: the form and the TOML with the same content, the progress
of the plan, and the plan. A page that sends the next change closes the stream, which cancels the planning.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from secrets import token_hex
from typing import Annotated, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from litestar import Response, get, post
from litestar.exceptions import ValidationException
from litestar.params import QueryParameter
from litestar.response import Stream

from forewarn.api import v1
from forewarn.api.campaign_file import write_campaign
from forewarn.api.v1.campaign_spec import spec_request
from forewarn.core.access import Role
from forewarn.core.campaign.calendar import wave_notice
from forewarn.core.campaign.limits import LIMIT_KEYS, PLURAL, resolve_limits
from forewarn.core.campaign.plan import Plan, peak_counts
from forewarn.core.campaign.record import Campaign
from forewarn.core.campaign.spec import CampaignSpec, gate_name
from forewarn.core.duration import format_duration
from forewarn.core.errors import CoreError
from forewarn.core.text import Text
from forewarn.fleet.errors import FleetError
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.campaign_chart import plan_chart
from forewarn.operator.dashboard.campaign_form import form_tables, form_texts
from forewarn.operator.dashboard.campaign_input import CampaignInput, InputError, read_input, unread_input
from forewarn.operator.dashboard.campaign_page import PATH
from forewarn.operator.dashboard.pages import AnyRequest, changed, convert_form, read_form, render_page
from forewarn.operator.errors import OperatorError
from forewarn.operator.lookup import can_see_campaign, find_campaign
from forewarn.operator.parameters import IdempotencyKeyDep
from forewarn.operator.process_worker import ProgressCallback
from forewarn.operator.routes.campaigns import PLAN_PATH, UNLIMITED_KEYS, follow_plan, plannable_spec, start_campaign
from forewarn.operator.routes.fleet_file import NDJSON
from forewarn.operator.state import AppState

EDITOR_PATH = f"{PATH}/{PLAN_PATH}"
"""No campaign can have this name."""

MAX_WAVES = 200
"""How many waves of a plan the page lists."""

MAX_UNPLACED = 50
"""How many groups of unplaced VMs it lists."""

SMALL_INPUT = 4 * 1024
"""Inputs of up to so many characters are read in a thread; larger ones may take long, and need a separate process."""

READ_SECONDS = 10.0
"""How long it may take to read an input there."""

Clone = Annotated[str | None, QueryParameter(name="clone", max_length=128)]

_encode = msgspec.json.Encoder().encode


class StartForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form that starts a planned campaign."""

    toml: str
    reason: Text = ""
    unannounced: bool = False


class LimitUsage(NamedTuple):
    """How many are in waves at one time according to a plan, how many a limit allows, and how many are selected."""

    what: str
    key: str
    peak: int
    limit: int | None
    total: int


@get(EDITOR_PATH, opt=requires(Role.VIEWER))
async def show_editor(request: AnyRequest, state: AppState, caller: CallerDep, clone: Clone = None) -> Response[str]:
    """Show the editor, empty or with the spec of another campaign."""
    original = None if clone is None else find_campaign(state.fleet, caller, clone)
    toml = "" if original is None else write_campaign(_clone(state, caller, original))
    return render_page(
        request,
        "campaign-editor.html",
        title="New campaign",
        editor_path=EDITOR_PATH,
        original=original,
        tables=form_tables(),
        hidden=[f"selection.{key}" for key in UNLIMITED_KEYS] if caller.scopes else [],
        texts=(await asyncio.to_thread(read_input, None, toml)).texts or form_texts({}),
        toml=toml,
    )


def _clone(state: AppState, caller: CallerDep, original: Campaign) -> CampaignSpec:
    """Return the spec of a campaign for a new one: with a free name, and without a start that is in the past."""
    spec, number = original.spec, 2
    while state.fleet.campaigns.is_in_use(spec.name, lambda campaign: can_see_campaign(caller, campaign)):
        spec = msgspec.structs.replace(spec, name=f"{original.name}-{number}")
        number += 1
    is_past = spec.start_at is not None and spec.start_at <= state.fleet.clock.now()
    return msgspec.structs.replace(spec, start_at=None) if is_past else spec


@post(EDITOR_PATH, opt=requires(Role.VIEWER), status_code=200)
async def plan_input(request: AnyRequest, state: AppState, caller: CallerDep) -> Stream:
    """Take what the user has typed, in the form or in the TOML; answer with both, and with the plan."""
    try:
        texts = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise ValidationException(f"malformed form: {error}") from None
    toml = texts.pop("toml", "").replace("\r\n", "\n")
    is_form = texts.pop("source", "") == "form"
    return Stream(_lines(request, state, caller, texts if is_form else None, toml), media_type=NDJSON)


async def _read(state: AppState, texts: dict[str, str] | None, toml: str) -> CampaignInput:
    """Read what the user has typed, without keeping the event loop."""
    if len(toml) + sum(map(len, (texts or {}).values())) <= SMALL_INPUT:
        return await asyncio.to_thread(read_input, texts, toml)
    try:
        return await state.planner.run_in_process(partial(_read_in_process, texts, toml), seconds=READ_SECONDS)
    except TimeoutError:
        problem = f"it takes longer than {READ_SECONDS:.0f} s to read it"
    except EOFError:
        problem = "it could not be read: the process that reads it has ended"
    return unread_input(texts, toml, problem)


def _read_in_process(texts: dict[str, str] | None, toml: str, on_progress: ProgressCallback) -> CampaignInput:
    del on_progress
    return read_input(texts, toml)


async def _lines(
    request: AnyRequest, state: AppState, caller: CallerDep, texts: dict[str, str] | None, toml: str
) -> AsyncIterator[bytes]:
    typed = await _read(state, texts, toml)
    yield _line(toml=typed.toml, texts=typed.texts, error=_shown(typed.error))
    if typed.spec is None:
        return
    try:
        spec = plannable_spec(state, caller, spec_request(typed.spec))
        async with aclosing(follow_plan(state, caller, spec)) as steps:
            async for step in steps:
                if isinstance(step, v1.PlanProgress):
                    yield _line(done=step.done, total=step.total)
                else:
                    yield await _plan_line(request, state, typed, spec, await step.decode())
    except (CoreError, FleetError, OperatorError) as error:
        yield _line(error=_shown(await asyncio.to_thread(typed.locate, error)))


def _line(**values: object) -> bytes:
    return _encode(values) + b"\n"


def _shown(error: InputError | None) -> dict[str, object] | None:
    return None if error is None else error._asdict()


async def _plan_line(
    request: AnyRequest, state: AppState, typed: CampaignInput, spec: CampaignSpec, plan: Plan
) -> bytes:
    now = state.fleet.clock.now()
    usage = await asyncio.to_thread(_limit_usage, spec, plan)
    picture = await asyncio.to_thread(plan_chart, plan, spec.policy, now=now)
    page = render_page(
        request,
        "campaign-plan.html",
        editor_path=EDITOR_PATH,
        toml=typed.toml,
        spec=spec,
        gate=gate_name(spec.policy.gate),
        windows=[str(each) if each.zone else f"{each} {spec.policy.zone}" for each in spec.policy.windows],
        notice=format_duration(wave_notice(spec, state.fleet.scopes.rule_context)),
        plan=plan,
        omitted=picture.omitted,
        usage=usage,
        first=min((wave.announce_at for wave in plan.waves), default=None),
        max_waves=MAX_WAVES,
        max_unplaced=MAX_UNPLACED,
        unplaced_vms=sum(len(each.vms) for each in plan.unplaced),
        request_key=token_hex(16),
    )
    return _line(plan=page.content, chart=picture.chart, now=now)


def _limit_usage(spec: CampaignSpec, plan: Plan) -> tuple[LimitUsage, ...]:
    peak, limits = peak_counts(plan.waves), resolve_limits(spec.policy, plan.totals)
    return tuple(
        LimitUsage(PLURAL[what], key, getattr(peak, what), getattr(limits, what), getattr(plan.totals, what))
        for what, key in LIMIT_KEYS.items()
    )


@post(f"{EDITOR_PATH}/start", opt=requires(Role.OPERATOR))
async def start_planned(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Start the campaign that the page has planned. The service plans it again."""
    form = convert_form(await read_form(request), StartForm)
    typed = await _read(state, None, form.toml)
    if typed.spec is None:
        raise ValidationException("" if typed.error is None else typed.error.message)
    asked = v1.StartCampaign(
        **msgspec.structs.asdict(spec_request(typed.spec)), reason=form.reason, unannounced=form.unannounced
    )
    started = await start_campaign(state, caller, idempotency_key, asked)
    return changed(f"{PATH}/{started.id}")
