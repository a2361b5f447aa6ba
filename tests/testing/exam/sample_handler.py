"""Sample event handler for the exam that uses the bare protocol and makes one given mistake.

Run as a program: its argument is the mistake, or `none`. EXAM_URL is the endpoint."""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

PATH = "/metadata/scheduledevents?api-version=2020-07-01"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
TYPES = {"Freeze": 1, "Reboot": 2, "Redeploy": 3, "Preempt": 4, "Terminate": 5}
OLD_PATH = "/metadata/scheduledevents?api-version=2017-08-01"
SLOW_AND_CAREFUL = "polls slowly and approves at the third look"
PAUSES = {"polls without a pause": 0.01, "polls rarely": 60.0, SLOW_AND_CAREFUL: 4.0}
AT_THE_LAST_MOMENT = 3.0
PATIENT = {"approves at the last moment", "trusts the Date header"}

Event = dict[str, Any]


class Handler:
    """Polls, prepares, approves and recovers; `error` is its mistake."""

    def __init__(self, error: str) -> None:
        self.error = error
        self.url = os.environ.get("EXAM_URL", "http://169.254.169.254")
        self.date = datetime.now(UTC)
        proxies = None if error == "uses the proxy" else urllib.request.ProxyHandler({})
        self.opener = urllib.request.build_opener(*([proxies] if proxies else []))
        self.name = (
            socket.gethostname() if error == "takes its host name for the VM's" else self.ask(NAME_PATH).decode()
        )
        self.approved: set[str] = set()
        self.open: set[str] = set()
        self.ever: list[str] = []
        self.looks: dict[str, int] = {}
        self.highest = 0

    def ask(self, path: str, body: bytes | None = None, *, header: bool = True) -> bytes:
        request = urllib.request.Request(self.url + path, data=body, headers={"Metadata": "true"} if header else {})
        with self.opener.open(request, timeout=10) as response:
            content: bytes = response.read()
            self.date = parsedate_to_datetime(response.headers["Date"])
            return content

    def approve(self, *ids: str) -> None:
        body = json.dumps({"StartRequests": [{"EventId": id_} for id_ in ids]}).encode()
        self.ask(PATH, body, header=self.error != "approves without the header")
        self.approved.update(ids)

    def mark(self, variable: str) -> None:
        path = os.environ.get(variable)
        if self.error == "marks its working directory":
            path = {"FOREWARN_EXAM_PREPARED": "prepared-here", "FOREWARN_EXAM_RECOVERED": "recovered-here"}[variable]
        if path:
            with Path(path).open("a") as marker:
                marker.write("x")

    def look(self) -> None:
        body = self.ask(OLD_PATH if self.error == "asks with an old version" else PATH)
        if not body and self.error != "crashes on an empty body":
            return
        document = json.loads(body)
        if self.error == "ignores lower incarnations" and document["DocumentIncarnation"] < self.highest:
            return
        self.highest = max(self.highest, document["DocumentIncarnation"])
        self.handle(document["Events"])

    def handle(self, events: list[Event]) -> None:
        if self.error == "reads the first event only":
            events = events[:1]
        own = [event for event in events if self.name in event["Resources"] or self.error == "approves everything"]
        if self.error == "crashes on unknown types":
            events.sort(key=lambda event: TYPES[event["EventType"]])
        for event in own:
            self.consider(event)
        for id_ in self.open - {event["EventId"] for event in events}:
            self.open.discard(id_)
            if self.error != "does not recover":
                self.mark("FOREWARN_EXAM_RECOVERED")
            if self.error == "exits after the first event":
                sys.exit(0)
        if self.error == "approves ended events" and self.ever:
            self.approve(*self.ever)

    def consider(self, event: Event) -> None:
        id_ = event["EventId"]
        if id_ not in self.ever:
            self.ever.append(id_)
        self.open.add(id_)
        is_waiting = event["EventStatus"] == "Scheduled" or self.error == "approves started events"
        is_known = id_ in self.approved and self.error != "forgets its approvals"
        self.looks[id_] = self.looks.get(id_, 0) + 1
        is_too_early = self.error == SLOW_AND_CAREFUL and self.looks[id_] < 3
        if is_known or not is_waiting or is_too_early or not self.is_time(event):
            return
        if self.error != "prepares too late":
            self.mark("FOREWARN_EXAM_PREPARED")
        if self.error != "approves nothing":
            self.approve(id_)
        self.approved.add(id_)
        if self.error == "prepares too late":
            time.sleep(0.1)
            self.mark("FOREWARN_EXAM_PREPARED")

    def is_time(self, event: Event) -> bool:
        if self.error not in PATIENT or not event["NotBefore"]:
            return True
        now = self.date if self.error == "trusts the Date header" else datetime.now(UTC)
        left = parsedate_to_datetime(event["NotBefore"]) - now
        return left.total_seconds() <= AT_THE_LAST_MOMENT

    def run(self) -> None:
        while True:
            try:
                self.look()
            except (OSError, urllib.error.URLError, ValueError) as trouble:
                if self.error == "crashes on an empty body":
                    raise
                sys.stderr.write(f"{trouble}\n")
                if self.error == "sleeps after errors":
                    time.sleep(20)
            if self.error == "hangs":
                time.sleep(3600)
            if self.error == "prints a lot":
                sys.stdout.write("no events\n" * 20_000)
            time.sleep(PAUSES.get(self.error, 0.3))


if __name__ == "__main__":
    Handler(sys.argv[1]).run()
