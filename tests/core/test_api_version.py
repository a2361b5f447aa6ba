"""The api-versions of the guest protocol."""

from datetime import date

from forewarn.core.api_version import ApiVersion


def test_api_versions_are_dates_in_ascending_order() -> None:
    """Code compares them as text: `version >= ApiVersion.V2019_01_01`."""
    assert sorted(ApiVersion) == list(ApiVersion)
    assert [date.fromisoformat(version).isoformat() for version in ApiVersion] == list(ApiVersion)


def test_name_of_an_api_version_is_its_date() -> None:
    assert [version.name for version in ApiVersion] == [f"V{version.replace('-', '_')}" for version in ApiVersion]
