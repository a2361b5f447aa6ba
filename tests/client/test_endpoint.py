"""The endpoint: parsing, precedence, and options of the client."""

import math
from typing import Any

import pytest

from forewarn.client import NotAnEndpoint, ScheduledEvents, Unreachable
from forewarn.client.endpoint import Endpoint, parse_endpoint, resolve_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint", "shown"),
    [
        ("169.254.169.254", Endpoint("169.254.169.254", 80), "http://169.254.169.254"),
        ("127.0.0.1:8180", Endpoint("127.0.0.1", 8180), "http://127.0.0.1:8180"),
        ("http://127.0.0.1:8180", Endpoint("127.0.0.1", 8180), "http://127.0.0.1:8180"),
        ("http://127.0.0.1:8180/", Endpoint("127.0.0.1", 8180), "http://127.0.0.1:8180"),
        ("http://e:8180/vm/web-0", Endpoint("e", 8180, "/vm/web-0"), "http://e:8180/vm/web-0"),
        ("http://e/vm/web/web-0/", Endpoint("e", 80, "/vm/web/web-0"), "http://e/vm/web/web-0"),
        ("HTTP://Host", Endpoint("host", 80), "http://host"),
        ("[::1]:81", Endpoint("::1", 81), "http://[::1]:81"),
        ("http://[fe80::1]", Endpoint("fe80::1", 80), "http://[fe80::1]"),
        ("http://[fe80::1%eth0]:8180", Endpoint("fe80::1%eth0", 8180), "http://[fe80::1%eth0]:8180"),
        (" http://127.0.0.1:8180\n", Endpoint("127.0.0.1", 8180), "http://127.0.0.1:8180"),
    ],
)
def test_endpoint_is_parsed(text: str, endpoint: Endpoint, shown: str) -> None:
    assert (parse_endpoint(text), str(parse_endpoint(text))) == (endpoint, shown)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "http://", "https://127.0.0.1", "ftp://127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:99999",
        "http://127.0.0.1/metadata/scheduledevents", "http://127.0.0.1?api-version=1", "http://me@127.0.0.1", "[::1",
        "http://127.0.0.1#x", "a b", "::1", "http://[]", "http://[::1]x", "127.0.0.1:65536", "127.0.0.1:",
        "127.0.0.1:٣", "http://e/vm", "http://e/vm/a/b/c", "http://e/vm/a/../b", "host\r\nX: y", "x" * 300,
    ],
)  # fmt: skip
def test_invalid_endpoint_is_refused_by_the_constructor(text: str) -> None:
    with pytest.raises(NotAnEndpoint, match=r"is not a metadata endpoint; write it like"):
        ScheduledEvents(text)


def test_argument_overrides_environment_and_default_address() -> None:
    environ = {"FOREWARN_ENDPOINT": "http://127.0.0.1:1"}
    found = [resolve_endpoint("host", environ), resolve_endpoint(None, environ), resolve_endpoint(None, {})]
    assert [str(endpoint) for endpoint in found] == ["http://host", "http://127.0.0.1:1", "http://169.254.169.254"]
    assert resolve_endpoint(None, {"FOREWARN_ENDPOINT": ""}) == Endpoint("169.254.169.254", 80)


@pytest.mark.parametrize("host", ["x" * 64 + ".invalid", "a..b"])
def test_name_without_address_is_unreachable(host: str) -> None:
    with ScheduledEvents(host, retry_for=0.0) as se, pytest.raises(Unreachable):
        se.get()


@pytest.mark.parametrize(
    "setting",
    [
        {"timeout": 0.0},
        {"timeout": math.nan},
        {"first_timeout": -1.0},
        {"interval": 0.0},
        {"interval": math.inf},
        {"wait": 61},
        {"retry_for": -1.0},
        {"retry_for": math.nan},
    ],
    ids=str,
)
def test_invalid_options_are_refused_by_the_constructor(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="seconds"):
        ScheduledEvents("127.0.0.1", **setting)
