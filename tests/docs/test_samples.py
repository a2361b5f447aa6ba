"""The protocol samples work with the real service: they list events and approve those of their VM."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from forewarn.core.event import EventType
from forewarn.core.scope import ScopeKind
from tests.support.canned_server import run_canned_server
from tests.support.emulator import GUARD, EmulatorProcess, Vm, plain_environment, run_emulator

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
LIBRARIES = ("System.Net.Http.dll", "System.Runtime.Serialization.dll")

NEEDS = {
    "handler.py": (),
    "handler.sh": ("bash", "curl", "jq"),
    "Handler.cs": ("mcs", "mono"),
    "handler.ps1": ("pwsh",),
}
"""The programs that each sample needs. Debian has no pwsh."""

RUN_HERE = [name for name, needs in NEEDS.items() if needs != ("pwsh",) or shutil.which("pwsh")]
PATH_IN_QUOTES = re.compile(r"/metadata/[^\"'\s]+")


class Sample(NamedTuple):
    """A sample that can be run."""

    command: tuple[str, ...]

    def run(self, endpoint: str, **environ: str) -> list[str]:
        """Let it poll an endpoint once, and return the lines that it prints."""
        done = subprocess.run(
            (*self.command, "once"),
            env=plain_environment(FOREWARN_ENDPOINT=endpoint, **environ),
            check=False,
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()


@pytest.fixture(scope="module", params=RUN_HERE)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Each sample, compiled if necessary."""
    if missing := [program for program in NEEDS[request.param] if shutil.which(program) is None]:
        pytest.skip(f"{request.param} needs {', '.join(missing)}; as root, `make test` installs what it can")
    file = str(SAMPLES / request.param)
    if not file.endswith(".cs"):
        interpreter = {".py": sys.executable, ".sh": "bash", ".ps1": "pwsh"}[Path(file).suffix]
        return Sample((interpreter, file))
    program = str(tmp_path_factory.mktemp("mono") / "Handler.exe")
    references = [f"-r:{library}" for library in LIBRARIES]
    subprocess.run(["mcs", f"-out:{program}", *references, file], check=True, timeout=GUARD)
    return Sample(("mono", program))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    with run_emulator(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def vms(service: EmulatorProcess) -> tuple[Vm, ...]:
    return service.scope_to_itself(ScopeKind.AVAILABILITY_SET)


def test_own_events_are_approved_and_others_only_listed(
    sample: Sample, service: EmulatorProcess, vms: tuple[Vm, ...]
) -> None:
    freeze, reboot = (service.schedule(type_, vms[0])[0] for type_ in (EventType.FREEZE, EventType.REBOOT))
    (other,) = service.schedule(EventType.FREEZE, vms[1])
    assert sample.run(vms[0].url) == [
        f"{freeze} Scheduled Freeze this VM",
        f"{reboot} Scheduled Reboot this VM",
        f"{other} Scheduled Freeze others",
        f"approved {freeze}",
        f"approved {reboot}",
    ]
    assert service.statuses(vms[0]) == {freeze: "Started", reboot: "Started", other: "Scheduled"}
    assert sample.run(vms[0].url) == [
        f"{freeze} Started Freeze this VM",
        f"{reboot} Started Reboot this VM",
        f"{other} Scheduled Freeze others",
    ]


def test_nothing_is_printed_when_nothing_is_planned(sample: Sample, vms: tuple[Vm, ...]) -> None:
    assert sample.run(vms[0].url) == []


def test_proxy_settings_are_ignored(sample: Sample, vms: tuple[Vm, ...]) -> None:
    assert sample.run(vms[0].url, http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1") == []


def test_sample_survives_an_empty_body(sample: Sample) -> None:
    with run_canned_server(lambda path, _: (200, b"web-0" if "instance" in path else b"")) as url:
        assert sample.run(url) == []


@pytest.mark.parametrize(("own", "named"), [("web-0", "_web-0"), ("_web-0", "web-0")], ids=["in events", "in the name"])
def test_leading_underscore_of_a_name_is_ignored(sample: Sample, own: str, named: str) -> None:
    event = {"EventId": "E-1", "EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["web-1", named]}
    posted: list[bytes] = []

    def answer(path: str, body: bytes) -> tuple[int, bytes]:
        if body:
            posted.append(body)
            return 200, b""
        return 200, own.encode() if "instance" in path else json.dumps({"Events": [event]}).encode()

    with run_canned_server(answer) as url:
        assert sample.run(url) == ["E-1 Scheduled Reboot this VM", "approved E-1"]
    assert [json.loads(body) for body in posted] == [{"StartRequests": [{"EventId": "E-1"}]}]


def test_all_samples_send_the_same_requests() -> None:
    asked = {file.name: set(PATH_IN_QUOTES.findall(file.read_text())) for file in SAMPLES.iterdir()}
    assert asked.keys() == NEEDS.keys()
    assert set(map(frozenset, asked.values())) == {
        frozenset(
            {
                "/metadata/scheduledevents?api-version=2020-07-01",
                "/metadata/instance/compute/name?api-version=2020-09-01&format=text",
            }
        )
    }


def test_scripts_are_executable() -> None:
    assert {file.name for file in SAMPLES.iterdir() if os.access(file, os.X_OK)} == {"handler.py", "handler.sh"}
