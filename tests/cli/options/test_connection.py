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
from forewarn.api.errors import ServiceNotFound
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.connection import SERVICE_OPTIONS, ServiceConnection, connect, with_service
from forewarn.cli.output import Output

URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nothing of this machine be found."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CA", "DATA", "CONFIG", "OUTPUT"):
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
