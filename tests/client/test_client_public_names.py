"""The public names of the client, and which modules their import loads."""

import subprocess
import sys

import pytest

import forewarn.client

NAMES = """
    Appeared AsyncInterruption AsyncScheduledEvents Change Changed ClientError Closed Document Ending Event EventType
    Gone Interruption NoName NoSuchEvent NoVersion NotAllowed NotAnEndpoint NotAnEvent NotDiscovered NotUnderstood
    Refused ScheduledEvents Source Started Status TooSlow Unavailable Unreachable deputy discover_endpoint is_deputy
    is_leader leader
"""

HEAVY = ("asyncio", "email", "http.client", "ipaddress", "logging", "ssl", "urllib.parse", "forewarn.wire.request")
SERVER_PARTS = ("h11", "httptools", "litestar", "prometheus_client", "uvloop", "rich", "click")


def test_public_names_are_complete() -> None:
    assert forewarn.client.__all__ == NAMES.split()
    assert dir(forewarn.client) == NAMES.split()


@pytest.mark.parametrize("name", NAMES.split())
def test_public_name_can_be_imported_and_has_a_docstring(name: str) -> None:
    found = getattr(forewarn.client, name)
    if name != "Change":
        assert found.__doc__, "no docstring"
        assert found.__name__ == name


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'forewarn.client' has no attribute 'Nonsense'"):
        forewarn.client.Nonsense  # type: ignore[attr-defined]  # noqa: B018  # the access itself must raise


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


@pytest.mark.process
def test_import_loads_no_heavy_modules() -> None:
    assert imported_by("import forewarn.client") & {*HEAVY, *SERVER_PARTS} == set()


@pytest.mark.process
def test_async_client_imports_nothing_of_the_server() -> None:
    statement = "from forewarn.client import *; import http.client"
    assert imported_by(statement) & set(SERVER_PARTS) == set()


@pytest.mark.parametrize("kind", [forewarn.client.ScheduledEvents, forewarn.client.AsyncScheduledEvents])
def test_every_method_has_a_docstring(kind: type) -> None:
    public = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    assert [name for name, value in public.items() if not value.__doc__] == []


def test_both_clients_have_the_same_methods() -> None:
    blocking, awaiting = (
        {name for name in vars(kind) if not name.startswith("_")}
        for kind in (forewarn.client.ScheduledEvents, forewarn.client.AsyncScheduledEvents)
    )
    assert blocking - {"close"} == awaiting - {"aclose"}
