"""How a command reaches the service: by its URL, or by looking for it on this machine."""

import os
from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

from forewarn.api.client import TIMEOUT, ApiClient
from forewarn.api.errors import UnusableToken
from forewarn.api.local import TOKEN_FILE, ephemeral_root, find_service, read_token
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import Ca, Config, Data, Shown, Token, TokenFile, Url, option, with_options
from forewarn.cli.output import Output
from forewarn.settings import find_data_directory, find_settings_file, user_data_directory

P = ParamSpec("P")

WHERE = (
    option("url", Url),
    option("token", Token),
    option("token_file", TokenFile),
    option("ca", Ca),
    option("data", Data),
    option("config", Config),
)
OUTPUT = option("output", Shown, Output.TABLE)


class Asked(NamedTuple):
    """What a command gets for those options: the service, and how to show what it says."""

    api: ApiClient
    output: Output


def asks_service(command: Callable[Concatenate[Asked, P], None]) -> Callable[..., None]:
    """Give a command the options that lead to the service, and in their place the service."""

    @wraps(command)
    def with_service(output: Output, **given: Any) -> None:
        where = {item.name: given.pop(item.name) for item in WHERE}
        command(Asked(connect(**where), output), **given)  # type: ignore[call-arg]  # the rest is the command's own

    _, *own = signature(command).parameters.values()
    return with_options(with_service, (*own, *WHERE, OUTPUT))


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
    """Make a client of the service that the options name, else of the one that runs on this machine."""
    if token is None and token_file is not None:
        token = _token_in(token_file)
    if url is not None:
        if token is None:
            raise Stop(Exit.USAGE, "--url needs a token: set FOREWARN_TOKEN, or say --token-file")
        return ApiClient(url, token, ca=ca, timeout=timeout)
    directory = find_data_directory(data, os.environ, find_settings_file(config, os.environ, Path.cwd()))
    root = ephemeral_root(os.environ) if directory is None else None
    found, service = find_service(directory or user_data_directory(os.environ), root=root)
    token = token or read_token(found / TOKEN_FILE)
    pinned = Path(service.certificate) if service.certificate is not None else None
    return ApiClient(service.operator_url, token, ca=ca, pinned=pinned, timeout=timeout)


def _token_in(file: Path) -> str:
    try:
        return read_token(file)
    except UnusableToken as error:
        raise Stop(Exit.USAGE, f"--token-file: {error}") from None
