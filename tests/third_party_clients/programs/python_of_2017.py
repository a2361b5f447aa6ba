"""Polls once and approves the events of this machine. As in 2017, it uses the standard library only.

Arguments: the URL of the events, and the name of this machine in `Resources`. Prints the events and approvals.
"""

import json
import sys
from typing import Any
from urllib.request import Request, urlopen


def query(url: str) -> Any:
    """Fetch the document."""
    with urlopen(Request(url, headers={"Metadata": "true"})) as response:
        return json.loads(response.read())


def approve(url: str, incarnation: int, event: str) -> int:
    """Approve an event."""
    asked = {"DocumentIncarnation": incarnation, "StartRequests": [{"EventId": event}]}
    with urlopen(Request(url, data=json.dumps(asked).encode(), headers={"Metadata": "true"})) as response:
        return int(response.status)


def main(url: str, name: str) -> None:
    """Poll once, approve and print."""
    document = query(url)
    mine = [event["EventId"] for event in document["Events"] if name in event["Resources"]]
    answers = [approve(url, document["DocumentIncarnation"], event) for event in mine]
    json.dump({"seen": len(document["Events"]), "mine": mine, "answers": answers}, sys.stdout)


main(*sys.argv[1:])
