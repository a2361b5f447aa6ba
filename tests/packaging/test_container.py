"""The container files name files, options and VMs that exist. Building them needs images, and is not tested here."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are in a separate package, not worth it for one call

from forewarn.cli.commands.up import up
from forewarn.client.endpoint import parse_endpoint
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, Settings
from tests.cli.in_process import run, run_json, run_up
from tests.support.program import Machine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging/container"
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", CONTAINERFILE, re.MULTILINE)


def test_copied_files_exist() -> None:
    sources = [word for line in instructions("COPY") for word in line.split()[:-1]]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_files_that_the_build_needs_are_copied() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r'"((?:README|LICENSE|NOTICE)[^"]*)"', project))
    copied = {word for line in instructions("COPY") for word in line.split()[:-1]}
    assert named <= copied


def test_command_has_options_that_exist_and_settings_that_are_valid() -> None:
    (entry,), (words,) = (map(json.loads, instructions(name)) for name in ("ENTRYPOINT", "CMD"))
    assert (entry, words[0]) == (["forewarn"], "up")
    flags = up.make_context("up", words[1:]).params
    given = {key: value for key, value in flags.items() if value is not None and key in Settings.__struct_fields__}
    assert "listen_shared" in given
    settings = load_settings(EMULATOR, flags=given, environ={}, file=None).settings
    assert settings.listen_shared is not None
    assert [str(settings.listen_shared.port)] == instructions("EXPOSE")
    assert settings.operator.is_loopback
    assert settings.ephemeral


def test_compose_file_builds_and_publishes_what_the_container_serves() -> None:
    service = COMPOSE["services"]["forewarn"]
    assert (FOLDER / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    (port,) = instructions("EXPOSE")
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    handler = COMPOSE["services"]["handler"]
    assert [*handler["depends_on"]] == ["forewarn"]
    urls = [handler["environment"]["FOREWARN_ENDPOINT"], handler["command"][-1]]
    assert {urlsplit(url).netloc for url in urls} == {f"forewarn:{port}"}
    assert parse_endpoint(urls[0]).path == "/vm/web-0"
    assert "--retry-connrefused" in handler["command"]  # podman 4.3 starts it before the emulator is healthy


def test_commands_of_the_files_work(machine: Machine) -> None:
    kind, *health = COMPOSE["services"]["forewarn"]["healthcheck"]["test"]
    assert (kind, health[0]) == ("CMD", "forewarn")
    with run_up(machine):
        assert run(machine, *health[1:]).code == 0
        assert "web-0" in {vm["name"] for vm in run_json(machine, "vm", "list")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
