"""Discovers the endpoint on the named interfaces, and prints the result as JSON."""

import json
import sys

from forewarn.client import discovery
from forewarn.client.discovery import NotDiscovered, discover_endpoint

# Servers answer immediately here: no need to wait ten seconds for more offers.
discovery.RECEIVE_LIMIT = 3.0

try:
    told = {"endpoint": discover_endpoint(*sys.argv[1:])}
except NotDiscovered as error:
    told = {"error": type(error).__name__, "says": str(error)}
json.dump(told, sys.stdout)
