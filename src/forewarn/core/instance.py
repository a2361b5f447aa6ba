"""The keys of Azure's instance document below `compute`: since which version it has each, and which a VM can set.

A key is a path with dots. `*` stands for the number of an item in a list.
"""

import re
from collections.abc import Mapping

from forewarn.core.errors import Invalid
from forewarn.core.text import check_text

MAX_INSTANCE_KEYS = 100
MAX_INSTANCE_TEXT_LENGTH = 1024
"""A public SSH key fits."""
MAX_LIST_ITEMS = 16
INSTANCE_KEY_PATTERN = r"[A-Za-z]+(\.[A-Za-z0-9]+)*"

_DISK_KEYS = {
    "caching": "2019-06-01",
    "createOption": "2019-06-01",
    "diffDiskSettings.option": "2019-06-01",
    "diskSizeGB": "2019-06-01",
    "encryptionSettings.diskEncryptionKey.secretUrl": "2021-11-01",
    "encryptionSettings.diskEncryptionKey.sourceVault.id": "2021-11-01",
    "encryptionSettings.enabled": "2019-06-01",
    "encryptionSettings.keyEncryptionKey.keyUrl": "2021-11-01",
    "encryptionSettings.keyEncryptionKey.sourceVault.id": "2021-11-01",
    "image.uri": "2019-06-01",
    "managedDisk.id": "2019-06-01",
    "managedDisk.storageAccountType": "2019-06-01",
    "name": "2019-06-01",
    "osType": "2019-06-01",
    "vhd.uri": "2019-06-01",
    "writeAcceleratorEnabled": "2019-06-01",
}
_DATA_DISK_KEYS = {
    "bytesPerSecondThrottle": "2021-05-01",
    "diskCapacityBytes": "2021-05-01",
    "isSharedDisk": "2021-05-01",
    "isUltraDisk": "2021-05-01",
    "lun": "2019-06-01",
    "opsPerSecondThrottle": "2021-05-01",
}

COMPUTED_KEYS: Mapping[str, str] = {
    "customData": "2019-02-01",
    "location": "2017-04-02",
    "name": "2017-04-02",
    "osType": "2017-04-02",
    "placementGroupId": "2017-08-01",
    "platformFaultDomain": "2017-04-02",
    "platformUpdateDomain": "2017-04-02",
    "priority": "2020-12-01",
    "resourceGroupName": "2017-08-01",
    "subscriptionId": "2017-08-01",
    "tags": "2017-08-01",
    "tagsList": "2019-06-04",
    "vmId": "2017-04-02",
    "vmScaleSetName": "2017-12-01",
    "zone": "2017-12-01",
}
"""Keys that follow from the VM and its scope, with their first version. `customData` is always empty, as on Azure."""

SETTABLE_KEYS: Mapping[str, str] = {
    "additionalCapabilities.hibernationEnabled": "2021-11-01",
    "azEnvironment": "2018-10-01",
    "evictionPolicy": "2020-12-01",
    "extendedLocation.name": "2021-03-01",
    "extendedLocation.type": "2021-03-01",
    "host.id": "2021-11-15",
    "hostGroup.id": "2021-11-15",
    "isHostCompatibilityLayerVm": "2020-06-01",
    "isVmInStandbyPool": "2023-11-15",
    "licenseType": "2020-09-01",
    "offer": "2017-04-02",
    "osProfile.adminUsername": "2020-07-15",
    "osProfile.computerName": "2020-07-15",
    "osProfile.disablePasswordAuthentication": "2020-10-01",
    "physicalZone": "2023-11-15",
    "plan.name": "2018-04-02",
    "plan.product": "2018-04-02",
    "plan.publisher": "2018-04-02",
    "platformSubFaultDomain": "2021-10-01",
    "provider": "2018-10-01",
    "publicKeys.*.keyData": "2018-04-02",
    "publicKeys.*.path": "2018-04-02",
    "publisher": "2017-04-02",
    "resourceId": "2019-03-11",
    "securityProfile.encryptionAtHost": "2021-11-01",
    "securityProfile.secureBootEnabled": "2020-06-01",
    "securityProfile.securityType": "2021-12-13",
    "securityProfile.virtualTpmEnabled": "2020-06-01",
    "sku": "2017-04-02",
    **{f"storageProfile.dataDisks.*.{key}": since for key, since in (_DISK_KEYS | _DATA_DISK_KEYS).items()},
    "storageProfile.imageReference.communityGalleryImageId": "2023-07-01",
    "storageProfile.imageReference.exactVersion": "2023-07-01",
    "storageProfile.imageReference.id": "2019-06-01",
    "storageProfile.imageReference.offer": "2019-06-01",
    "storageProfile.imageReference.publisher": "2019-06-01",
    "storageProfile.imageReference.sharedGalleryImageId": "2023-07-01",
    "storageProfile.imageReference.sku": "2019-06-01",
    "storageProfile.imageReference.version": "2019-06-01",
    **{f"storageProfile.osDisk.{key}": since for key, since in _DISK_KEYS.items()},
    "storageProfile.resourceDisk.size": "2021-02-01",
    "userData": "2021-01-01",
    "version": "2017-04-02",
    "virtualMachineScaleSet.id": "2021-03-01",
    "vmSize": "2017-04-02",
}
"""Keys that a VM or its scope can set, with their first version."""

_NUMBER = re.compile(r"(?<=\.)(0|[1-9][0-9]{0,2})(?=\.)")


def check_instance(values: Mapping[str, str]) -> None:
    """Refuse values of the instance document with unknown keys or gaps in lists, and too many or too long ones."""
    if len(values) > MAX_INSTANCE_KEYS:
        raise Invalid(f"{len(values)} keys: at most {MAX_INSTANCE_KEYS} are allowed", "instance")
    for key, value in values.items():
        if "*" in key or general_key(key) not in SETTABLE_KEYS:
            raise Invalid(_unknown_key(key), f"instance.{key[:80]}")
        check_text(value, f"key {key}", MAX_INSTANCE_TEXT_LENGTH, field=f"instance.{key}")
    for name, numbers in list_numbers(values).items():
        if (count := max(numbers) + 1) > MAX_LIST_ITEMS:
            raise Invalid(f"{name} has {count} items: at most {MAX_LIST_ITEMS} are allowed", f"instance.{name}")
        if missing := set(range(count)) - numbers:
            raise Invalid(
                f"{name} has no item {min(missing)}: number the items from 0, without gaps", f"instance.{name}"
            )


def general_key(key: str) -> str:
    """Return the key with `*` instead of the number of an item."""
    return _NUMBER.sub("*", key)


def list_numbers(values: Mapping[str, str]) -> dict[str, set[int]]:
    """Return the numbers of the items that the values have, by list."""
    found: dict[str, set[int]] = {}
    for key in values:
        if number := _NUMBER.search(key):
            found.setdefault(key[: number.start() - 1], set()).add(int(number[1]))
    return found


def _unknown_key(key: str) -> str:
    if key in COMPUTED_KEYS:
        return f"key {key!r} cannot be set: it follows from the VM and its scope"
    from difflib import get_close_matches  # imported late: a service starts faster without it

    near = get_close_matches(general_key(key), SETTABLE_KEYS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ": use the names of Azure's document below compute"
    return f"key {key[:80]!r} is unknown{hint}"
