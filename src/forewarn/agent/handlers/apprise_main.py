"""Subprocess that sends a message with Apprise; message and URLs come on standard input, so that no secret is in the
arguments.

Apprise needs as much memory as the whole agent, and its requests cannot be cancelled: both end with this process."""

import logging
import sys

import msgspec

APPRISE_MISSING, INVALID_URL, SEND_FAILED = 3, 4, 75
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
        return APPRISE_MISSING
    # It logs URLs that it does not know, with the passwords in them.
    logging.getLogger("apprise").disabled = True
    services = Apprise()
    for number, url in enumerate(message.urls, start=1):
        if not services.add(url):
            sys.stdout.write(f"{number}\n")
            return INVALID_URL
    if message.body is None or services.notify(title=message.title, body=message.body):
        return 0
    return SEND_FAILED


if __name__ == "__main__":
    sys.exit(main())
