"""Discovers the endpoint on the named interfaces, and prints the result as JSON."""

import json
import sys

from forewarn.client import discovery
from forewarn.client.discovery import NotDiscovered, discover_endpoint

# Servers answer immediately here: no need to wait ten seconds for more offers.
discovery.RECEIVE_LIMIT = 3.0

try:
    result = {"endpoint": discover_endpoint(*sys.argv[1:])}
except NotDiscovered as error:
    result = {"error": type(error).__name__, "message": str(error)}
json.dump(result, sys.stdout)
