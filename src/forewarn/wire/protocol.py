"""Constants of the guest protocol: api-versions and what each introduced (PROTOCOL §2), limits of both sides.

A version is a date, so the newer of two is the greater one as text.
"""

from forewarn.core.api_version import UNRELEASED_VERSION, ApiVersion

ALL_VERSIONS: tuple[str, ...] = tuple(version.value for version in ApiVersion)
VERSIONS: tuple[str, ...] = tuple(version for version in ALL_VERSIONS if version < UNRELEASED_VERSION)
"""The versions that are generally available on Azure."""
NEWEST_VERSION = VERSIONS[-1]

PREVIEW_VERSION = VERSIONS[0]
"""The version in which names of IaaS VMs start with an underscore and POST needs no `Metadata` header."""

NEWEST_INSTANCE_VERSIONS = ("2025-04-07", "2024-07-17", "2024-03-15")
"""The newest api-versions of `/metadata/instance`, newest first; a later date is refused, so that clients fall back."""

DESCRIPTION_SINCE = ApiVersion.V2019_04_01.value
SOURCE_SINCE = ApiVersion.V2019_08_01.value
DURATION_SINCE = ApiVersion.V2020_07_01.value

MAX_WAIT = 60
"""The longest long poll, in seconds (PROTOCOL §9)."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark, which some programs put before JSON; it is skipped."""

UNKNOWN_DURATION = -1
"""The duration in a document if it is not known (PROTOCOL §3)."""
