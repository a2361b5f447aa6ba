"""The program that sends messages with Apprise: its exit codes."""

import io
import sys
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest

from forewarn.agent.handlers.apprise_main import APPRISE_MISSING, INVALID_URL, SEND_FAILED, Message, main


class FakeApprise:
    """A library that knows one service, which takes messages unless it is down."""

    is_down = False
    sent: ClassVar[list[tuple[str, str]]]

    def add(self, url: str) -> bool:
        return url.startswith("good://")

    def notify(self, *, title: str, body: str) -> bool:
        self.sent.append((title, body))
        return not self.is_down


@pytest.fixture
def apprise(monkeypatch: pytest.MonkeyPatch) -> type[FakeApprise]:
    class Apprise(FakeApprise):
        pass

    Apprise.sent = []
    monkeypatch.setitem(sys.modules, "apprise", SimpleNamespace(Apprise=Apprise))
    return Apprise


def send(monkeypatch: pytest.MonkeyPatch, message: Message) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(msgspec.json.encode(message))))
    return main()


def test_message_is_sent_to_all_urls(monkeypatch: pytest.MonkeyPatch, apprise: type[FakeApprise]) -> None:
    message = Message(urls=["good://a", "good://b"], title="T", body="B")
    assert (send(monkeypatch, message), apprise.sent) == (0, [("T", "B")])
    apprise.is_down = True
    assert send(monkeypatch, message) == SEND_FAILED


def test_urls_are_only_validated_without_a_body(monkeypatch: pytest.MonkeyPatch, apprise: type[FakeApprise]) -> None:
    assert (send(monkeypatch, Message(urls=["good://a"])), apprise.sent) == (0, [])


def test_invalid_url_is_reported_only_by_its_number(
    monkeypatch: pytest.MonkeyPatch, apprise: type[FakeApprise], capsys: pytest.CaptureFixture[str]
) -> None:
    assert send(monkeypatch, Message(urls=["good://a", "bad://secret"], body="B")) == INVALID_URL
    assert (capsys.readouterr().out, apprise.sent) == ("2\n", [])


def test_missing_library_has_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert send(monkeypatch, Message(urls=[], body="B")) == APPRISE_MISSING
