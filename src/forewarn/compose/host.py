"""Starts the process of one host: its records on disk and from the cell, its platform, its guest endpoint.

Needs the extra `[cluster]`.
"""

import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forewarn import __version__
from forewarn.agent.http_server import TEXT, HttpServer, Request, Response, error_response
from forewarn.api import local_service
from forewarn.clock import SystemClock
from forewarn.compose.data_directory import PRESET_FILE, claim_directory
from forewarn.compose.guests import GuestListeners, serve_guests
from forewarn.compose.initial_fleet import StartupReporter
from forewarn.compose.operators import OTHER_ADDRESS_ADVICE
from forewarn.compose.platforms import WORK_DIRECTORY, HostSet, create_platform, create_policy
from forewarn.files import FileLock, check_links, prepare_directory
from forewarn.fleet.host.ports import PORTS_FILE
from forewarn.fleet.host.service import HostFleet
from forewarn.guest.vm_listeners import ListenFailed
from forewarn.platform.command import CommandPlatform
from forewarn.settings.paths import user_data_directory
from forewarn.settings.reload import SettingsChange, compare_settings, merge_reloadable
from forewarn.settings.schema import PRODUCTION, Settings
from forewarn.settings.types import local_address
from forewarn.store.nats.host_store import HostStore
from forewarn.store.nats.record_cache import FILE_NAME, SUFFIXES
from forewarn.store.sqlite.directory import LOCK_FILE, lock_directory, wrap_os_errors

HOST_NAMES = (
    LOCK_FILE,
    PRESET_FILE,
    PORTS_FILE,
    local_service.TOKEN_FILE,
    WORK_DIRECTORY,
    *(f"{FILE_NAME}{suffix}" for suffix in SUFFIXES),
)
"""Everything in the directory of a host."""


class RunningHost(msgspec.Struct, frozen=True, kw_only=True):
    """The running process of a host."""

    fleet: HostFleet
    directory: Path
    url: str
    """Where /healthz, /readyz and /metrics are."""
    guests: GuestListeners
    reload: Callable[[Settings], SettingsChange]


@asynccontextmanager
async def run_host(
    settings: Settings, *, environ: Mapping[str, str], reporter: StartupReporter
) -> AsyncIterator[RunningHost]:
    """Start the process of a host; when the context ends, stop it in reverse order."""
    host = settings.host or ""
    directory = (settings.data or user_data_directory(environ)).absolute()
    check_links(directory, HOST_NAMES)
    async with AsyncExitStack() as stack:
        stack.enter_context(_locked(directory))
        claim_directory(directory, PRODUCTION, reporter)
        local_service.ensure_token(directory)
        records = await HostStore.open(settings.nats, host, directory)
        stack.push_async_callback(records.aclose)
        clock, hosts = SystemClock(), HostSet()
        platform = create_platform(settings, clock, hosts, directory)
        fleet = await stack.enter_async_context(
            HostFleet.run(
                host=host,
                records=records,
                platform=platform,
                clock=clock,
                policy=create_policy(settings),
                directory=directory,
            )
        )
        for view in fleet.replica.views():
            if view.scope is not None:
                hosts.add(view.scope)
        fleet.scopes.roster_observers.append(hosts.observe)
        if settings.listen is not None:
            fleet.ports.address = settings.listen.host
        guests = await stack.enter_async_context(
            serve_guests(settings, fleet, reporter, operator_port=settings.operator.port, host=host)
        )
        health = HostHealth(fleet, guests, local_service.read_token(directory / local_service.TOKEN_FILE))
        server = HttpServer(health.respond)
        stack.push_async_callback(server.aclose)
        try:
            port = await server.listen(settings.operator.host, settings.operator.port)
        except OSError as error:
            where = settings.operator
            raise ListenFailed(where.host, where.port, "health and metrics", error, OTHER_ADDRESS_ADVICE) from error
        current = settings

        def reload(read: Settings) -> SettingsChange:
            nonlocal current
            changed = compare_settings(current, read)
            current = merge_reloadable(current, read)
            guests.server.set_request_rate(current.guest.requests_per_second)
            if isinstance(platform, CommandPlatform):
                platform.reload(current.command)
            return changed

        url = f"http://{local_address(settings.operator.host, port)}"
        yield RunningHost(fleet=fleet, directory=directory, url=url, guests=guests, reload=reload)


