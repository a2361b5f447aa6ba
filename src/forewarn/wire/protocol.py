"""Constants of the guest protocol: api-versions and what each introduced (PROTOCOL §2), limits of both sides.

A version is a date: compared as text, the newer one is greater."""

from forewarn.core.event import EventType

PREVIEW_VERSION = "2017-03-01"
"""The version in which names of IaaS VMs begin with an underscore and POST needs no `Metadata` header."""

VERSIONS: tuple[str, ...] = (
    PREVIEW_VERSION,
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
NEWEST_VERSION = VERSIONS[-1]

PREEMPT_SINCE = "2017-11-01"
TERMINATE_SINCE = "2019-01-01"
DESCRIPTION_SINCE = "2019-04-01"
SOURCE_SINCE = "2019-08-01"
DURATION_SINCE = "2020-07-01"

TYPE_SINCE: dict[EventType, str] = {
    EventType.FREEZE: PREVIEW_VERSION,
    EventType.REBOOT: PREVIEW_VERSION,
    EventType.REDEPLOY: PREVIEW_VERSION,
    EventType.PREEMPT: PREEMPT_SINCE,
    EventType.TERMINATE: TERMINATE_SINCE,
}


MAX_WAIT = 60
"""How many seconds an answer is held at the most (PROTOCOL §9)."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some programs put before JSON; it is passed over."""
