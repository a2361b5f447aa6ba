"""Options for commands that talk to the service (--url, --token, --data, …), and the resulting API connection."""

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

import click
from click.core import ParameterSource

from forewarn.api.cells import connect_cell, connect_cells
from forewarn.api.client import TIMEOUT, ApiClient, LocalApiClient, ServiceAddress
from forewarn.api.errors import InvalidCells, InvalidToken, InvalidUrl, RequestRefused
from forewarn.api.local_service import TOKEN_FILE, ephemeral_root, find_service, is_token, read_token
from forewarn.cli.errors import KEY_PATH, CliError, ExitCode
from forewarn.cli.options.common import (
    FILE_PATH,
    Command,
    OptionTable,
    config_option,
    option,
    origin_of,
    output_option,
    setting_option,
    usage_errors,
    with_options,
)
from forewarn.cli.output import Output
from forewarn.core.errors import NoticeTooShort
from forewarn.settings.load import find_data_directory, find_settings_file, find_store
from forewarn.settings.paths import user_cache_directory, user_data_directory
from forewarn.settings.types import StoreName, variable_name

P = ParamSpec("P")

POSITIONS_FILE = "positions"
"""What the last commands have changed, so that the next one waits for it."""

data_option = setting_option("data", "The data directory of a service on this machine.", "DIR")


GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

FIELDS = {"at": "not_before", "expires": "expires_at", "lasting": "duration"}
"""The fields of the API whose options have another name in the code."""

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
    "data": data_option,
    "cell": option(
        "--cell", envvar="FOREWARN_CELL", metavar="NAME", help="One of the cells that the file of cells lists."
    ),
    "cells": option(
        "--cells",
        type=FILE_PATH,
        envvar="FOREWARN_CELLS",
        metavar="FILE",
        help="The file that lists the cells; `list` commands then show all of them.",
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
        try:
            command(ServiceConnection(connect(**service_options), output), **given)  # type: ignore[call-arg]  # the other parameters are the command's own
        except RequestRefused as error:
            raise _with_option_names(error, click.get_current_context()) from error

    return with_options((*SERVICE_OPTIONS.values(), output_option))(wrapped)


def _with_option_names(error: RequestRefused, ctx: click.Context) -> RequestRefused:
    """Return the refusal with the given options in place of the fields of the API, such as --in for `notice`.

    A field at the beginning can also be that of an argument.
    """
    options = {
        param.name: origin_of(param.opts[0])
        for param in ctx.command.params
        if isinstance(param, click.Option) and ctx.get_parameter_source(param.name or "") in GIVEN
    }
    fields = {FIELDS.get(name or "", name or ""): flag for name, flag in options.items()}
    arguments = {
        param.name: param.make_metavar(ctx).strip("[.]")
        for param in ctx.command.params
        if isinstance(param, click.Argument)
    }
    message = error.message
    if found := KEY_PATH.match(message):
        field = found["field"]
        if origin := fields.get(field) or arguments.get("name" if field == "id" else field):
            message = f"{origin}: {message[found.end() :]}"
    for field, flag in fields.items():
        # Only at the beginning is a plain word certainly a field.
        pattern = rf"\b{field}\b" if "_" in field else rf"^{field}(?= )"
        message = re.sub(pattern, flag, message)
    if error.code == "invalid-token" and (origin := options.get("token") or options.get("token_file")):
        message = f"{origin}: {message}"
    if error.code == NoticeTooShort.code and (start := options.get("at") or options.get("now")):
        message = f"{start}: {message}"
    return type(error)(error.status, error.code, message, error.details)


def connect(
    url: str | None = None,
    token: str | None = None,
    token_file: Path | None = None,
    ca: Path | None = None,
    data: str | None = None,
    config: str | None = None,
    cell: str | None = None,
    cells: Path | None = None,
    *,
    timeout: float = TIMEOUT,
) -> ApiClient:
    """Return a client of the service that the options name, else of the service on this machine.

    A local service is looked up at the first request, so that errors in the command's own options come first.
    """
    if token is None and token_file is not None:
        with usage_errors("--token-file", InvalidToken):
            token = read_token(token_file, may_be_link=True)
    elif token and not is_token(token):
        raise CliError(ExitCode.USAGE, f"{origin_of('--token')}: the value is not a token")
    if url is not None:
        if token is None:
            raise CliError(
                ExitCode.USAGE,
                f"{origin_of('--url')} requires a token: set FOREWARN_TOKEN or use {origin_of('--token-file')}",
            )
        with usage_errors("--url", InvalidUrl):
            return _keep_positions(ApiClient(url, token, ca=ca, timeout=timeout))
    if cell is not None and cells is None:
        raise CliError(
            ExitCode.USAGE,
            f"{origin_of('--cell')} requires the file that lists the cells: set FOREWARN_CELLS or use --cells",
        )
    with usage_errors("--cells", InvalidCells, InvalidUrl):
        if cells is not None and cell is not None:
            return _keep_positions(connect_cell(cells, cell, timeout=timeout))
        if cells is not None and data is None and not os.environ.get(variable_name("data")):
            return connect_cells(cells, timeout=timeout)
    return LocalApiClient(lambda: _find_address(token, ca, data, config), timeout=timeout)


def _keep_positions(client: ApiClient) -> ApiClient:
    """Let a command see what earlier commands of this user have changed, whichever control node answers."""
    client.keep_positions(user_cache_directory(os.environ) / POSITIONS_FILE)
    return client


def sqlite_directory(data: str | None, config: str | None) -> Path:
    """Return the data directory that the options name, else the user's own.

    Refuses the directory of settings with another store: former data in it must not pass for that of the cell.
    """
    file = find_settings_file(config, os.environ, Path.cwd())
    own, directory = (
        (find_data_directory(given, os.environ, file) or user_data_directory(os.environ)).absolute()
        for given in (None, data)
    )
    if directory == own and find_store(os.environ, file) is StoreName.NATS:
        raise CliError(
            ExitCode.USAGE,
            'the settings have store = "nats": this command is for data in a directory; name one that '
            "`forewarn migrate` has written with --data, or use the tools of NATS, such as `nats stream backup`",
        )
    return directory


def _find_address(token: str | None, ca: Path | None, data: str | None, config: str | None) -> ServiceAddress:
    directory = find_data_directory(data, os.environ, find_settings_file(config, os.environ, Path.cwd()))
    root = ephemeral_root(os.environ) if directory is None else None
    found, service = find_service(directory or user_data_directory(os.environ), root=root)
    token = token or read_token(found / TOKEN_FILE)
    pinned = Path(service.certificate) if service.certificate is not None else None
    return ServiceAddress(service.operator_url, token, ca, pinned)
