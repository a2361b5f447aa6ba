"""Check the instance document as waagent does, and print the result.

argv: the folder of the extracted packages.
"""

import json
import sys
from importlib import import_module

sys.path.append(sys.argv[1])
imds = import_module("azurelinuxagent.common.protocol.imds")


def main() -> None:
    """Print the result of the health check, and the compute part."""
    client = imds.get_imds_client("127.0.0.1")
    healthy, why = client.validate()
    compute = client.get_compute()
    fields = {name: getattr(compute, name) for name in ("name", "vmSize", "vmId", "sku", "zone")}
    sys.stdout.write(json.dumps({"healthy": healthy, "why": why, "image": compute.image_info, **fields}))


main()
