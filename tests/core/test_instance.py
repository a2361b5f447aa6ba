"""Values of the instance document that a VM or its scope sets."""

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.instance import COMPUTED_KEYS, MAX_INSTANCE_TEXT_LENGTH, SETTABLE_KEYS, check_instance
from forewarn.core.vm import Traits


def test_every_settable_key_is_accepted() -> None:
    check_instance({key.replace("*", "0"): "x" for key in SETTABLE_KEYS if not key.startswith("storageProfile.")})
    check_instance({key.replace("*", "0"): "x" for key in SETTABLE_KEYS if key.startswith("storageProfile.")})
    assert not set(SETTABLE_KEYS) & set(COMPUTED_KEYS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vmsize": "x"}, "did you mean 'vmSize'"),
        ({"colour of the door": "x"}, "is unknown: use the names"),
        ({"name": "x"}, "follows from the VM"),
        ({"publicKeys.*.path": "x"}, "is unknown"),
        ({"publicKeys.01.path": "x"}, "is unknown"),
        ({"publicKeys.1.path": "x"}, "has no item 0"),
        ({f"publicKeys.{n}.path": "x" for n in range(17)}, "has 17 items: at most 16"),
        ({"userData": "x" * (MAX_INSTANCE_TEXT_LENGTH + 1)}, "at most 1024"),
        ({"userData": "\ud800"}, "not valid Unicode"),
        ({f"vmSize{n}": "x" for n in range(101)}, "101 keys: at most 100"),
    ],
)
def test_other_values_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("*", r"\*")):
        Traits(instance=values)


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("vmsize", "instance.vmsize"),
        ("publicKeys.1.path", "instance.publicKeys"),
        ("x" * 2_000, "instance." + "x" * 80),
    ],
    ids=["unknown", "gap in a list", "long"],
)
def test_refusal_names_the_key(key: str, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Traits(instance={key: "x"})
    assert refusal.value.field == field
    assert len(str(refusal.value)) < 400


def test_values_are_merged_with_those_of_the_scope() -> None:
    merged = Traits(instance={"sku": "a"}).with_defaults(Traits(instance={"sku": "b", "vmSize": "c"}))
    assert merged.instance == {"sku": "a", "vmSize": "c"}
