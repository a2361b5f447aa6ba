"""The seven api-versions of Scheduled Events, and what each of them brought (PROTOCOL §2).

A version is a date: in the order of their text, the younger one is the greater.
"""

from forewarn.core.event import EventType

PREVIEW = "2017-03-01"
"""The version in which names of IaaS VMs begin with an underscore and POST needs no `Metadata` header."""

VERSIONS: tuple[str, ...] = (
    PREVIEW,
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
NEWEST = VERSIONS[-1]

PREEMPT_SINCE = "2017-11-01"
TERMINATE_SINCE = "2019-01-01"
DESCRIPTION_SINCE = "2019-04-01"
SOURCE_SINCE = "2019-08-01"
DURATION_SINCE = "2020-07-01"

TYPE_SINCE: dict[EventType, str] = {
    EventType.FREEZE: PREVIEW,
    EventType.REBOOT: PREVIEW,
    EventType.REDEPLOY: PREVIEW,
    EventType.PREEMPT: PREEMPT_SINCE,
    EventType.TERMINATE: TERMINATE_SINCE,
}
