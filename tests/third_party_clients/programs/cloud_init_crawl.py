"""Read the instance document with cloud-init's Azure data source, and print what it makes of it.

argv: the folder of the extracted packages.
"""

import json
import sys
from importlib import import_module
from typing import Any

sys.path.append(sys.argv[1])
azure: Any = import_module("cloudinit.sources.DataSourceAzure")


class Source(azure.DataSourceAzure):  # type: ignore[misc]  # it has no types
    """The data source without its set-up, which looks at the machine."""

    def __init__(self) -> None:
        pass


def main() -> None:
    """Print what cloud-init would apply."""
    source = Source()
    metadata = source.get_imds_data_with_api_fallback(retries=0)
    network = azure.generate_network_config_from_instance_network_metadata(metadata["network"])
    azure.IMDS_VER_WANT = "2099-01-01"  # not supported: it falls back on 400
    fallback = source.get_imds_data_with_api_fallback(retries=0)
    result = {
        "hostname": azure._hostname_from_imds(metadata),
        "username": azure._username_from_imds(metadata),
        "user_data": azure._userdata_from_imds(metadata),
        "disable_password": azure._disable_password_from_imds(metadata),
        "keys": source._get_public_keys_from_imds(metadata),
        "is_network_valid": source.validate_imds_network_metadata(metadata),
        "ethernets": network["ethernets"],
        "fallback_has_os_profile": "osProfile" in fallback["compute"],
        "fallback_name": fallback["compute"]["name"],
    }
    sys.stdout.write(json.dumps(result))


main()
