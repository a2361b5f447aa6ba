"""The campaign file: parse, validate and write a campaign spec in TOML.

docs/reference/campaign-policy.md describes every key. Its keys are the fields of `core/campaign/spec.py`.
"""

from forewarn.api.table_reader import read_struct
from forewarn.api.table_writer import toml_text, write_struct
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.settings.file_reader import FileValue, read_toml


def parse_campaign(text: str, *, file: str) -> FileValue:
    """Parse TOML without checking its keys."""
    return read_toml(text, file=file)


def read_campaign(content: FileValue, *, file: str) -> CampaignSpec:
    """Read a campaign file; every error names the file, the line, the key and what is allowed."""
    return read_struct(FileValue(file, "", content.value, content.positions), CampaignSpec)


def write_campaign(spec: CampaignSpec) -> str:
    """Write a campaign file that reads as the same spec; keys with their default value are omitted."""
    return toml_text(write_struct(spec))
