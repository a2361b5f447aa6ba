"""Operator listener: binds its port, loads the TLS certificate, and serves the operator API."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from forewarn.compose.guests import GuestListeners
from forewarn.compose.remote_guests import RemoteGuests
from forewarn.core.base_error import BaseError
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import SPARE_FILES, file_limit
from forewarn.guest.vm_listeners import ListenFailed
from forewarn.settings.schema import ImportSettings, Settings, TlsSettings
from forewarn.settings.types import ListenAddress, local_address

if TYPE_CHECKING:
    from forewarn.operator.scenario_player import LoadPlayer

_preparing = Lock()
"""Held while the app is imported and created. Threads that import packages with circular imports at the same time, as
in an exam of several scenarios, can see half of a module."""

OPERATOR_SHARE = 0.25
"""The share of the open files that connections of operators can use: guests always find the others."""

ADDRESS_SHARE = 0.75
"""The share of these connections that one address can have: it cannot shut out the others."""

OTHER_ADDRESS_ADVICE = "choose another address with --operator HOST:PORT (port 0: any free port)"


class InvalidCertificate(BaseError):
    """The certificate or its key cannot be used."""

    template = "cannot serve with tls.certificate {tls.certificate} and tls.key {tls.key}: {why}"
    tls: TlsSettings
    why: str


@contextmanager
def bind_listener(endpoint: ListenAddress) -> Iterator[socket.socket]:
    """Bind the operator port before anything else, so that a port in use is detected early."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((endpoint.host, endpoint.port))
            listener.listen()
        except OSError as error:
            raise ListenFailed(endpoint.host, endpoint.port, "the operator API", error, OTHER_ADDRESS_ADVICE) from error
        yield listener


class OperatorLimits(NamedTuple):
    """How many connections operators may have open, and how many of them one address."""

    total: int
    per_address: int


def operator_limits(settings: Settings) -> OperatorLimits:
    """Return the limits of the settings, or lower ones if the process may not open that many files."""
    total = min(settings.operator_connections, max(1, int((file_limit() - SPARE_FILES) * OPERATOR_SHARE)))
    per_address = min(settings.operator_connections_per_address, max(1, int(total * ADDRESS_SHARE)))
    return OperatorLimits(total, per_address)


class OperatorServer(NamedTuple):
    """The running operator API."""

    create_code: Callable[[str], str]
    """Returns a code for a sign-in link, given the id of the token whose rights it gives."""
    stop_scenarios: Callable[[], Awaitable[None]]
    """Stops the scenario that plays, which uses the API to remove what it added."""


@asynccontextmanager
async def serve_operators(
    fleet: Fleet,
    guests: GuestListeners | RemoteGuests,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    *,
    limits: OperatorLimits,
    imports: ImportSettings,
    hosts: Sequence[str] = (),
    certificate: Path | None = None,
    load_player: "LoadPlayer | None" = None,
    report_directory: Path | None = None,
) -> AsyncIterator[OperatorServer]:
    """Serve the operator API on the bound listener. `hosts` are further names of the service.
    `load_player` returns what plays scenarios in an emulator, as a client that knows the `certificate`.
    Importing and creating the app takes longer than the rest of the start. So it is done last and in a thread, while
    guests are already served.
    """
    await asyncio.to_thread(_prepare)
    from forewarn.api.client import ServiceAddress
    from forewarn.operator.app import create_sessions, operator_app
    from forewarn.operator.counters import Counters
    from forewarn.operator.hosts import AllowedHosts
    from forewarn.operator.http_server import run_server
    from forewarn.operator.import_job import ImportLimits
    from forewarn.operator.limits import ConnectionLimits
    from forewarn.operator.report_store import ReportStore
    from forewarn.operator.scenario_runs import ScenarioRuns

    counters = Counters()
    import_limits = ImportLimits(imports.vms, imports.time_limit.total_seconds())
    allowed_hosts = AllowedHosts(hosts, tls)
    sessions = create_sessions(fleet)
    url = listener_url(listener, tls)
    runs = ScenarioRuns(fleet, load_player, lambda secret: ServiceAddress(url, secret, pinned=certificate))
    app = operator_app(
        fleet,
        guests=guests,
        counters=counters,
        hosts=allowed_hosts,
        import_limits=import_limits,
        sessions=sessions,
        scenario_runs=runs,
        reports=ReportStore(fleet, report_directory),
    )
    connection_limits = ConnectionLimits(total=limits.total, per_address=limits.per_address)
    async with run_server(app, listener, tls, limits=connection_limits, counters=counters):
        yield OperatorServer(sessions.create_code, runs.close)


def _prepare() -> None:
    with _preparing:
        import forewarn.operator.http_server  # noqa: F401 - loaded here in a thread, used by the caller
        from forewarn.operator.app import preload

        preload()


def listener_url(listener: socket.socket, tls: ssl.SSLContext | None) -> str:
    """Return the URL of the listener on this machine."""
    host, port = listener.getsockname()[:2]
    return f"{'http' if tls is None else 'https'}://{local_address(host, port)}"


def create_tls_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """Return the TLS context; None without a certificate."""
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Load the certificate from its file, for new connections."""
    try:
        context.load_cert_chain(settings.certificate or "", settings.key, password=_refuse_password)
    except ssl.SSLError as error:
        raise InvalidCertificate(settings, f"they are not matching PEM files ({error.reason})") from error
    except OSError as error:
        raise InvalidCertificate(settings, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidCertificate(settings, str(error)) from error


def _refuse_password() -> str:
    """Refuse an encrypted key: there is no terminal for a password when a service starts."""
    raise ValueError("the key is encrypted with a password: use one without")
