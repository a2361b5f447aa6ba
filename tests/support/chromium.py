"""A real Chromium without a window, controlled through its DevTools protocol.

The protocol is JSON over two pipes (`--remote-debugging-pipe`): no port is open, and no further package is needed.
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

GUARD = 60
"""Seconds after which Chromium counts as hanging."""

OPTIONS = (
    "--headless",
    "--no-sandbox",  # the sandbox does not work for root, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)


NAVIGATED = ("Inspected target navigated or closed", "Cannot find default execution context")
"""Messages of Chromium about a call during which another page was shown."""


class PageLeftError(Exception):
    """Another page was shown during a call."""


class Chromium:
    """A tab that records the requests and errors of its pages and of their workers and frames."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.requests: list[str] = []
        """The URLs that were requested."""
        self.errors: list[str] = []
        """Errors in the console, uncaught exceptions and failed requests."""
        self._to_browser = to_browser
        self._from_browser = from_browser
        self._received = b""
        self._calls = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._loads = 0
        self._session: str | None = None
        self.open_tab()

    def open_tab(self) -> str:
        """Open another tab and use it; return its name for `use_tab`."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self.call("Page.enable")
        self._record(self._session)
        return self._session

    @property
    def tab(self) -> str:
        """The name of the tab in use."""
        return self._session or ""

    def use_tab(self, tab: str) -> None:
        """Use another open tab, which becomes visible."""
        self._session = tab
        self.call("Page.bringToFront")

    def emulate(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window, and the theme that the user prefers."""
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def click(self, selector: str) -> None:
        """Click on the first element that matches, as soon as there is a visible one."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.wait_until(f"{element}?.checkVisibility()")
        self.evaluate(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({element}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type a text into the focused element."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key, such as Tab, Enter, Escape or /."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = codes.get(key, ord(key[0]))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol, and return its result."""
        call = self._send(method, parameters, self._session)
        self.wait_for(lambda: call in self._replies)
        reply = self._replies.pop(call)
        if reply.get("error", {}).get("message") in NAVIGATED:
            raise PageLeftError
        assert "error" not in reply, (method, parameters, reply)
        return dict(reply["result"])

    def open(self, url: str) -> None:
        """Show a page, and wait until it has loaded."""
        loads = self._loads
        self.call("Page.navigate", url=url)
        self.wait_for(lambda: self._loads > loads)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked after each message of the browser."""
        guard = time.monotonic() + GUARD
        while not condition():
            self._receive(guard)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; await a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true in the page."""
        guard = time.monotonic() + GUARD
        while not self._is_true(expression):
            assert time.monotonic() < guard, f"timeout: waited in Chromium for: {expression}"

    def _is_true(self, expression: str) -> bool:
        """Return whether an expression is true now or after a moment."""
        try:
            return bool(
                self.evaluate(f"Boolean({expression})")
                or self.evaluate("new Promise(resolve => setTimeout(resolve, 10))")
            )
        except PageLeftError:
            return False

    def screenshot(self, file: Path, *, whole_page: bool = False) -> None:
        """Write a screenshot of the tab, or of the whole page beyond the window, into a PNG file."""
        file.write_bytes(b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole_page)["data"]))

    def _record(self, session: str) -> None:
        """Record the requests and errors of a page, frame or worker, and of workers and frames that it starts."""
        attach = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        for method in ("Network.enable", "Runtime.enable", "Log.enable"):
            self._send(method, {}, session)
        self._send("Target.setAutoAttach", attach, session)
        self._send("Runtime.runIfWaitingForDebugger", {}, session)

    def _send(self, method: str, parameters: dict[str, Any], session: str | None) -> int:
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        return self._calls

    def _receive(self, guard: float) -> None:
        """Take the next messages."""
        ready, _, _ = select.select([self._from_browser], [], [], max(0, guard - time.monotonic()))
        assert ready, "Chromium hangs"
        received = os.read(self._from_browser, 1 << 20)
        assert received, "Chromium has ended"
        *messages, self._received = (self._received + received).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._replies[message["id"]] = message
            else:
                self._take_event(message["method"], message["params"])

    def _take_event(self, method: str, event: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loads += 1
            case "Target.attachedToTarget":
                self._record(event["sessionId"])
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])
            case "Network.loadingFailed" if not event.get("canceled"):
                self.errors.append(f"request failed: {event['errorText']}")
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(event["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if event["type"] in {"error", "assert"}:
                self.errors.append(json.dumps(event["args"]))
            case "Log.entryAdded" if event["entry"]["level"] == "error":
                self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
            case _:
                pass


@contextmanager
def run_chromium(directory: Path) -> Iterator[Chromium]:
    """Run Chromium with a new profile in a directory; skip the test if it is not installed."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium; type: sudo apt-get install chromium")
    to_read, to_browser = _pipe()
    from_browser, to_write = _pipe()
    # Chromium expects the pipes as descriptors 3 and 4.
    script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    command = ["bash", "-c", script, "bash", program, *OPTIONS, f"--user-data-dir={directory}"]
    with (directory / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(
            command,
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"HOME": str(directory)},
            start_new_session=True,
        )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Chromium(to_browser, from_browser)
    finally:
        os.close(to_browser)  # tells Chromium to end
        try:
            browser.wait(GUARD)
        finally:
            browser.kill()
            browser.wait()
            os.close(from_browser)


def _pipe() -> tuple[int, int]:
    """Create a pipe whose descriptors differ from those of Chromium's pipes."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return read, write
