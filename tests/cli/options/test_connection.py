"""The way to the service: what the options name, else the service on this machine."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from forewarn.api import v1
from forewarn.api.client import ApiClient, LocalApiClient
from forewarn.api.errors import RequestRefused, ServiceNotFound
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.connection import SERVICE_OPTIONS, ServiceConnection, connect, with_service
from forewarn.cli.output import Output
from forewarn.settings.errors import SettingsError

URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nothing of this machine be found."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CA", "CELL", "CELLS", "DATA", "CONFIG", "OUTPUT"):
        monkeypatch.delenv(f"FOREWARN_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_url_needs_a_token() -> None:
    with pytest.raises(CliError) as refused:
        connect(url=URL)
    assert refused.value.code is ExitCode.USAGE
    assert type(connect(url=URL, token="t")) is ApiClient


def test_token_may_be_in_a_file(home: Path) -> None:
    (home / "token").write_text("a-token\n")
    assert type(connect(url=URL, token_file=home / "token")) is ApiClient
    with pytest.raises(CliError, match="--token-file") as refused:
        connect(url=URL, token_file=home / "none")
    assert refused.value.code is ExitCode.USAGE


def test_service_of_this_machine_is_looked_for_at_the_first_request(home: Path) -> None:
    client = connect(data=str(home / "data"))
    assert isinstance(client, LocalApiClient)
    with pytest.raises(ServiceNotFound):
        client.health()


def test_command_gets_the_service_in_place_of_the_options() -> None:
    given: list[Any] = []

    @click.command()
    @click.option("--more")
    @with_service
    def command(connection: ServiceConnection, more: str) -> None:
        given.append((connection.output, more))

    arguments = ["--url", URL, "--token", "t", "-o", "JSON", "--more", "x"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert (result.exit_code, given) == (0, [(Output.JSON, "x")])
    assert {parameter.name for parameter in command.params} == {*SERVICE_OPTIONS, "output", "more"}


@pytest.mark.parametrize(
    ("variables", "arguments", "origin"),
    [
        ({}, ("--url", URL), "--url requires"),
        ({"URL": URL}, (), "FOREWARN_URL requires"),
        ({}, ("--cell", "c"), "--cell requires"),
        ({"CELL": "c"}, (), "FOREWARN_CELL requires"),
        ({}, ("--token-file", "none"), "--token-file: "),
        ({"TOKEN_FILE": "none"}, (), "FOREWARN_TOKEN_FILE: "),
        ({"TOKEN_FILE": "none"}, ("--token-file", "other"), "--token-file: no token in other"),
        ({"URL": URL}, ("--token", "two words"), "--token: the value is not a token"),
        ({"URL": URL, "TOKEN": "one\n"}, (), "FOREWARN_TOKEN: the value is not a token"),
        ({"TOKEN": "\N{EURO SIGN}"}, (), "FOREWARN_TOKEN: the value is not a token"),
        ({"TOKEN": "t"}, ("--url", "127.0.0.1:1"), "--url: 127.0.0.1:1 is not the URL of a service"),
        ({"URL": "ftp://x", "TOKEN": "t"}, (), "FOREWARN_URL: ftp://x is not the URL of a service"),
        ({}, ("--cells", "gone.toml"), "--cells: gone.toml: cannot be read"),
        ({"CELLS": "gone.toml", "CELL": "c"}, (), "FOREWARN_CELLS: gone.toml: cannot be read"),
        ({}, ("--config", "gone.toml"), "--config: gone.toml: cannot be read"),
        ({"CONFIG": "gone.toml"}, (), "FOREWARN_CONFIG: gone.toml: cannot be read"),
    ],
)
def test_refusal_names_where_the_value_comes_from(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], arguments: tuple[str, ...], origin: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"FOREWARN_{name}", value)
    result = CliRunner().invoke(ask, arguments)
    assert isinstance(result.exception, CliError)
    assert str(result.exception).startswith(origin)
    assert result.exception.code is ExitCode.USAGE


@pytest.mark.parametrize(("variable", "arguments"), [("~nobody-here/x", ()), ("", ("--data", "~nobody-here/x"))])
def test_wrong_data_directory_is_refused_by_its_origin(
    monkeypatch: pytest.MonkeyPatch, variable: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FOREWARN_DATA", variable)
    refused = CliRunner().invoke(ask, arguments).exception
    assert isinstance(refused, SettingsError)
    assert str(refused).startswith("--data: " if arguments else "FOREWARN_DATA: ")


def test_data_directory_comes_before_the_file_of_cells(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are variables for all commands; the directory is of a service on this machine."""
    monkeypatch.setenv("FOREWARN_CELLS", str(home / "cells.toml"))
    monkeypatch.setenv("FOREWARN_DATA", str(home / "data"))
    assert isinstance(CliRunner().invoke(ask, ()).exception, ServiceNotFound)


@click.command()
@with_service
def ask(connection: ServiceConnection) -> None:
    connection.api.health()


def test_next_command_waits_for_what_this_one_has_changed(home: Path) -> None:
    """One command changes something at one control node, the next one asks another."""
    requests: list[dict[str, str]] = []

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(dict(self.headers))
            self.send_response(200)
            self.send_header("Forewarn-Position", "cell-9")
            body = b'{"holds": []}'
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that the server calls

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Node) as node:
        thread = threading.Thread(target=node.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{node.server_address[1]}"
            connect(url=url, token="t").holds()
            connect(url=url, token="t").hold(v1.CreateHold(reason="x"))
            connect(url=url, token="t").holds()
        finally:
            node.shutdown()
            thread.join()
    assert [request.get("Forewarn-After") for request in requests] == [None, None, "cell-9"]
    assert (home / "forewarn" / "positions").read_text() == "cell-9"


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("addresses[0]: unknown", "--address: unknown"),
        ("addresses[0].mac: unknown", "--address: unknown"),
        ("terminate_notice: must be 5m to 15m", "--terminate-notice: must be 5m to 15m"),
        ("tags.my zone: tag my zone has 600 characters", "--tag: tag my zone has 600 characters"),
        ("notice must be at least 15m", "--in must be at least 15m"),
        ("notice: must be at least 15m", "--in: must be at least 15m"),
        ("no address has notice: add one", "no address has notice: add one"),
        ("hosts[0]: unknown", "hosts[0]: unknown"),
        ("name: 'a b' is wrong", "VM: 'a b' is wrong"),
        ("id: 'a b' is wrong", "VM: 'a b' is wrong"),
        ("name has 600 characters", "name has 600 characters"),
    ],
)
def test_refusal_names_the_option_or_argument_of_a_field(problem: str, message: str) -> None:
    @click.command()
    @click.argument("name", metavar="VM")
    @click.option("--address", "addresses", multiple=True)
    @click.option("--terminate-notice")
    @click.option("--tag", "tags", multiple=True)
    @click.option("--in", "notice")
    @click.option("--host", "hosts", multiple=True)
    @with_service
    def command(connection: ServiceConnection, /, **given: Any) -> None:
        raise RequestRefused(422, "invalid-value", problem, {})

    arguments = ["a b", "--address", "a", "--terminate-notice", "1h", "--tag", "a=b", "--in", "5m"]
    refused = CliRunner().invoke(command, arguments).exception
    assert isinstance(refused, RequestRefused)
    assert refused.message == message
