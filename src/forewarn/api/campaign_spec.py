"""Map campaign specs between the API's types and the core's."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from forewarn.api import v1
from forewarn.core.campaign.spec import (
    Blackout,
    CampaignPolicy,
    CampaignSpec,
    HttpCheck,
    Limit,
    Selection,
    Window,
)
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType


def spec_from_request(request: v1.CampaignRequest) -> CampaignSpec:
    """Return what the rules are asked; Invalid says which value breaks which of them."""
    return CampaignSpec(
        name=request.name,
        type=EventType(request.type),
        selection=_selection(request.selection),
        duration=_parse_duration(request.duration),
        description=request.description,
        policy=_policy(request.policy),
        start_at=None if request.start_at is None else _utc(request.start_at, "start_at"),
    )


def _selection(request: v1.CampaignSelection) -> Selection:
    return Selection(
        scopes=tuple(request.scopes),
        hosts=tuple(request.hosts),
        tags=request.tags,
        all=request.all,
        exclude_scopes=tuple(request.exclude_scopes),
        exclude_hosts=tuple(request.exclude_hosts),
        exclude_vms=tuple(request.exclude_vms),
        exclude_tags=request.exclude_tags,
    )


def _policy(request: v1.CampaignPolicy) -> CampaignPolicy:
    return CampaignPolicy(
        waves=request.waves,
        gap=parse_duration(request.gap),
        notice=_parse_duration(request.notice),
        expected=_parse_duration(request.expected),
        scopes_at_once=_limit(request.scopes_at_once),
        hosts_at_once=_limit(request.hosts_at_once),
        vms_at_once=_limit(request.vms_at_once),
        windows=tuple(map(_window, request.windows)),
        blackouts=tuple(map(_blackout, request.blackouts)),
        zone=request.zone,
        must_end_inside=request.must_end_inside,
        gate=_gate(request.gate),
        gate_patience=parse_duration(request.gate_patience),
        halt_after=request.halt_after,
        advance=request.advance,
    )


def _window(request: v1.CampaignWindow) -> Window:
    return Window(days=tuple(request.days), start=request.start, end=request.end, zone=request.zone or "")


def _blackout(request: v1.CampaignBlackout) -> Blackout:
    start, end = _utc(request.start, "a black-out's start"), _utc(request.end, "a black-out's end")
    return Blackout(start=start, end=end, why=request.why)


def _gate(request: str | v1.HttpGate | None) -> str | HttpCheck | None:
    if not isinstance(request, v1.HttpGate):
        return request
    with _error_key("policy.gate"):
        return HttpCheck(
            url=request.url,
            expect_status=request.expect_status,
            timeout=parse_duration(request.timeout),
            retries=request.retries,
            pause=parse_duration(request.pause),
        )


@contextmanager
def _error_key(key: str) -> Iterator[None]:
    """Within this context, what the rules refuse is said with the key that it stands under."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{key}: {error}") from None


def _limit(value: int | str | None) -> Limit | None:
    return None if value is None else Limit.parse(value)


def _parse_duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)


def _utc(moment: datetime, what: str) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{what} {moment.isoformat()} is no moment of UTC") from None


def spec_view(spec: CampaignSpec) -> v1.CampaignSpec:
    """Return a campaign as it was asked for."""
    return v1.CampaignSpec(
        name=spec.name,
        type=v1.CampaignType(spec.type.value),
        selection=_selection_view(spec.selection),
        duration=_duration_text(spec.duration),
        description=spec.description,
        policy=_policy_view(spec.policy),
        start_at=spec.start_at,
    )


def _selection_view(selection: Selection) -> v1.SelectionView:
    return v1.SelectionView(
        scopes=selection.scopes,
        hosts=selection.hosts,
        tags=selection.tags,
        all=selection.all,
        exclude_scopes=selection.exclude_scopes,
        exclude_hosts=selection.exclude_hosts,
        exclude_vms=selection.exclude_vms,
        exclude_tags=selection.exclude_tags,
    )


def _policy_view(policy: CampaignPolicy) -> v1.PolicyView:
    return v1.PolicyView(
        waves=policy.waves,
        gap=format_duration(policy.gap),
        notice=_duration_text(policy.notice),
        expected=_duration_text(policy.expected),
        scopes_at_once=_limit_value(policy.scopes_at_once),
        hosts_at_once=_limit_value(policy.hosts_at_once),
        vms_at_once=_limit_value(policy.vms_at_once),
        windows=tuple(
            v1.WindowView(days=each.days, start=each.start, end=each.end, zone=each.zone or None)
            for each in policy.windows
        ),
        blackouts=tuple(v1.BlackoutView(start=each.start, end=each.end, why=each.why) for each in policy.blackouts),
        zone=policy.zone,
        must_end_inside=policy.must_end_inside,
        gate=_gate_view(policy.gate),
        gate_patience=format_duration(policy.gate_patience),
        halt_after=policy.halt_after,
        advance=policy.advance,
    )


def _gate_view(gate: str | HttpCheck | None) -> str | v1.GateView | None:
    if not isinstance(gate, HttpCheck):
        return gate
    return v1.GateView(
        url=gate.url,
        expect_status=gate.expect_status,
        timeout=format_duration(gate.timeout),
        retries=gate.retries,
        pause=format_duration(gate.pause),
    )


def _limit_value(limit: Limit | None) -> int | str | None:
    return None if limit is None else limit.number or str(limit)


def _duration_text(span: timedelta | None) -> str | None:
    return None if span is None else format_duration(span)
