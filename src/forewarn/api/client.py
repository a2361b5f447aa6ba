"""HTTP client of the operator API: one method per path, typed responses, pagination and idempotency keys."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from forewarn.api import v1
from forewarn.api.errors import ConnectionClosed, InvalidResponse, NotFound
from forewarn.api.transport import LastPositions, Transport
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event import EventType, Source
from forewarn.core.journal import EntryKind

T = TypeVar("T")

TIMEOUT = 60.0
LONG_TIMEOUT = 3600.0
"""The timeout in seconds of requests that take long, such as an import."""

QueryValue = str | Sequence[str] | None
"""A query parameter, a repeated one, or an omitted one."""

FileFormat = Literal["toml", "json"]


class Page(Protocol):
    """A page of a list, and the start of the next page."""

    @property
    def next(self) -> str | None:
        """The parameter for the next page; None at the end."""
        ...


P = TypeVar("P", bound=Page)


class ServiceAddress(NamedTuple):
    """The URL of a service, and the token and certificates for it."""

    url: str
    token: str
    ca: Path | None = None
    pinned: Path | None = None

    def open(self, timeout: float) -> Transport:
        """Return a transport to the service; raise ApiError if the URL or a certificate is invalid."""
        return Transport(self.url, self.token, timeout=timeout, ca=self.ca, pinned=self.pinned)


class ApiClient:
    """A client of one service. Each call opens a connection, so a client can be kept for any time.

    Every change has an idempotency key, generated if none is given. If the connection ends before the response, the
    client sends the request once more with the same key, and the service does not repeat the change. Each request waits
    for what the client has seen before, if another control node answers it.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float = TIMEOUT, ca: Path | None = None, pinned: Path | None = None
    ) -> None:
        address = ServiceAddress(url, token, ca, pinned)
        self._find: Callable[[], ServiceAddress] = lambda: address
        self._timeout = timeout
        self._transport = address.open(timeout)

    @cached_property
    def _address(self) -> ServiceAddress:
        return self._find()

    @cached_property
    def _transport(self) -> Transport:
        return self._address.open(self._timeout)

    @cached_property
    def _long_transport(self) -> Transport:
        transport = self._address.open(LONG_TIMEOUT)
        transport.positions = self._transport.positions
        return transport

    def keep_positions(self, file: Path) -> None:
        """Wait for what earlier programs with this file have changed, and let later ones wait for this one."""
        self._transport.positions = LastPositions(file)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._transport.url

    # The service.

    def health(self) -> v1.Health:
        """Check that the service is alive."""
        return self._get("/healthz", v1.Health)

    def me(self) -> v1.Principal:
        """Return the name, role and scopes of the token."""
        return self._get("/v1/me", v1.Principal)

    def clock(self) -> v1.Clock:
        """Return the service's time."""
        return self._get("/v1/clock", v1.Clock)

    def advance(self, duration: str | None = None) -> v1.AdvanceResult:
        """Advance a manual clock by a duration, else to the next change of an event.

        It has no idempotency key, so it is never sent twice.
        """
        body = msgspec.json.encode(v1.AdvanceClock(duration=duration, to_next_change=duration is None))
        headers = {"Content-Type": "application/json"}
        return self._decode(self._long_transport.request("POST", "/v1/clock/advance", body, headers), v1.AdvanceResult)

    def set_speed(self, request: v1.SetSpeed) -> v1.Clock:
        """Set the emulator's speed: notices and durations of new events are divided by it."""
        return self._change("POST", "/v1/clock/speed", request, v1.Clock, None)

    # The inventory.

    def scopes(
        self, *, kind: str | None = None, held: bool | None = None, name: str | None = None
    ) -> Iterator[v1.Scope]:
        """Yield every scope, sorted by id. `name` can be a pattern such as `web-*`."""
        for page in self._pages("/v1/scopes", v1.ScopePage, kind=kind, held=_flag_text(held), name=name):
            yield from page.scopes

    def scope(self, id_: str) -> v1.Scope:
        """Return one scope."""
        return self._get(_path("scopes", id_), v1.Scope)

    def add_scope(self, request: v1.AddScope, *, key: str | None = None) -> v1.Scope:
        """Add a scope."""
        return self._change("POST", "/v1/scopes", request, v1.Scope, key)

    def change_scope(self, id_: str, request: v1.ChangeScope, *, key: str | None = None) -> v1.Scope:
        """Change a scope."""
        return self._change("PATCH", _path("scopes", id_), request, v1.Scope, key)

    def remove_scope(self, id_: str, *, force: bool = False, reason: str = "", key: str | None = None) -> None:
        """Remove a scope with its VMs."""
        self._remove(_path("scopes", id_), key, force=_flag_text(force), reason=reason)

    def vms(
        self,
        *,
        scope: str | None = None,
        host: str | None = None,
        name: str | None = None,
        tag: str | None = None,
    ) -> Iterator[v1.Vm]:
        """Yield every VM, by scope and name. `name` can be a pattern such as `web-*`, `tag` a name or `name=value`."""
        for page in self._pages("/v1/vms", v1.VmPage, scope=scope, host=host, name=name, tag=tag):
            yield from page.vms

    def vm(self, name: str) -> v1.Vm:
        """Return one VM, by `scope/name`, or by its bare name if that is unambiguous."""
        return self._get(_path("vms", name), v1.Vm)

    def add_vm(self, request: v1.AddVm, *, key: str | None = None) -> v1.Vm:
        """Add a VM."""
        return self._change("POST", "/v1/vms", request, v1.Vm, key)

    def change_vm(self, name: str, request: v1.ChangeVm, *, key: str | None = None) -> v1.Vm:
        """Change a VM."""
        return self._change("PATCH", _path("vms", name), request, v1.Vm, key)

    def remove_vm(self, name: str, *, force: bool = False, reason: str = "", key: str | None = None) -> None:
        """Remove a VM from the inventory, without an event."""
        self._remove(_path("vms", name), key, force=_flag_text(force), reason=reason)

    def open_socket(self, vm: str) -> v1.Socket:
        """Return the Unix socket on the service's machine through which a program acts as a VM."""
        body, headers = msgspec.json.encode(v1.OpenSocket(vm=vm)), {"Content-Type": "application/json"}
        return self._decode(self._transport.request("POST", "/v1/sockets", body, headers), v1.Socket)

    def diagnosis(self, name: str) -> v1.Diagnosis:
        """Diagnose why a VM does not see its events."""
        return self._get("/v1/diagnosis" + _query(vm=name), v1.Diagnosis)

    def hosts(self, *, name: str | None = None) -> Iterator[v1.Host]:
        """Yield every host, sorted by name. `name` can be a pattern such as `hv-*`."""
        for page in self._pages("/v1/hosts", v1.HostPage, name=name):
            yield from page.hosts

    def host(self, name: str) -> v1.Host:
        """Return one host."""
        return self._get(_path("hosts", name), v1.Host)

    def give_up_host(self, name: str, request: v1.AbandonHost, *, key: str | None = None) -> v1.AbandonedHost:
        """Turn the begun work of a host that is lost to unknown."""
        return self._change("POST", _path("hosts", name) + "/gone", request, v1.AbandonedHost, key)

    def export_fleet(self, format_: FileFormat = "toml") -> Iterator[bytes]:
        """Yield the fleet file in chunks."""
        return self._long_transport.chunks("GET", "/v1/fleet" + _query(format=format_), {})

    def import_fleet(
        self, text: bytes, format_: FileFormat = "toml", *, dry_run: bool = False, prune: bool = False
    ) -> Iterator[v1.ImportProgress]:
        """Change the fleet to match a fleet file; yield the progress, and last the result."""
        query = _query(format=format_, dry_run=_flag_text(dry_run), prune=_flag_text(prune))
        headers = {"Content-Type": f"application/{format_}", "Accept": "application/x-ndjson"}
        for line in self._long_transport.lines("POST", f"/v1/fleet/import{query}", text, headers):
            yield self._decode(line, v1.ImportProgress)

    def cancel_import(self) -> v1.CanceledImport:
        """Cancel the running import, and wait for its end."""
        return self._decode(self._transport.request("DELETE", "/v1/fleet/import", None, {}), v1.CanceledImport)

    # Events.

    def events(
        self,
        *,
        scope: str | None = None,
        vm: str | None = None,
        host: str | None = None,
        type_: EventType | None = None,
        status: Literal["Scheduled", "Started"] | None = None,
        source: Source | None = None,
    ) -> Iterator[v1.Event]:
        """Yield every open event that matches all filters."""
        params = {"scope": scope, "vm": vm, "host": host, "status": status}
        kinds = {"type": type_ and type_.value, "source": source and source.value}
        for page in self._pages("/v1/events", v1.EventPage, **params, **kinds):
            yield from page.events

    def event(self, id_: str) -> v1.EventDetail:
        """Return one event, open or ended, with its journal entries."""
        return self._get(_path("events", id_), v1.EventDetail)

    def schedule(self, request: v1.ScheduleEvents, *, key: str | None = None) -> v1.ScheduleResponse:
        """Schedule events."""
        return self._change("POST", "/v1/events", request, v1.ScheduleResponse, key)

    def restart(self, request: v1.Operate | v1.Restart, *, key: str | None = None) -> v1.ScheduleResponse:
        """Restart a VM."""
        return self._change("POST", "/v1/operations/restart", request, v1.ScheduleResponse, key)

    def redeploy(self, request: v1.Operate | v1.Restart, *, key: str | None = None) -> v1.ScheduleResponse:
        """Redeploy a VM to another host."""
        return self._change("POST", "/v1/operations/redeploy", request, v1.ScheduleResponse, key)

    def delete(self, request: v1.Operate, *, key: str | None = None) -> v1.ScheduleResponse:
        """Delete a VM: with an event if it has a terminate notice, else at once."""
        return self._change("POST", "/v1/operations/delete", request, v1.ScheduleResponse, key)

    def evict(self, request: v1.Evict, *, key: str | None = None) -> v1.ScheduleResponse:
        """Evict a low-priority VM."""
        return self._change("POST", "/v1/operations/evict", request, v1.ScheduleResponse, key)

    def fail(self, request: v1.Fail, *, key: str | None = None) -> v1.ScheduleResponse:
        """Report a hardware failure."""
        return self._change("POST", "/v1/operations/fail", request, v1.ScheduleResponse, key)

    def predict_failure(self, request: v1.PredictFailure, *, key: str | None = None) -> v1.ScheduleResponse:
        """Announce a predicted hardware failure, days ahead."""
        return self._change("POST", "/v1/operations/predict-failure", request, v1.ScheduleResponse, key)

    def cancel(self, id_: str, request: v1.CancelEvent, *, key: str | None = None) -> v1.EventDetail:
        """Cancel a Scheduled event."""
        return self._change("POST", _path("events", id_) + "/cancel", request, v1.EventDetail, key)

    def approve(self, id_: str, request: v1.ApproveEvent, *, key: str | None = None) -> v1.EventDetail:
        """Approve an event on behalf of a VM."""
        return self._change("POST", _path("events", id_) + "/approve", request, v1.EventDetail, key)

    def retry(self, id_: str, request: v1.RetryImpact, *, key: str | None = None) -> v1.EventDetail:
        """Retry failed or unknown work."""
        return self._change("POST", _path("events", id_) + "/retry", request, v1.EventDetail, key)

    def resolve(self, id_: str, request: v1.ResolveImpact, *, key: str | None = None) -> v1.EventDetail:
        """Resolve failed or unknown work as done or given up."""
        return self._change("POST", _path("events", id_) + "/resolve", request, v1.EventDetail, key)

    def holds(self) -> v1.Holds:
        """Return the holds."""
        return self._get("/v1/holds", v1.Holds)

    def hold(self, request: v1.CreateHold, *, key: str | None = None) -> v1.Holds:
        """Stop planned maintenance from starting."""
        return self._change("POST", "/v1/holds", request, v1.Holds, key)

    def release(self, request: v1.ReleaseHold, *, key: str | None = None) -> v1.Holds:
        """End a hold."""
        return self._change("POST", "/v1/holds/release", request, v1.Holds, key)

    # Faults.

    def faults(self) -> v1.Faults:
        """Return the current faults."""
        return self._get("/v1/faults", v1.Faults)

    def set_fault(self, request: v1.SetFault, *, key: str | None = None) -> v1.Fault:
        """Set a fault in the emulator."""
        return self._change("POST", "/v1/faults", request, v1.Fault, key)

    def clear_fault(self, id_: str, *, reason: str = "", key: str | None = None) -> None:
        """Clear a fault."""
        self._remove(_path("faults", id_), key, reason=reason)

    def clear_faults(self, *, reason: str = "", key: str | None = None) -> v1.Faults:
        """Clear all faults and return them."""
        path = "/v1/faults" + _query(reason=reason)
        return self._decode(self._send_with_retry("DELETE", path, None, {"Accept": "application/json"}, key), v1.Faults)

    # Scenarios.

    def scenarios(self) -> v1.Scenarios:
        """Return the scenarios that the emulator can play."""
        return self._get("/v1/scenarios", v1.Scenarios)

    def play_scenario(self, request: v1.PlayScenario, *, key: str | None = None) -> v1.ScenarioRun:
        """Start a scenario in the emulator; `follow_scenario_run` waits for its result."""
        return self._change("POST", "/v1/scenario-runs", request, v1.ScenarioRun, key)

    def scenario_runs(self) -> v1.ScenarioRunList:
        """Return the last runs of scenarios, newest first."""
        return self._get("/v1/scenario-runs", v1.ScenarioRunList)

    def scenario_run(self, id_: str, *, after_revision: int | None = None) -> v1.ScenarioRun:
        """Return a run; after a revision, wait some seconds for a newer one."""
        revision = None if after_revision is None else str(after_revision)
        return self._get(_path("scenario-runs", id_) + _query(after_revision=revision), v1.ScenarioRun)

    def follow_scenario_run(self, id_: str) -> Iterator[v1.ScenarioRun]:
        """Yield a run at once and after every change, the last time when it has ended."""
        run = self.scenario_run(id_)
        yield run
        while run.verdict is None:
            before, run = run.revision, self.scenario_run(id_, after_revision=run.revision)
            if run.revision > before:
                yield run

    def cancel_scenario(self, id_: str, request: v1.CancelScenario, *, key: str | None = None) -> v1.ScenarioRun:
        """Cancel a run, and return it when it has removed what it added."""
        path = _path("scenario-runs", id_) + "/cancel"
        return self._change("POST", path, request, v1.ScenarioRun, key)

    # Reports.

    def reports(self) -> v1.ReportList:
        """Return the reports of the emulator without their findings, newest first."""
        return self._get("/v1/reports", v1.ReportList)

    def report(self, id_: str) -> v1.Report:
        """Return a report with its findings."""
        return self._get(_path("reports", id_), v1.Report)

    def add_report(self, request: v1.AddReport, *, key: str | None = None) -> v1.Report:
        """Add a report to the emulator."""
        return self._change("POST", "/v1/reports", request, v1.Report, key)

    # Campaigns.

    def campaigns(self, *, state: CampaignState | None = None, only_open: bool = False) -> Iterator[v1.Campaign]:
        """Yield every campaign, newest first."""
        params = {"state": state and state.value, "open": _flag_text(only_open)}
        for page in self._pages("/v1/campaigns", v1.CampaignPage, **params):
            yield from page.campaigns

    def campaign(self, name_or_id: str) -> v1.Campaign:
        """Return one campaign, by its id, or by its name while it is open."""
        return self._get(_path("campaigns", name_or_id), v1.Campaign)

    def waves(
        self, name_or_id: str, *, scope: str | None = None, state: v1.WaveState | None = None
    ) -> Iterator[v1.CampaignWave]:
        """Yield the waves of a campaign, sorted by scope."""
        path = _path("campaigns", name_or_id) + "/waves"
        for page in self._pages(path, v1.WavePage, scope=scope, state=state and state.value):
            yield from page.waves

    def plan_campaign(self, request: v1.CampaignRequest) -> Iterator[v1.PlanProgress]:
        """Plan a campaign; yield the progress, and last the plan. Nothing is announced."""
        headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        body = msgspec.json.encode(request)
        for line in self._long_transport.lines("POST", "/v1/campaigns/plan", body, headers):
            yield self._decode(line, v1.PlanProgress)

    def start_campaign(self, request: v1.StartCampaign, *, key: str | None = None) -> v1.Campaign:
        """Plan and start a campaign; planning takes a while for a large fleet."""
        return self._change("POST", "/v1/campaigns", request, v1.Campaign, key, self._long_transport)

    def pause_campaign(self, name_or_id: str, request: v1.PauseCampaign, *, key: str | None = None) -> v1.Campaign:
        """Pause a campaign: no further wave starts."""
        return self._change("POST", _path("campaigns", name_or_id) + "/pause", request, v1.Campaign, key)

    def resume_campaign(self, name_or_id: str, request: v1.ResumeCampaign, *, key: str | None = None) -> v1.Campaign:
        """Resume a paused or halted campaign."""
        return self._change("POST", _path("campaigns", name_or_id) + "/resume", request, v1.Campaign, key)

    def abort_campaign(self, name_or_id: str, request: v1.AbortCampaign, *, key: str | None = None) -> v1.Campaign:
        """Abort a campaign. Scheduled events are canceled; started events continue."""
        return self._change("POST", _path("campaigns", name_or_id) + "/abort", request, v1.Campaign, key)

    def retry_wave(self, name_or_id: str, request: v1.RetryWave, *, key: str | None = None) -> v1.Campaign:
        """Retry the failed wave of a scope."""
        return self._change("POST", _path("campaigns", name_or_id) + "/retry", request, v1.Campaign, key)

    def skip_wave(self, name_or_id: str, request: v1.SkipWave, *, key: str | None = None) -> v1.Campaign:
        """Skip the failed or waiting wave of a scope."""
        return self._change("POST", _path("campaigns", name_or_id) + "/skip", request, v1.Campaign, key)

    # The journal.

    def journal(
        self,
        *,
        scope: str | None = None,
        vm: str | None = None,
        event: str | None = None,
        campaign: str | None = None,
        actions: Sequence[EntryKind] = (),
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = False,
        after: int | None = None,
    ) -> Iterator[v1.JournalEntry]:
        """Yield the journal entries that match all filters. `actions` matches any of its kinds; empty matches all.

        `after`: only entries after this position, in the requested order.
        """
        named = {"scope": scope, "vm": vm, "event": event, "campaign": campaign, "actor": actor}
        times = {
            "since": _moment_text(since),
            "until": _moment_text(until),
            "after": None if after is None else str(after),
        }
        kinds = [kind.value for kind in actions] or None
        params = {**named, **times, "newest_first": _flag_text(newest_first)}
        for page in self._pages("/v1/journal", v1.JournalPage, action=kinds, **params):
            yield from page.entries

    def watch(
        self, *, after: int | None = None, scope: str | None = None, campaign: str | None = None
    ) -> Iterator[v1.JournalEntry | None]:
        """Yield every journal entry as it is written, after a position, or from now on.

        None is a heartbeat of the service. After ConnectionClosed, continue with the last position.
        """
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": str(after)})
        for line in self._transport.lines("GET", "/v1/watch" + _query(scope=scope, campaign=campaign), None, headers):
            if line.startswith(b"data:"):
                yield self._decode(line.removeprefix(b"data:").strip(), v1.JournalEntry)
            elif line.startswith(b":"):
                yield None
        raise ConnectionClosed(self.url)

    # Tokens.

    def tokens(self) -> v1.TokenPage:
        """Return all tokens."""
        return self._get("/v1/tokens", v1.TokenPage)

    def create_token(self, request: v1.CreateToken, *, key: str | None = None) -> v1.NewToken:
        """Create a token."""
        return self._change("POST", "/v1/tokens", request, v1.NewToken, key)

    def revoke_token(self, id_: str, *, force: bool = False, reason: str = "", key: str | None = None) -> None:
        """Revoke a token; the last admin token for all scopes only by force."""
        self._remove(_path("tokens", id_), key, force=_flag_text(force or None), reason=reason)

    def create_calendar(self, *, key: str | None = None) -> v1.NewCalendar:
        """Create the secret address of the token's calendar; a former one stops working."""
        headers = {"Accept": "application/json"}
        return self._decode(self._send_with_retry("POST", "/v1/calendar", None, headers, key), v1.NewCalendar)

    def revoke_calendar(self, *, key: str | None = None) -> None:
        """Revoke the address of the token's calendar."""
        self._remove("/v1/calendar", key)

    # Requests.

    def _get(self, path: str, response_type: type[T]) -> T:
        return self._decode(self._transport.request("GET", path, None, {"Accept": "application/json"}), response_type)

    def _pages(self, path: str, response_type: type[P], **params: QueryValue) -> Iterator[P]:
        page = self._get(path + _query(**params), response_type)
        yield page
        while page.next is not None:
            page = self._get(path + _query(**{**params, "after": page.next}), response_type)
            yield page

    def _change(
        self,
        method: str,
        path: str,
        request: msgspec.Struct,
        response_type: type[T],
        key: str | None,
        transport: Transport | None = None,
    ) -> T:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        body = msgspec.json.encode(request)
        return self._decode(self._send_with_retry(method, path, body, headers, key, transport), response_type)

    def _remove(self, path: str, key: str | None, **params: str | None) -> None:
        self._send_with_retry("DELETE", path + _query(**params), None, {}, key)

    def _send_with_retry(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        key: str | None,
        transport: Transport | None = None,
    ) -> bytes:
        transport = transport or self._transport
        headers = {**headers, "Idempotency-Key": key or str(uuid.uuid4())}
        try:
            return transport.request(method, path, body, headers)
        except ConnectionClosed:
            return transport.request(method, path, body, headers)

    def _decode(self, content: bytes, response_type: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=response_type)
        except msgspec.MsgspecError as wrong:
            raise InvalidResponse(self.url, str(wrong)) from wrong


class LocalApiClient(ApiClient):
    """A client of a service on this machine. The first request calls `find`, and raises its errors."""

    def __init__(self, find: Callable[[], ServiceAddress], *, timeout: float = TIMEOUT) -> None:
        self._find = find
        self._timeout = timeout


def _path(kind: str, name: str) -> str:
    """Return the path of one object. An empty name is refused, because its path would be that of the whole list."""
    if not name:
        code = f"{kind.removesuffix('s')}-not-found"
        raise NotFound(404, code, f"none of the {kind} has an empty name", {})
    return f"/v1/{kind}/{quote(name, safe='/' if kind == 'vms' else '')}"


def _query(**params: QueryValue) -> str:
    given = {name: value for name, value in params.items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _flag_text(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


def _moment_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
