#!/usr/bin/env python3
"""Lists the events that this VM is told of, and approves those that affect it. Needs nothing but Python."""

import json
import os
import sys
import time
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

ENDPOINT = os.environ.get("FOREWARN_ENDPOINT", "http://169.254.169.254")
EVENTS = f"{ENDPOINT}/metadata/scheduledevents?api-version=2020-07-01"
NAME = f"{ENDPOINT}/metadata/instance/compute/name?api-version=2020-09-01&format=text"

# A proxy would ask about itself: the endpoint is always asked directly.
direct = build_opener(ProxyHandler({}))

# An event that was approved may have to wait for other VMs: once is enough.
approved: set[str] = set()


def ask(url: str, body: bytes | None = None) -> str:
    """Send a GET, or a POST if there is a body. The first answer of the day can take two minutes."""
    with direct.open(Request(url, body, {"Metadata": "true"}), timeout=130) as answer:
        return answer.read().decode()


def is_in(resources: list[str], name: str) -> bool:
    """Tell whether the VM is among them; the first version of the protocol puts an underscore before its name."""
    return name.removeprefix("_") in [resource.removeprefix("_") for resource in resources]


def look() -> None:
    """List the events, and approve those that wait for this VM."""
    name = ask(NAME)
    # The body is empty as long as the service has not begun to watch over this VM.
    events = json.loads(ask(EVENTS) or '{"Events": []}')["Events"]
    mine = [event for event in events if is_in(event["Resources"], name)]
    for event in events:
        whose = "this VM" if event in mine else "others"
        print(event["EventId"], event["EventStatus"], event["EventType"], whose)

    scheduled = [event["EventId"] for event in mine if event["EventStatus"] == "Scheduled"]
    waiting = [id_ for id_ in scheduled if id_ not in approved]
    if waiting:
        # Here is the place to bring everything to safety: after the approval the events start.
        ask(EVENTS, json.dumps({"StartRequests": [{"EventId": id_} for id_ in waiting]}).encode())
        approved.update(waiting)
    for id_ in waiting:
        print("approved", id_)


def main() -> None:
    """Look every second, or once."""
    if sys.argv[1:] == ["once"]:
        look()
        return
    while True:
        try:
            look()
        except (OSError, HTTPException, ValueError) as error:
            print("no valid answer, asking again:", error, file=sys.stderr)
        time.sleep(1)


main()
