"""The spec of a campaign: its API types, one for requests and one for responses.

`core/campaign/spec.py` declares the keys; the types here are derived from it, so a new key of a policy needs no change
here. Type checkers read the fields from the stub beside this module, which `tests/api/v1` generates with --rewrite.
"""

from typing import Annotated

import msgspec

from forewarn.api.v1.common import Request, Response
from forewarn.api.v1.derived_types import DerivedTypes, Form, value_form
from forewarn.core.campaign import spec as core
from forewarn.core.text import Text

_ZoneName = Annotated[str, msgspec.Meta(pattern=f"^{core.ZONE}$")]

_OWN_FORMS: dict[tuple[type[msgspec.Struct], str], Form] = {
    # For a window without its own zone, a record has an empty string and the API null.
    (core.Window, "zone"): value_form(_ZoneName | None, lambda zone: zone or None, lambda zone: zone or ""),
}

_REQUESTS = DerivedTypes(
    Request,
    {
        core.Selection: "CampaignSelection",
        core.Window: "CampaignWindow",
        core.Blackout: "CampaignBlackout",
        core.HttpCheck: "HttpGate",
        core.CampaignPolicy: "CampaignPolicy",
        core.CampaignSpec: "CampaignRequest",
    },
    _OWN_FORMS,
)
_RESPONSES = DerivedTypes(
    Response,
    {
        core.Selection: "SelectionView",
        core.Window: "WindowView",
        core.Blackout: "BlackoutView",
        core.HttpCheck: "GateView",
        core.CampaignPolicy: "PolicyView",
        core.CampaignSpec: "CampaignSpec",
    },
    _OWN_FORMS,
)

CampaignSelection = _REQUESTS.derive(core.Selection)
CampaignWindow = _REQUESTS.derive(core.Window)
CampaignBlackout = _REQUESTS.derive(core.Blackout)
HttpGate = _REQUESTS.derive(core.HttpCheck)
CampaignPolicy = _REQUESTS.derive(core.CampaignPolicy)
CampaignRequest = _REQUESTS.derive(core.CampaignSpec)
SelectionView = _RESPONSES.derive(core.Selection)
WindowView = _RESPONSES.derive(core.Window)
BlackoutView = _RESPONSES.derive(core.Blackout)
GateView = _RESPONSES.derive(core.HttpCheck)
PolicyView = _RESPONSES.derive(core.CampaignPolicy)
CampaignSpec = _RESPONSES.derive(core.CampaignSpec)


class StartCampaign(CampaignRequest, frozen=True, kw_only=True):
    """Roll out maintenance over a selection of VMs, wave by wave. Planning takes the same request.

    `unannounced` consents to maintenance that VMs will not hear of; without it the start is refused
    (`not-announced`).
    """

    reason: Text = ""
    unannounced: bool = False


def spec_from_request(request: CampaignRequest | CampaignSpec) -> core.CampaignSpec:
    """Return the spec of a request; raise Invalid if a value is not allowed."""
    return _REQUESTS.read(core.CampaignSpec, request)


def spec_request(spec: core.CampaignSpec) -> CampaignRequest:
    """Return a spec as a request type."""
    request: CampaignRequest = _REQUESTS.write(spec)
    return request


def spec_view(spec: core.CampaignSpec) -> CampaignSpec:
    """Return a spec as a response type."""
    view: CampaignSpec = _RESPONSES.write(spec)
    return view
