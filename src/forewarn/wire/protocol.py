"""Constants of the guest protocol: api-versions and what each introduced (PROTOCOL §2), limits of both sides.

A version is a date: compared as text, the newer one is greater."""

from forewarn.core.api_version import ApiVersion

VERSIONS: tuple[str, ...] = tuple(version.value for version in ApiVersion)
NEWEST_VERSION = VERSIONS[-1]

PREVIEW_VERSION = VERSIONS[0]
"""The version in which names of IaaS VMs begin with an underscore and POST needs no `Metadata` header."""

DESCRIPTION_SINCE = ApiVersion.V2019_04_01.value
SOURCE_SINCE = ApiVersion.V2019_08_01.value
DURATION_SINCE = ApiVersion.V2020_07_01.value

MAX_WAIT = 60
"""How many seconds an answer is held at the most (PROTOCOL §9)."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some programs put before JSON; it is passed over."""

UNKNOWN_DURATION = -1
"""What the document says when the duration is not known (PROTOCOL §3)."""
