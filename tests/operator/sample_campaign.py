"""A campaign of the API tests: its request, its start and its view."""

from datetime import timedelta
from typing import Any

from forewarn.api import v1
from tests.operator.running_api import RunningApi

ALL = v1.CampaignSelection(all=True)
HOUR = timedelta(hours=1)


def asked(name: str = "kernel", *scopes: str, **policy: Any) -> v1.StartCampaign:
    """Return a request for a campaign of these scopes, by default of all VMs."""
    selection = v1.CampaignSelection(scopes=scopes) if scopes else ALL
    return v1.StartCampaign(
        name=name,
        type=v1.CampaignType.REBOOT,
        selection=selection,
        duration="1m",
        policy=v1.CampaignPolicy(**{"gap": "1h", **policy}),
    )


async def start(service: RunningApi, ask: v1.StartCampaign, *, key: str | None = None) -> v1.Campaign:
    """Start a campaign."""
    return await service.client(lambda api: api.start_campaign(ask, key=key))


async def shown(service: RunningApi, name: str = "kernel") -> v1.Campaign:
    """Return the view of a campaign."""
    return await service.client(lambda api: api.campaign(name))
