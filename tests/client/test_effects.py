"""Effects of a client flow, as plain values."""

from forewarn.client.effects import Command, Failure, Log, Reply, Request, Response, Send, Sleep, Yield
from forewarn.client.errors import TooSlow


def test_request_has_no_headers_and_no_body_by_default() -> None:
    assert Request("GET", "/x") == Request(method="GET", target="/x", headers=(), body=None)
    assert Sleep(1.5) == Sleep(seconds=1.5, error=None)


def test_effects_and_replies_are_matched_by_their_class() -> None:
    """A driver decides by the class what to do: equal fields are not enough."""
    values: list[Command | Reply] = [
        Send(Request("GET", "/x"), 5.0),
        Sleep(1.0),
        Log("x"),
        Yield(()),
        Response(200, {}, b""),
        Failure(TooSlow, "x"),
    ]
    found = []
    for value in values:
        match value:
            case Send(Request(method="GET"), timeout):
                found.append(("send", timeout))
            case Sleep(seconds):
                found.append(("sleep", seconds))
            case Log(message):
                found.append(("log", float(len(message))))
            case Yield(changes):
                found.append(("yield", float(len(changes))))
            case Response(status):
                found.append(("response", float(status)))
            case Failure():
                found.append(("failure", 0.0))
            case _:
                raise AssertionError(value)
    assert found == [("send", 5.0), ("sleep", 1.0), ("log", 1.0), ("yield", 0.0), ("response", 200.0), ("failure", 0.0)]
