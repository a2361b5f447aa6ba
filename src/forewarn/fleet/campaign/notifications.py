"""Delivery of a campaign's notifications to webhooks: in order, at least once, with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from forewarn.core.backoff import backoff
from forewarn.core.campaign.record import Campaign, CampaignState, Notification
from forewarn.platform.port import NotificationFailed, NotificationMessage, Notifier

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Pause between attempts, in seconds of real time."""

_STATES = {"started": CampaignState.RUNNING.value, "halted": CampaignState.HALTED.value}
"""The campaign's state at the time of the notification; the notification of its end has the state as its reason."""


def is_finished(campaign: Campaign, notifier: Notifier) -> bool:
    """Return whether a campaign has ended and all of its notifications were delivered."""
    return campaign.state.is_over and not (campaign.notifications and notifier.has_receivers)


async def deliver_notifications(
    notifier: Notifier, record: Callable[[], Campaign], remove: Callable[[Notification], Awaitable[None]]
) -> None:
    """Deliver the notifications of the newest `record` until none is left, and `remove` each that was delivered.

    After a crash between the two, a notification is delivered once more.
    """
    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while (campaign := record()).notifications:
        notification = campaign.notifications[0]
        if await _try_deliver(notifier, campaign, notification):
            pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
            await remove(notification)
        else:
            await asyncio.sleep(next(pauses))


async def _try_deliver(notifier: Notifier, campaign: Campaign, notification: Notification) -> bool:
    try:
        await notifier.notify(notification_message(campaign, notification))
    except NotificationFailed as error:
        log.warning("campaign %s: could not deliver %s: %s; trying again", campaign.name, notification.what, error)
    except Exception:
        log.exception("campaign %s: could not deliver %s; trying again", campaign.name, notification.what)
    else:
        return True
    return False


def notification_message(campaign: Campaign, notification: Notification) -> NotificationMessage:
    """Return the message. It is the same at every attempt, whatever has become of the campaign since."""
    state = _STATES.get(notification.what, notification.why)
    return NotificationMessage(
        id=f"{campaign.id}-{notification.n}",
        campaign=campaign.id,
        name=campaign.name,
        what=notification.what,
        at=notification.at,
        why=notification.why,
        facts={"type": campaign.spec.type.value, "state": state, "by": campaign.by},
    )
