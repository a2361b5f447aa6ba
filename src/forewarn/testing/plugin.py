"""pytest plugin: the fixtures `forewarn` and `forewarn_vm`, and the marker `forewarn`.

pytest imports this module in every run, so it imports the service only when a test uses a fixture.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pluggy

    from forewarn.testing.service import Forewarn
    from forewarn.testing.vm import Vm

MARKER_NAME = "forewarn"
OPTIONS = ("fleet", "manual_time", "speed", "start", "settings")
"""The marker's options that become arguments of `Forewarn`. It also accepts `vm`, for the fixture `forewarn_vm`."""

MAX_NAMED = 10
"""How many VMs the message about an unknown VM lists."""

SERVICE_KEY = pytest.StashKey["Forewarn"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    options = ", ".join((*OPTIONS, "vm"))
    config.addinivalue_line("markers", f"{MARKER_NAME}({options}): options of the test's service, as keywords")


@pytest.fixture
def forewarn(request: pytest.FixtureRequest) -> Iterator["Forewarn"]:
    """A service for this test alone: real sockets on free ports, the demonstration fleet, a manual clock.

    `@pytest.mark.forewarn(fleet=…)` and its other options change that; a path is relative to the test's file.
    """
    options = {name: value for name, value in _marker_options(request).items() if name != "vm"}
    if isinstance(options.get("fleet"), Path):
        options["fleet"] = request.path.parent / options["fleet"]
    service = _start_service(options)
    request.node.stash[SERVICE_KEY] = service
    try:
        yield service
    finally:
        del request.node.stash[SERVICE_KEY]  # pytest keeps every test, with its stash, until the end of the run
        service.stop()


@pytest.fixture
def forewarn_vm(request: pytest.FixtureRequest, forewarn: "Forewarn") -> "Vm":
    """The first VM of the test's fleet, or the VM that `@pytest.mark.forewarn(vm=…)` names."""
    name = _marker_options(request).get("vm")
    vm_names = [f"{vm.scope}/{vm.name}" for vm in forewarn.api.vms()]
    if not vm_names:
        pytest.fail("the fixture forewarn_vm needs a fleet with at least one VM; this fleet is empty", pytrace=False)
    if name is not None and sum(name in (vm, vm.rpartition("/")[2]) for vm in vm_names) != 1:
        examples = ", ".join(vm_names[:MAX_NAMED]) + (", …" if len(vm_names) > MAX_NAMED else "")
        pytest.fail(f"@pytest.mark.forewarn(vm={name!r}): name one VM of the fleet; it has {examples}", pytrace=False)
    return forewarn.vm(name)


@pytest.hookimpl(hookwrapper=True)  # old versions of pluggy, which the plugin must not break, have no other wrappers
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, "pluggy.Result[pytest.TestReport]", None]:
    """Add the service's journal and requests to the report of a test that failed, or whose fixture failed."""
    report = (yield).get_result()
    service = item.stash.get(SERVICE_KEY, None)
    if report.failed and service is not None:
        from forewarn.testing.failure_report import report_sections

        report.sections.extend(report_sections(service))


def _marker_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of all markers; the marker closest to the test wins."""
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARKER_NAME))):
        unknown = sorted(mark.kwargs.keys() - {*OPTIONS, "vm"})
        if mark.args or unknown:
            wrong = ", ".join(unknown) or "a value without a name"
            pytest.fail(
                f"@pytest.mark.forewarn takes {', '.join((*OPTIONS, 'vm'))}, by name; not {wrong}", pytrace=False
            )
        options |= mark.kwargs
    return options


def _start_service(options: dict[str, Any]) -> "Forewarn":
    """Start a service. On an error, fail the test with the reason and without a traceback into Forewarn."""
    try:
        from forewarn.testing.service import START_ERRORS, Forewarn
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == "forewarn":
            raise
    else:
        try:
            return Forewarn(**options).start()
        except START_ERRORS as error:
            reason = str(error)
        pytest.fail(f"the fixture forewarn cannot start: {reason}", pytrace=False)
    pytest.fail(f"the fixture forewarn needs {missing}: install Forewarn with its extra [testing]", pytrace=False)