@contextmanager
def _locked(directory: Path) -> Iterator[FileLock]:
    with wrap_os_errors(directory):
        prepare_directory(directory, (LOCK_FILE,))
        lock = lock_directory(directory)
    try:
        yield lock
    finally:
        lock.release()


class HostHealth:
    """Answers /healthz and /readyz to anybody, and /metrics to the holder of the token in the data directory."""

    def __init__(self, fleet: HostFleet, guests: GuestListeners, token: str) -> None:
        self._fleet = fleet
        self._guests = guests
        self._token = token
        self._registry = CollectorRegistry()
        self._registry.register(HostCollector(fleet, guests))
        ProcessCollector(registry=self._registry)

    def respond(self, request: Request) -> Response:
        """Answer a request."""
        if request.method not in ("GET", "HEAD"):
            return error_response(405, "only GET is allowed", ("Allow", "GET, HEAD"))
        match request.path:
            case "/healthz":
                return _json(200, {"status": "ok", "version": __version__})
            case "/readyz":
                problem = self._guests.problem() or self._fleet.disk_problem
                found = [*([] if problem is None else [problem]), *self._fleet.health.limitations()]
                age = self._fleet.age
                content = {
                    "ready": problem is None,
                    "problems": found,
                    "host": self._fleet.host,
                    "term": self._fleet.client.term,
                    "age_seconds": None if age is None else round(age.total_seconds(), 3),
                    "clock_offset_seconds": self._fleet.clock_offset.seconds,
                }
                return _json(200 if problem is None else 503, content)
            case "/metrics":
                given = request.headers.get("authorization", "").removeprefix("Bearer ")
                if not hmac.compare_digest(given.encode(), self._token.encode()):
                    return error_response(
                        401, "the token of the data directory is needed", ("WWW-Authenticate", "Bearer")
                    )
                return Response(200, generate_latest(self._registry), TEXT)
            case _:
                return error_response(404, "a host serves /healthz, /readyz and /metrics")


def _json(status: int, content: Mapping[str, object]) -> Response:
    return Response(status, json.dumps(content).encode() + b"\n")


class HostCollector(Collector):
    """Collects the metrics of a host."""

    def __init__(self, fleet: HostFleet, guests: GuestListeners) -> None:
        self._fleet = fleet
        self._guests = guests

    def describe(self) -> Iterator[Metric]:
        """Return the metrics, whose names are always the same."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        fleet, counters = self._fleet, self._guests.counters
        build = GaugeMetricFamily("forewarn_build_info", "The running version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        age, control_age = fleet.age, fleet.control_age
        yield GaugeMetricFamily(
            "forewarn_host_replica_age_seconds",
            "How old the data may be from which guests get responses.",
            float("inf") if age is None else age.total_seconds(),
        )
        yield GaugeMetricFamily(
            "forewarn_host_control_age_seconds",
            "How long ago a control node last answered.",
            float("inf") if control_age is None else control_age,
        )
        if (offset := fleet.clock_offset.seconds) is not None:
            yield GaugeMetricFamily(
                "forewarn_clock_offset_seconds", "How far the clock is ahead of the control nodes.", offset
            )
        yield GaugeMetricFamily("forewarn_host_term", "The term of this process; 0 if it has none.", fleet.client.term)
        yield GaugeMetricFamily("forewarn_vms", "VMs on this host.", fleet.vms)
        yield GaugeMetricFamily("forewarn_host_impacts", "Impacts that are being carried out.", fleet.impacts.waiting)
        yield GaugeMetricFamily("forewarn_guest_connections", "Open connections of guests.", counters.connections)
        responses = CounterMetricFamily("forewarn_guest_answers", "Responses to guests by status.", labels=["status"])
        for status, number in sorted(counters.responses.items()):
            responses.add_metric([str(status)], number)
        yield responses
