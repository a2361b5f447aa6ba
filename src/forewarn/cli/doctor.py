"""`forewarn doctor`: why does my VM see nothing?"""

import http.client
from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import typer

from forewarn.api import v1
from forewarn.cli.colours import Colour, painted
from forewarn.cli.exits import Exit
from forewarn.cli.names import VmName
from forewarn.cli.output import Output, say, write, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.wire.protocol import NEWEST_VERSION

PATIENCE = 10.0
"""For how many seconds an endpoint may be silent."""

LONGEST_NAME = 1_024

WHO_AM_I = f"/metadata/instance/compute/name?api-version={NEWEST_VERSION}&format=text"
"""Unlike a request for events this one changes nothing: it does not enable the scope."""

CAN_REACH = "Does its endpoint answer?"


@asks_service
def doctor(asked: Asked, vm: VmName) -> None:
    """Find out why a VM sees nothing: is it known, enabled, is its address right, does its endpoint answer?

    The exit code is 0 if all is well, else 1.

    Example: forewarn doctor web-0
    """
    diagnosis = asked.api.diagnosis(vm)
    checks = [*diagnosis.checks, *seen_from_here(diagnosis, asked.api.url)]
    if asked.output is Output.JSON:
        write_json(v1.Diagnosis(vm=diagnosis.vm, guest_url=diagnosis.guest_url, checks=checks))
    else:
        _write_checks(checks)
    wrong = sum(not check.ok for check in checks)
    if wrong:
        say(f"Not all is well with {diagnosis.vm}: {wrong} of {len(checks)} answers are bad.")
        raise typer.Exit(Exit.FAILED)
    say(f"All is well with {diagnosis.vm}.")


def _write_checks(checks: list[v1.CheckUp]) -> None:
    for check in checks:
        mark = painted("✓", Colour.GOOD) if check.ok else painted("✗", Colour.BAD)
        write(f"{mark} {check.question} {check.finding}")
        if check.advice and not check.ok:
            write(f"    {check.advice}")


def seen_from_here(diagnosis: v1.Diagnosis, service_url: str) -> Iterator[v1.CheckUp]:
    """Try the VM's own endpoint, where it has one that this machine can reach."""
    if diagnosis.guest_url is None:
        return
    endpoint = urlsplit(diagnosis.guest_url)
    if (_is_loopback(endpoint) or _is_link_local(endpoint)) and not _is_loopback(urlsplit(service_url)):
        return
    yield _tried(diagnosis, endpoint)


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


def _is_ours(response: http.client.HTTPResponse) -> bool:
    """Tell whether it is an endpoint like ours that has answered, though perhaps that it knows no such VM."""
    return response.status in (200, 403) and (response.getheader("Server") or "").startswith("IMDS/")


def _tried(diagnosis: v1.Diagnosis, endpoint: SplitResult) -> v1.CheckUp:
    url = diagnosis.guest_url
    connection = http.client.HTTPConnection(endpoint.hostname or "", endpoint.port, timeout=PATIENCE)
    try:
        connection.request("GET", WHO_AM_I, headers={"Metadata": "true"})
        response = connection.getresponse()
        name = response.read(LONGEST_NAME).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        advice = "Is something between this machine and the service, a firewall or a container?"
        return v1.CheckUp(question=CAN_REACH, ok=False, finding=f"Not from here: {url}: {why}.", advice=advice)
    finally:
        connection.close()
    is_named = response.status == 200 and name.casefold() == diagnosis.vm.rpartition("/")[2].casefold()
    if not is_named and _is_link_local(endpoint) and _is_ours(response):
        finding = f"Yes, at {url}: this machine, which is not the VM, is answered with status {response.status}."
        return v1.CheckUp(question=CAN_REACH, ok=True, finding=finding)
    if not is_named:
        finding = f"Not as this VM's: {url} answers with status {response.status}: {name[:100]}"
        advice = "Does another program listen on this port? `forewarn vm list` says where each VM's endpoint is."
        return v1.CheckUp(question=CAN_REACH, ok=False, finding=finding, advice=advice)
    return v1.CheckUp(question=CAN_REACH, ok=True, finding=f"Yes, at {url}.")
