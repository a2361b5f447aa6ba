"""The program that tells people by Apprise: what and whom is on its standard input, so that it stands in no argument.

Apprise needs as much memory as the whole agent, and its requests cannot be cancelled: both end with this program.
"""

import logging
import sys

import msgspec

NOT_THERE, NOT_KNOWN, NOT_TOLD = 3, 4, 75
"""How it ends if Apprise is missing, if it does not know a URL (whose number is printed), if somebody was not told."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is told, and to whom. Without a body nobody is told anything: the URLs are only looked at."""

    urls: list[str]
    title: str = ""
    body: str | None = None


def main() -> int:
    """Tell everybody, and return how it went."""
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=Message)
    try:
        from apprise import Apprise
    except ModuleNotFoundError:
        return NOT_THERE
    # It logs URLs that it does not know, with the passwords in them.
    logging.getLogger("apprise").disabled = True
    services = Apprise()
    for number, url in enumerate(message.urls, start=1):
        if not services.add(url):
            sys.stdout.write(f"{number}\n")
            return NOT_KNOWN
    if message.body is None or services.notify(title=message.title, body=message.body):
        return 0
    return NOT_TOLD


if __name__ == "__main__":
    sys.exit(main())
