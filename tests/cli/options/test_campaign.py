"""The options of a campaign."""

from forewarn.cli.options.campaign import OPTIONS
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection


def test_every_key_of_the_file_has_its_option() -> None:
    said = {name.rstrip("_") for name in OPTIONS}
    keys = {*CampaignSpec.__struct_fields__, *Selection.__struct_fields__, *CampaignPolicy.__struct_fields__}
    assert keys - said == {"selection", "policy", "waves"}
