"""The request that starts a campaign of a scenario."""

from datetime import timedelta

from forewarn.core.event import EventType
from forewarn.testing.scenario.campaign_request import campaign_request
from forewarn.testing.scenario.commands import StartCampaign

COMMAND = StartCampaign(
    campaign="kernel",
    type=EventType.REBOOT,
    scopes=("web",),
    policy={"gap": timedelta(minutes=10), "vms_at_once": "2", "scopes_at_once": "10%", "halt_after": 3},
    gate=True,
    duration=timedelta(seconds=90),
)


def test_request_has_names_of_the_backend_and_values_of_the_api() -> None:
    request = campaign_request(COMMAND, name="kernel-1", scopes=["web-1"], windows=[("22:00", "04:00")], gate="health")
    assert request == {
        "name": "kernel-1",
        "type": "Reboot",
        "selection": {"scopes": ["web-1"]},
        "duration": "1m30s",
        "policy": {
            "gap": "10m",
            "vms_at_once": 2,
            "scopes_at_once": "10%",
            "halt_after": 3,
            "windows": [{"start": "22:00", "end": "04:00"}],
            "gate": "health",
        },
    }


def test_request_leaves_out_what_the_scenario_leaves_out() -> None:
    command = StartCampaign(campaign="kernel", type=EventType.FREEZE, scopes=("web",))
    request = campaign_request(command, name="kernel", scopes=["web"], windows=[], gate="health")
    assert (request["policy"], request["duration"]) == ({}, None)
