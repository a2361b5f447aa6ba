"""Options for commands that talk to the service (--url, --token, --data, …), and the resulting API connection."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

from forewarn.api.client import TIMEOUT, ApiClient, LocalApiClient, ServiceAddress
from forewarn.api.errors import InvalidToken
from forewarn.api.local_service import TOKEN_FILE, ephemeral_root, find_service, read_token
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import (
    FILE_PATH,
    Command,
    OptionTable,
    config_option,
    option,
    output_option,
    with_options,
)
from forewarn.cli.output import Output
from forewarn.settings.load import find_data_directory, find_settings_file
from forewarn.settings.paths import user_data_directory

P = ParamSpec("P")

SERVICE_OPTIONS: OptionTable = {
    "url": option("--url", envvar="FOREWARN_URL", metavar="URL", help="The URL of the operator API."),
    "token": option(
        "--token",
        envvar="FOREWARN_TOKEN",
        metavar="TOKEN",
        help="The token for --url. Briefly visible in the process list; prefer the variable.",
    ),
    "token_file": option(
        "--token-file",
        type=FILE_PATH,
        envvar="FOREWARN_TOKEN_FILE",
        metavar="FILE",
        help="A file with the token for --url.",
    ),
    "ca": option(
        "--ca",
        type=FILE_PATH,
        envvar="FOREWARN_CA",
        metavar="FILE",
        help="Trust the CA certificates in this file, for a service whose certificate no public CA has signed.",
    ),
    "data": option(
        "--data", envvar="FOREWARN_DATA", metavar="DIR", help="The data directory of a service on this machine."
    ),
    "config": config_option,
}


class ServiceConnection(NamedTuple):
    """The service and the output format, as selected by the options."""

    api: ApiClient
    output: Output


def with_service(command: Callable[Concatenate[ServiceConnection, P], None]) -> Command:
    """Add the service options to a command, which receives the resulting connection."""

    @wraps(command)
    def wrapped(output: Output, **given: Any) -> None:
        service_options = {name: given.pop(name) for name in SERVICE_OPTIONS}
        command(ServiceConnection(connect(**service_options), output), **given)  # type: ignore[call-arg]  # the other parameters are the command's own

    return with_options((*SERVICE_OPTIONS.values(), output_option))(wrapped)


def connect(
    url: str | None = None,
    token: str | None = None,
    token_file: Path | None = None,
    ca: Path | None = None,
    data: str | None = None,
    config: str | None = None,
    *,
    timeout: float = TIMEOUT,
) -> ApiClient:
    """Return a client of the service that the options name, else of the service on this machine.

    A local service is looked up at the first request, so that errors in the command's own options come first.
    """
    if token is None and token_file is not None:
        token = _read_token_file(token_file)
    if url is not None:
        if token is None:
            raise CliError(ExitCode.USAGE, "--url requires a token: set FOREWARN_TOKEN or use --token-file")
        return ApiClient(url, token, ca=ca, timeout=timeout)
    return LocalApiClient(lambda: _find_address(token, ca, data, config), timeout=timeout)


def _find_address(token: str | None, ca: Path | None, data: str | None, config: str | None) -> ServiceAddress:
    directory = find_data_directory(data, os.environ, find_settings_file(config, os.environ, Path.cwd()))
    root = ephemeral_root(os.environ) if directory is None else None
    found, service = find_service(directory or user_data_directory(os.environ), root=root)
    token = token or read_token(found / TOKEN_FILE)
    pinned = Path(service.certificate) if service.certificate is not None else None
    return ServiceAddress(service.operator_url, token, ca, pinned)


def _read_token_file(file: Path) -> str:
    try:
        return read_token(file)
    except InvalidToken as error:
        raise CliError(ExitCode.USAGE, f"--token-file: {error}") from None
