"""Software that reads the instance document first: cloud-init, waagent and OpenTelemetry, unmodified, as a VM.

cloud-init and waagent are not installed, because they configure the machine: their Debian packages are extracted.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.testing.sandbox import unavailable_reason
from tests.support.debian_packages import extract_packages
from tests.support.emulator import FOREWARN, GUARD, UpOutput, forewarn_up, plain_environment

PACKAGES = ("cloud-init", "waagent", "python3-configobj", "python3-distro", "python3-six")
VM_ID = "13f56399-bd52-4150-9748-7190aae1ff21"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAr0aC3F5xJCQvBl2y4mBqyBO3wZIvG2gZf5F1kX4qNH ops"
FLEET = f"""
[[scopes]]
name = "web"
kind = "standalone"
location = "westeurope"
resource_group = "shop"
subscription = "s-1"
zone = "2"
instance.vmSize = "Standard_D2s_v5"
instance.publisher = "Debian"
instance.offer = "debian-12"
instance.sku = "12-gen2"
instance.version = "0.1"
instance.osProfile = {{ adminUsername = "ops", disablePasswordAuthentication = "true" }}
instance.publicKeys = [{{ keyData = "{KEY}", path = "/home/ops/.ssh/authorized_keys" }}]

[[scopes.vms]]
vm_id = "{VM_ID}"
addresses = ["10.0.0.4", {{ ip = "10.0.0.5", prefix = 20 }}, "fd00::4", "fd00::5"]

[[scopes]]
name = "bare"
kind = "standalone"
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpOutput]:
    """A service with a VM whose instance document has values, and one of which nothing is known."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("service")
    fleet = directory / "fleet.toml"
    fleet.write_text(FLEET)
    with forewarn_up(directory, "--fleet", str(fleet)) as started:
        yield started


@pytest.fixture(scope="module")
def debian_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the Python modules of the extracted packages."""
    if sys.version_info >= (3, 13):
        pytest.skip("the packaged cloud-init needs the module crypt, which Python 3.13 does not have")
    return extract_packages(tmp_path_factory.mktemp("debian"), *PACKAGES) / "usr/lib/python3/dist-packages"


def run_as(started: UpOutput, vm: str, program: Path, *arguments: str | Path) -> Any:
    """Run a program as a VM, and return its output."""
    done = subprocess.run(
        [*FOREWARN, "run", "--vm", vm, "--", sys.executable, "-W", "ignore", str(program), *map(str, arguments)],
        env=plain_environment(FOREWARN_DATA=started.data),
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cloud_init_configures_name_user_keys_and_network(
    started: UpOutput, programs: Path, debian_packages: Path
) -> None:
    found = run_as(started, "web", programs / "cloud_init_crawl.py", debian_packages)
    (card,) = found.pop("ethernets").values()
    assert card["match"]["macaddress"].startswith(("a", "b", "c", "d", "e", "f", *map(str, range(10))))
    assert card["addresses"] == ["10.0.0.5/24", "fd00::5/64"], "the prefix of the first address"
    assert found == {
        "hostname": "web",
        "username": "ops",
        "user_data": "",
        "disable_password": True,
        "keys": [KEY],
        "is_network_valid": True,
        "fallback_has_os_profile": False,
        "fallback_name": "web",
    }


def test_cloud_init_accepts_a_vm_of_which_nothing_is_known(
    started: UpOutput, programs: Path, debian_packages: Path
) -> None:
    found = run_as(started, "bare", programs / "cloud_init_crawl.py", debian_packages)
    assert (found["hostname"], found["keys"], found["is_network_valid"]) == ("bare", [], True)
    assert list(found["ethernets"]) == ["eth0"]


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        ("web", {"image": "Debian:debian-12:12-gen2:0.1", "vmSize": "Standard_D2s_v5", "sku": "12-gen2", "zone": "2"}),
        ("bare", {"image": ":::", "vmSize": "", "sku": "", "zone": ""}),
    ],
)
def test_waagent_finds_the_endpoint_healthy(
    started: UpOutput, programs: Path, debian_packages: Path, vm: str, expected: dict[str, str]
) -> None:
    found = run_as(started, vm, programs / "waagent_check.py", debian_packages)
    assert (found.pop("healthy"), found.pop("why"), found.pop("name")) == (True, "", vm)
    assert found.pop("vmId")
    assert found == expected


def test_opentelemetry_detects_the_vm(started: UpOutput, programs: Path) -> None:
    found = run_as(started, "web", programs / "otel_detect.py")
    expected = {
        "azure.vm.scaleset.name": "",
        "azure.vm.sku": "12-gen2",
        "cloud.platform": "azure_vm",
        "cloud.provider": "azure",
        "cloud.region": "westeurope",
        "cloud.resource_id": "/subscriptions/s-1/resourceGroups/shop/providers/Microsoft.Compute/virtualMachines/web",
        "host.id": VM_ID,
        "host.name": "web",
        "host.type": "Standard_D2s_v5",
        "os.type": "Linux",
        "os.version": "0.1",
        "service.instance.id": VM_ID,
    }
    assert {name: value for name, value in found.items() if name in expected} == expected
