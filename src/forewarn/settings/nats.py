"""NATS settings: the servers of the cluster store, its cell, and how to log in."""

import re
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from forewarn.settings.types import NONE, PathOrNone, SettingType, parse_text

CELL_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
API_PREFIX = re.compile(r"[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+)*")
MAX_SERVERS = 32
SERVER_SCHEMES = frozenset({"nats", "tls"})


def _parse_server(value: object) -> str:
    text = parse_text(value).strip()
    parts = urlsplit(text)
    # Credentials in a URL are not used for servers that the client discovers, so they are refused.
    if parts.scheme not in SERVER_SCHEMES or not parts.hostname or parts.port == 0 or parts.username is not None:
        raise ValueError
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError
    return text


def _parse_servers(value: object) -> tuple[str, ...]:
    if value == NONE:
        return ()
    found = tuple(map(_parse_server, value if isinstance(value, list | tuple) else parse_text(value).split(",")))
    if not 0 < len(found) <= MAX_SERVERS or len(set(found)) < len(found):
        raise ValueError
    return found


def _parse_cell(value: object) -> str:
    if not CELL_NAME.fullmatch(parse_text(value)):
        raise ValueError
    return parse_text(value)


def _parse_replicas(value: object) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else int(parse_text(value))
    if number not in (1, 3, 5):
        raise ValueError
    return number


def _parse_api_prefix(value: object) -> str:
    if not API_PREFIX.fullmatch(parse_text(value)):
        raise ValueError
    return parse_text(value)


def _parse_user(value: object) -> str | None:
    return None if value == NONE else parse_text(value)


Servers = Annotated[
    tuple[str, ...],
    SettingType(
        _parse_servers,
        f'addresses of NATS servers without user and password, such as ["nats://10.0.0.1:4222"], or "{NONE}"',
    ),
]
Cell = Annotated[str, SettingType(_parse_cell, "a name of at most 32 letters, digits, '_' and '-'")]
Replicas = Annotated[int, SettingType(_parse_replicas, "1, 3 or 5")]
ApiPrefix = Annotated[
    str, SettingType(_parse_api_prefix, "the beginning of the subjects of the JetStream API, such as $JS.API")
]
User = Annotated[str | None, SettingType(_parse_user, f'the name of a NATS user, or "{NONE}"')]


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the cluster store. Secrets are in files, and only their paths are here."""

    servers: Servers = ()
    cell: Cell = "main"
    replicas: Replicas = 3
    api_prefix: ApiPrefix = "$JS.API"
    user: User = None
    password_file: PathOrNone = None
    token_file: PathOrNone = None
    nkey_file: PathOrNone = None
    credentials_file: PathOrNone = None
    ca_file: PathOrNone = None
    certificate: PathOrNone = None
    key: PathOrNone = None
