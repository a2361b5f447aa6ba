"""A mock endpoint that keeps to the protocol; subclasses override one part to make it wrong."""

import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

VERSIONS = ["2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"]
FIELDS_SINCE = {"Description": "2019-04-01", "EventSource": "2019-08-01", "DurationInSeconds": "2020-07-01"}
TYPES_SINCE = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}
JSON = "application/json; charset=utf-8"
DATE = "Mon, 02 Mar 2026 10:00:00 GMT"
NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
NO_VERSION = "Bad request. api-version was not specified in the request. For more information refer to aka.ms/azureimds"
INSTANCE = {"compute": {"name": "web-0", "vmId": "13f56399-bd52-4150-9748-7190aae1ff21"}, "network": {"interface": []}}

REASONS = {100: "Continue", 200: "OK", 304: "Not Modified", 400: "Bad Request", 404: "Not Found"}
LARGEST_HEAD, LARGEST_BODY = 16 * 1024, 64 * 1024

Headers = list[tuple[str, str]]


class MockRequest(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    http: str
    headers: Headers

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def path(self) -> str:
        return re.sub("^http://[^/]*", "", self.target).partition("?")[0]

    @property
    def parameters(self) -> list[tuple[str, str]]:
        pairs = parse_qsl(self.target.partition("?")[2], keep_blank_values=True)
        return [(name.lower(), value) for name, value in pairs]

    def parameter(self, name: str) -> list[str]:
        return [value for key, value in self.parameters if key == name]


class MockResponse(NamedTuple):
    """A response without the headers that all responses have."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", JSON),)
    closes: bool = False


class Refused(Exception):
    """The request is refused with this response."""

    def __init__(self, reply: MockResponse) -> None:
        self.reply = reply


def event(type_: str, *, id_: str | None = None, status: str = "Scheduled", vm: str = "web-0") -> dict[str, Any]:
    """Return an event with its keys in the order of the protocol."""
    return {
        "EventId": id_ or str(uuid.uuid4()).upper(),
        "EventStatus": status,
        "EventType": type_,
        "ResourceType": "VirtualMachine",
        "Resources": [vm],
        "NotBefore": "Mon, 02 Mar 2026 10:15:00 GMT" if status == "Scheduled" else "",
        "Description": "A user asked for a restart of the VM.",
        "EventSource": "User",
        "DurationInSeconds": -1,
    }


class MockEndpoint:
    """A correct endpoint. Subclasses override one method to violate one rule."""

    def __init__(self) -> None:
        self.incarnation = 7
        self.events = [event("Reboot"), event("Preempt"), event("Terminate"), event("Redeploy", status="Started")]
        self.events.append(event("Freeze", vm="FrontEnd_IN_0"))
        self.ended: set[str] = set()
        self.lock = threading.Lock()

    # Requests.

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        """Return the response; `body` is None if the request is answered before its body is read."""
        place = self.resolve_path(asked)
        if place is None:
            return error(404, "not found")
        allowed = ("GET", "POST") if place == ["scheduledevents"] else ("GET",)
        self.check_method(asked, allowed)
        self.check_forwarded(asked)
        self.check_header(asked)
        if place == ["versions"]:
            return MockResponse(200, self.encode({"apiVersions": self.versions()}))
        version = self.check_version(asked, is_instance=place[0] == "instance")
        if place[0] == "instance":
            return self.instance(asked, place[1:])
        if asked.method == "POST":
            return self.approve(body)
        return self.query(asked, version)

    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        segments = [unquote(segment) for segment in asked.path.removesuffix("/").split("/")]
        match [segment.lower() for segment in segments]:
            case ["", "metadata", ("scheduledevents" | "versions") as found]:
                return [found]
            case ["", "metadata", "instance", *rest]:
                return ["instance", *rest]
            case _:
                return None

    def check_method(self, asked: MockRequest, allowed: tuple[str, ...]) -> None:
        if asked.method not in allowed:
            raise Refused(MockResponse(405, b"", (("Allow", ", ".join(allowed)),)))

    def check_forwarded(self, asked: MockRequest) -> None:
        if asked.values("x-forwarded-for"):
            raise Refused(error(400, "this was forwarded"))

    def check_header(self, asked: MockRequest) -> None:
        is_waived = asked.method == "POST" and asked.parameter("api-version") == [VERSIONS[0]]
        given = asked.values("metadata")
        if not is_waived and not (given and all(value.lower() == "true" for value in given)):
            raise Refused(MockResponse(400, NO_HEADER))

    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        given = asked.parameter("api-version")
        if given in ([], [""]):
            raise Refused(self.bad_version(400, NO_VERSION))
        if len(given) > 1:
            raise Refused(self.bad_version(400, "twice"))
        is_known = bool(re.fullmatch(r"20[12]\d-\d\d-\d\d", given[0])) if is_instance else given[0] in VERSIONS
        if not is_known:
            raise Refused(self.bad_version(400 if is_instance else 404, "unsupported"))
        return given[0]

    def bad_version(self, status: int, why: str) -> MockResponse:
        newest = ["2020-07-01", "2019-08-01", "2019-04-01"]
        return MockResponse(status, self.encode({"error": why, "newest-versions": newest}))

    def versions(self) -> list[str]:
        return VERSIONS

    # The document.

    def query(self, asked: MockRequest, version: str) -> MockResponse:
        if asked.parameter("wait") and asked.parameter("wait")[0] not in map(str, range(1, 61)):
            return error(400, "wait")
        body = self.encode(self.document(version))
        tag = self.etag(version)
        known = [each.strip().removeprefix("W/") for each in ",".join(asked.values("if-none-match")).split(",")]
        if tag is not None and (tag in known or "*" in known):
            return MockResponse(304, b"", (("ETag", tag),))
        named = () if tag is None else (("ETag", tag),)
        return MockResponse(200, body, (("Content-Type", self.content_type()), *named))

    def document(self, version: str) -> dict[str, Any]:
        shown = [each for each in self.events if self.is_shown(each, version)]
        return {"DocumentIncarnation": self.incarnation, "Events": [self.event(each, version) for each in shown]}

    def is_shown(self, each: dict[str, Any], version: str) -> bool:
        return version >= TYPES_SINCE.get(each["EventType"], "")

    def event(self, each: dict[str, Any], version: str) -> dict[str, Any]:
        shown = {name: value for name, value in each.items() if version >= FIELDS_SINCE.get(name, "")}
        return shown | {"Resources": [self.name(vm, version) for vm in each["Resources"]]}

    def name(self, vm: str, version: str) -> str:
        return vm if version > VERSIONS[0] or "_IN_" in vm else f"_{vm}"

    def encode(self, value: object) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def etag(self, version: str) -> str | None:
        return f'"{self.incarnation}.{version}"'

    def content_type(self) -> str:
        return JSON

    # Approvals.

    def approve(self, body: bytes | None) -> MockResponse:
        ids = self.read_ids(body or b"")
        known = {each["EventId"].upper() for each in self.events} | self.ended
        if not set(ids) <= known:
            return error(400, "unknown event")
        for each in self.events:
            if each["EventId"].upper() in ids and each["EventStatus"] == "Scheduled":
                self.start(each)
        return self.approved()

    def read_ids(self, body: bytes) -> list[str]:
        try:
            told = json.loads(body.removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            raise Refused(error(400, "no JSON")) from None
        requests = told.get("StartRequests") if isinstance(told, dict) else None
        if not isinstance(requests, list):
            raise Refused(error(400, "no list StartRequests"))
        ids = [each.get("EventId") if isinstance(each, dict) else None for each in requests]
        if not all(isinstance(id_, str) and re.fullmatch("[0-9A-Fa-f-]{36}", id_) for id_ in ids):
            raise Refused(error(400, "no EventId"))
        return [id_.upper() for id_ in ids if id_ is not None]

    def start(self, each: dict[str, Any]) -> None:
        each |= {"EventStatus": "Started", "NotBefore": ""}
        self.incarnation += 1

    def approved(self) -> MockResponse:
        return MockResponse(200, b"", ())

    # The instance document.

    def instance(self, asked: MockRequest, path: list[str]) -> MockResponse:
        found: Any = INSTANCE
        for segment in path:
            below = {name.lower(): child for name, child in found.items()} if isinstance(found, dict) else {}
            if segment.lower() not in below:
                return error(404, "nowhere")
            found = below[segment.lower()]
        match asked.parameter("format"):
            case [] | ["json"]:
                return MockResponse(200, self.encode(found))
            case ["text"]:
                text = found if isinstance(found, str) else "\n".join(f"{name}/" for name in found)
                return MockResponse(200, text.encode(), (("Content-Type", "text/plain; charset=utf-8"),))
            case _:
                return error(400, "format")

    # HTTP.

    def serve(self, line: socket.socket) -> None:
        """Answer the requests of one connection."""
        with line, suppress(OSError):
            unread = b""
            while True:
                while b"\r\n\r\n" not in unread and len(unread) <= LARGEST_HEAD:
                    if not (received := line.recv(65_536)):
                        return
                    unread += received
                head, _, unread = unread.partition(b"\r\n\r\n")
                reply, asked, unread = self.read_and_answer(line, head, unread)
                line.sendall(self.written(asked, reply))
                if reply.closes or asked is None or not self.keeps_open(asked):
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(65_536):
                        pass
                    return

    def read_and_answer(
        self, line: socket.socket, head: bytes, unread: bytes
    ) -> tuple[MockResponse, MockRequest | None, bytes]:
        asked = read_head(head)
        if len(head) > LARGEST_HEAD:
            return error(431, "too large")._replace(closes=True), asked, b""
        if asked is None:
            return error(400, "not HTTP")._replace(closes=True), asked, b""
        length = int((asked.values("content-length") or ["0"])[0])
        if length > LARGEST_BODY:
            return error(413, "too large")._replace(closes=True), asked, b""
        if asked.values("expect"):
            try:
                self.expect(asked)
            except Refused as refused:
                return refused.reply._replace(closes=True), asked, b""
            line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(unread) < length:
            if not (received := line.recv(65_536)):
                raise ConnectionAbortedError
            unread += received
        with self.lock:
            try:
                reply = self.answer(asked, unread[:length])
            except Refused as refused:
                reply = refused.reply
        return reply, asked, unread[length:]

    def expect(self, asked: MockRequest) -> None:
        """Refuse invalid requests before reading the body."""
        if asked.values("expect") != ["100-continue"]:
            raise Refused(error(417, "unknown expectation"))
        self.check_forwarded(asked)
        self.check_header(asked)

    def keeps_open(self, asked: MockRequest) -> bool:
        wished = [value.lower() for value in asked.values("connection")]
        return "keep-alive" in wished if asked.http == "1.0" else "close" not in wished

    def written(self, asked: MockRequest | None, reply: MockResponse) -> bytes:
        fields = [*reply.headers, *self.usual_headers(reply)]
        if reply.closes or asked is None or not self.keeps_open(asked):
            fields += self.says_close()
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        has_body = reply.status != 304 and (asked is None or asked.method != "HEAD")
        status = f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Other')}\r\n"
        return f"{status}{lines}\r\n".encode() + (reply.body if has_body else b"")

    def says_close(self) -> Headers:
        return [("Connection", "close")]

    def usual_headers(self, reply: MockResponse) -> Headers:
        fields = [("Date", DATE), ("Server", "IMDS/150.870.65.1854"), ("x-ms-request-id", str(uuid.uuid4()))]
        return fields if reply.status == 304 else [("Content-Length", str(len(reply.body))), *fields]


def error(status: int, why: str) -> MockResponse:
    return MockResponse(status, json.dumps({"error": why}).encode())


def read_head(head: bytes) -> MockRequest | None:
    first, *fields = head.decode("latin-1").split("\r\n")
    found = re.fullmatch(r"([A-Z]+) (\S+) HTTP/(1\.[01])", first)
    if found is None:
        return None
    parted = (field.partition(":") for field in fields)
    return MockRequest(found[1], found[2], found[3], [(name, value.strip()) for name, _, value in parted])


@contextmanager
def run_mock(mock: MockEndpoint) -> Iterator[str]:
    """Run the endpoint on a free port, and yield its URL."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def take() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    line.settimeout(60)
                    threads.append(threading.Thread(target=mock.serve, args=(line,), daemon=True))
                    threads[-1].start()

        taking = threading.Thread(target=take)
        taking.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            # Closing alone does not end a pending accept.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            taking.join()
    for thread in threads:
        thread.join()
