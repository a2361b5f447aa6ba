"""The campaign file: parse and validate a campaign spec in TOML.

docs/reference/campaign-policy.md describes every key. Its keys are the fields of `core/campaign/spec.py`.
"""

import tomllib
from collections.abc import Mapping

from forewarn.api.table_reader import read_struct
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.settings.file_reader import FileError, FileValue


def parse_campaign(text: str, *, file: str) -> dict[str, object]:
    """Read TOML, whatever it says."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise FileError(file, "", f"this is not TOML: {error}") from error


def read_campaign(content: Mapping[str, object], *, file: str) -> CampaignSpec:
    """Read what a campaign file says; what is wrong is named by its key."""
    return read_struct(FileValue(file, "", content), CampaignSpec)
