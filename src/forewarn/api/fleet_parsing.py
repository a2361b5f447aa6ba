"""Reading a fleet file in a process of its own: a hundred thousand VMs keep Python busy for many seconds.

`parse_fleet` runs there; what it returns and raises can be sent from process to process.
"""

import secrets
from datetime import datetime
from enum import StrEnum

import msgspec

from forewarn.api.fleet_file import Birth, read_fleet_file, read_fleet_json
from forewarn.api.written import FleetFileError

_encode = msgspec.json.Encoder().encode


class FleetFormat(StrEnum):
    """How a fleet file is written."""

    TOML = "toml"
    JSON = "json"


def parse_fleet(content: bytes, *, file: str, format_: FleetFormat, at: datetime) -> list[bytes]:
    """Read a fleet file; return its scopes, each encoded as JSON. Raises FleetFileError where it is wrong."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FleetFileError(file, "", f"this is not UTF-8: {error}") from error
    birth = Birth(at=at, new_epoch=lambda: secrets.token_hex(6))
    read = read_fleet_json if format_ is FleetFormat.JSON else read_fleet_file
    return [_encode(scope) for scope in read(text, file=file, birth=birth)]
