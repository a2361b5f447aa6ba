"""Asks once what is planned, and approves what concerns this machine. As in 2017: nothing but the standard library.

Arguments: the URL of the events, and the name of this machine as `Resources` would have it. Prints what it saw and did.
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
    """Let an event start."""
    asked = {"DocumentIncarnation": incarnation, "StartRequests": [{"EventId": event}]}
    with urlopen(Request(url, data=json.dumps(asked).encode(), headers={"Metadata": "true"})) as response:
        return int(response.status)


def main(url: str, name: str) -> None:
    """Do it once."""
    document = query(url)
    mine = [event["EventId"] for event in document["Events"] if name in event["Resources"]]
    answers = [approve(url, document["DocumentIncarnation"], event) for event in mine]
    json.dump({"seen": len(document["Events"]), "mine": mine, "answers": answers}, sys.stdout)


main(*sys.argv[1:])
