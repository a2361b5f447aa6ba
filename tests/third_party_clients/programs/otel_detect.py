"""Detect the VM with OpenTelemetry's resource detector for Azure, and print the attributes."""

import json
import sys

from opentelemetry.resource.detector.azure.vm import AzureVMResourceDetector

sys.stdout.write(json.dumps(dict(AzureVMResourceDetector().detect().attributes)))
