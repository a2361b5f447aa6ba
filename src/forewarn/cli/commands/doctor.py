"""`forewarn doctor`: diagnose why a VM does not see its events."""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import click
import msgspec

from forewarn.api import v1
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.errors import ExitCode
from forewarn.cli.options.completion import vm_argument
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.client.effects import Failure, Request, Response
from forewarn.client.endpoint import Endpoint
from forewarn.client.transport import Exchange
from forewarn.wire.protocol import NEWEST_VERSION

TIMEOUT = 10.0
"""How many seconds an endpoint has to respond."""

MAX_NAME_BYTES = 1_024

NAME_TARGET = f"/metadata/instance/compute/name?api-version={NEWEST_VERSION}&format=text"
"""Unlike a request for events, this one does not enable the scope."""

ENDPOINT_QUESTION = "Does its endpoint answer?"


@click.command()
@vm_argument
@with_service
def doctor(connection: ServiceConnection, vm: str) -> None:
    """Find out why a VM does not see its events. Checks its address, its endpoint, and what it gets if it polls.

    The check is no request of the VM: its scope is not enabled, and no fault is used up. Faults and holds are warnings
    (!). The exit code is 0 if all checks passed, else 1.

    Example: forewarn doctor web-0
    """
    diagnosis = connection.api.diagnosis(vm)
    checks = [*diagnosis.checks, *endpoint_checks(diagnosis, connection.api.url)]
    if connection.output is Output.JSON:
        write_json(msgspec.structs.replace(diagnosis, checks=checks))
    else:
        _write_checks(checks)
    failed = sum(not check.passed for check in checks)
    if failed:
        write_message(f"{diagnosis.vm}: {failed} of {len(checks)} checks failed.")
        raise click.exceptions.Exit(ExitCode.FAILED)
    warnings = sum(check.warning for check in checks)
    noted = f", {warnings} of them with a warning" if warnings else ""
    write_message(f"{diagnosis.vm}: all {len(checks)} checks passed{noted}.")


def _write_checks(checks: list[v1.DiagnosisCheck]) -> None:
    for check in checks:
        write(f"{_mark(check)} {check.question} {check.message}")
        if check.hint and (check.warning or not check.passed):
            write(f"    {check.hint}")


def _mark(check: v1.DiagnosisCheck) -> str:
    if not check.passed:
        return coloured("✗", Colour.BAD)
    return coloured("!", Colour.WARNING) if check.warning else coloured("✓", Colour.GOOD)


def endpoint_checks(diagnosis: v1.Diagnosis, service_url: str) -> Iterator[v1.DiagnosisCheck]:
    """Check the VM's own endpoint if it has one that this machine can reach."""
    if diagnosis.guest_url is None:
        return
    endpoint = urlsplit(diagnosis.guest_url)
    if (_is_loopback(endpoint) or _is_link_local(endpoint)) and not _is_loopback(urlsplit(service_url)):
        return
    yield _check_endpoint(diagnosis, endpoint)


def _is_loopback(url: SplitResult) -> bool:
    host = url.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_link_local(url: SplitResult) -> bool:
    try:
        return ip_address(url.hostname or "").is_link_local
    except ValueError:
        return False


def _is_metadata_endpoint(response: Response) -> bool:
    """Return whether the response comes from a metadata endpoint, even from one that does not know the VM."""
    return response.status in (200, 403) and response.headers.get("server", "").startswith("IMDS/")


def _check_endpoint(diagnosis: v1.Diagnosis, endpoint: SplitResult) -> v1.DiagnosisCheck:
    url = diagnosis.guest_url
    guest_endpoint = Endpoint(endpoint.hostname or "", endpoint.port or 80, endpoint.path)
    response = Exchange(guest_endpoint, Request("GET", NAME_TARGET), TIMEOUT).run()
    if isinstance(response, Failure):
        advice = "Check for a firewall or a container boundary between this machine and the service."
        return v1.DiagnosisCheck(
            question=ENDPOINT_QUESTION,
            passed=False,
            message=f"No, not from this machine: {url}: {response.reason}.",
            hint=advice,
        )
    name = response.body[:MAX_NAME_BYTES].decode(errors="replace")
    is_named = response.status == 200 and name.casefold() == diagnosis.vm.rpartition("/")[2].casefold()
    if not is_named and _is_link_local(endpoint) and _is_metadata_endpoint(response):
        finding = f"Yes, at {url}: this machine is not the VM and gets status {response.status}."
        return v1.DiagnosisCheck(question=ENDPOINT_QUESTION, passed=True, message=finding)
    if not is_named:
        finding = f"No, not for this VM: {url} answers with status {response.status}: {name[:100]}"
        advice = "Check whether another program listens on this port; `forewarn vm list` shows each VM's endpoint."
        return v1.DiagnosisCheck(question=ENDPOINT_QUESTION, passed=False, message=finding, hint=advice)
    return v1.DiagnosisCheck(question=ENDPOINT_QUESTION, passed=True, message=f"Yes, at {url}.")
