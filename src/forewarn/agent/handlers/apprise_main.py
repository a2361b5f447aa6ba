"""Subprocess that sends a message with Apprise. It reads message and URLs from standard input: no secret is in the
arguments.

Apprise needs as much memory as the whole agent, and its requests cannot be cancelled: both end with this process."""

import logging
import sys

import msgspec

APPRISE_MISSING, INVALID_URL, SEND_FAILED = 3, 4, 75
"""Exit codes: Apprise is not installed; a URL is not valid (its number is printed); not all messages were sent."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The message and its recipients. Without a body nothing is sent: the URLs are only validated."""

    urls: list[str]
    title: str = ""
    body: str | None = None


def main() -> int:
    """Send the message to all URLs, and return the exit code."""
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=Message)
    try:
        from apprise import Apprise
    except ModuleNotFoundError:
        return APPRISE_MISSING
    # Apprise logs invalid URLs including the passwords in them.
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
