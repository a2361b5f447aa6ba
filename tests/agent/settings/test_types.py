"""Value types of the agent's settings."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from forewarn.agent.phases import Phase
from forewarn.agent.settings import types
from forewarn.agent.settings.types import Address, ApprovalMode, parse_address
from forewarn.core.event import EventType, Source
from forewarn.settings.types import SettingType


def parser(annotation: object) -> Callable[[object], object]:
    return next(item for item in get_args(annotation) if isinstance(item, SettingType)).parse


ACCEPTED: dict[str, tuple[object, object, object]] = {
    "text": (types.TextOrNone, "x", "x"),
    "none": (types.TextOrNone, "none", None),
    "empty prefix": (types.Prefix, "", ""),
    "directory": (types.Directory, "/state", Path("/state")),
    "interval": (types.Interval, "0.1s", timedelta(seconds=0.1)),
    "up to a day": (types.UpToDay, "0s", timedelta(0)),
    "tries": (types.Tries, "100", 100),
    "approval": (types.Approvers, "LEADER", ApprovalMode.LEADER),
    "agents of a table": (types.Agents, {"web_1": "h:1"}, (("web_1", Address("h", 1)),)),
    "agents of a variable": (
        types.Agents,
        "a=h:1, b=[::1]:2",
        (("a", Address("h", 1)), ("b", Address("::1", 2))),
    ),
    "types": (types.Types, "reboot,Freeze,Reboot", (EventType.REBOOT, EventType.FREEZE)),
    "sources": (types.Sources, ["User"], (Source.USER,)),
    "phases": (types.Phases, ["prepare"], (Phase.PREPARE,)),
    "handlers": (types.HandlerNames, ["a", "a", "b"], ("a", "b")),
    "units": (types.Units, ["nginx.service", "a@b.timer"], ("nginx.service", "a@b.timer")),
    "servers": (types.Servers, "web/web_0", ("web/web_0",)),
    "socket": (types.SocketAddress, "/run/s.sock", Path("/run/s.sock")),
    "socket address": (types.SocketAddress, "h:1", Address("h", 1)),
    "url": (types.UrlOrNone, "https://h/x", "https://h/x"),
    "header": (types.HeaderName, "X-Key", "X-Key"),
    "method": (types.Method, "PUT", "PUT"),
    "template": (types.TemplateText, "$type $$5", "$type $$5"),
    "web path": (types.WebPath, "/serving", "/serving"),
}
REFUSED: dict[str, tuple[object, tuple[object, ...]]] = {
    "text": (types.TextOrNone, ("", "a\0b", "x" * 16_385, 1)),
    "interval": (types.Interval, ("0.05s", "6m")),
    "up to a day": (types.UpToDay, ("25h", "soon")),
    "tries": (types.Tries, (-1, 101, True, "x")),
    "approval": (types.Approvers, ("somebody",)),
    "agents": (types.Agents, ("a", "a=h", "=h:1", {"a": "h:0"})),
    "types": (types.Types, ([], "Hibernate")),
    "handlers": (types.HandlerNames, ("a", [1])),
    "units": (types.Units, ("nginx", "a b.service")),
    "servers": (types.Servers, ("web",)),
    "url": (types.UrlOrNone, ("ftp://h", "http://", "http://h:0")),
    "header": (types.HeaderName, ("a:b",)),
    "method": (types.Method, ("HEAD",)),
    "template": (types.TemplateText, ("$nothing", "$")),
    "web path": (types.WebPath, ("serving", "/a b")),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_value_is_parsed(case: str) -> None:
    annotation, written, value = ACCEPTED[case]
    assert parser(annotation)(written) == value


@pytest.mark.parametrize(("case", "written"), [(case, value) for case in REFUSED for value in REFUSED[case][1]])
def test_value_that_is_not_allowed_is_refused(case: str, written: object) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        parser(REFUSED[case][0])(written)


@pytest.mark.parametrize("text", ["h:1", "10.0.0.1:65535", "[::1]:80"])
def test_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["h", "h:0", "h:65536", ":1", "a b:1", "h:x"])
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_address(text)
