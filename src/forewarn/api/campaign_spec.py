"""A campaign as it is asked for, and as the rules take it: there and back."""

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


def spec_of(asked: v1.AskedCampaign) -> CampaignSpec:
    """Return what the rules are asked; Invalid says which value breaks which of them."""
    return CampaignSpec(
        name=asked.name,
        type=EventType(asked.type),
        selection=_selection(asked.selection),
        duration=_span(asked.duration),
        description=asked.description,
        policy=_policy(asked.policy),
        start_at=None if asked.start_at is None else _utc(asked.start_at, "start_at"),
    )


def _selection(asked: v1.CampaignSelection) -> Selection:
    return Selection(
        scopes=tuple(asked.scopes),
        hosts=tuple(asked.hosts),
        tags=asked.tags,
        all=asked.all,
        exclude_scopes=tuple(asked.exclude_scopes),
        exclude_hosts=tuple(asked.exclude_hosts),
        exclude_vms=tuple(asked.exclude_vms),
        exclude_tags=asked.exclude_tags,
    )


def _policy(asked: v1.CampaignPolicy) -> CampaignPolicy:
    return CampaignPolicy(
        waves=asked.waves,
        gap=parse_duration(asked.gap),
        notice=_span(asked.notice),
        expected=_span(asked.expected),
        scopes_at_once=_limit(asked.scopes_at_once),
        hosts_at_once=_limit(asked.hosts_at_once),
        vms_at_once=_limit(asked.vms_at_once),
        windows=tuple(map(_window, asked.windows)),
        blackouts=tuple(map(_blackout, asked.blackouts)),
        zone=asked.zone,
        must_end_inside=asked.must_end_inside,
        gate=_gate(asked.gate),
        gate_patience=parse_duration(asked.gate_patience),
        halt_after=asked.halt_after,
        advance=asked.advance,
    )


def _window(asked: v1.CampaignWindow) -> Window:
    return Window(days=tuple(asked.days), start=asked.start, end=asked.end, zone=asked.zone or "")


def _blackout(asked: v1.CampaignBlackout) -> Blackout:
    start, end = _utc(asked.start, "a black-out's start"), _utc(asked.end, "a black-out's end")
    return Blackout(start=start, end=end, why=asked.why)


def _gate(asked: str | v1.HttpGate | None) -> str | HttpCheck | None:
    if not isinstance(asked, v1.HttpGate):
        return asked
    with _within("policy.gate"):
        return HttpCheck(
            url=asked.url,
            expect_status=asked.expect_status,
            timeout=parse_duration(asked.timeout),
            retries=asked.retries,
            pause=parse_duration(asked.pause),
        )


@contextmanager
def _within(key: str) -> Iterator[None]:
    """Within this context, what the rules refuse is said with the key that it stands under."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{key}: {error}") from None


def _limit(asked: int | str | None) -> Limit | None:
    return None if asked is None else Limit.parse(asked)


def _span(asked: str | None) -> timedelta | None:
    return None if asked is None else parse_duration(asked)


def _utc(moment: datetime, what: str) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{what} {moment.isoformat()} is no moment of UTC") from None


def shown_spec(spec: CampaignSpec) -> v1.CampaignSpec:
    """Return a campaign as it was asked for."""
    return v1.CampaignSpec(
        name=spec.name,
        type=v1.CampaignType(spec.type.value),
        selection=_shown_selection(spec.selection),
        duration=_written(spec.duration),
        description=spec.description,
        policy=_shown_policy(spec.policy),
        start_at=spec.start_at,
    )


def _shown_selection(selection: Selection) -> v1.ShownSelection:
    return v1.ShownSelection(
        scopes=selection.scopes,
        hosts=selection.hosts,
        tags=selection.tags,
        all=selection.all,
        exclude_scopes=selection.exclude_scopes,
        exclude_hosts=selection.exclude_hosts,
        exclude_vms=selection.exclude_vms,
        exclude_tags=selection.exclude_tags,
    )


def _shown_policy(policy: CampaignPolicy) -> v1.ShownPolicy:
    return v1.ShownPolicy(
        waves=policy.waves,
        gap=format_duration(policy.gap),
        notice=_written(policy.notice),
        expected=_written(policy.expected),
        scopes_at_once=_shown_limit(policy.scopes_at_once),
        hosts_at_once=_shown_limit(policy.hosts_at_once),
        vms_at_once=_shown_limit(policy.vms_at_once),
        windows=tuple(
            v1.ShownWindow(days=each.days, start=each.start, end=each.end, zone=each.zone or None)
            for each in policy.windows
        ),
        blackouts=tuple(v1.ShownBlackout(start=each.start, end=each.end, why=each.why) for each in policy.blackouts),
        zone=policy.zone,
        must_end_inside=policy.must_end_inside,
        gate=_shown_gate(policy.gate),
        gate_patience=format_duration(policy.gate_patience),
        halt_after=policy.halt_after,
        advance=policy.advance,
    )


def _shown_gate(gate: str | HttpCheck | None) -> str | v1.ShownGate | None:
    if not isinstance(gate, HttpCheck):
        return gate
    return v1.ShownGate(
        url=gate.url,
        expect_status=gate.expect_status,
        timeout=format_duration(gate.timeout),
        retries=gate.retries,
        pause=format_duration(gate.pause),
    )


def _shown_limit(limit: Limit | None) -> int | str | None:
    return None if limit is None else limit.number or str(limit)


def _written(span: timedelta | None) -> str | None:
    return None if span is None else format_duration(span)
