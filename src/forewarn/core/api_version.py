"""The api-versions of the guest protocol (PROTOCOL §2)."""

from enum import StrEnum


class ApiVersion(StrEnum):
    """An api-version. It is a date, so the newer of two is the greater one as text."""

    V2017_03_01 = "2017-03-01"
    V2017_08_01 = "2017-08-01"
    V2017_11_01 = "2017-11-01"
    V2019_01_01 = "2019-01-01"
    V2019_04_01 = "2019-04-01"
    V2019_08_01 = "2019-08-01"
    V2020_07_01 = "2020-07-01"
    V2024_07_09 = "2024-07-09"


UNRELEASED_VERSION = ApiVersion.V2024_07_09
"""A version that clients know, but that is not generally available on Azure: served only with a setting."""
