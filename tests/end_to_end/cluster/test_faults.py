"""A cluster of real processes under faults: nothing that was acknowledged is lost, and no rule is broken."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.cluster.faults import FAULTS
from tests.end_to_end.cluster.lab import Lab, run_lab

SEEDS = 50
QUICK = ("stop stream leader for 1 s", "kill lease holder", "purge")
"""The faults that `make test` tries."""


def fault_of(seed: int) -> str:
    return list(FAULTS)[seed % len(FAULTS)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with run_lab(tmp_path_factory.mktemp("cluster")) as lab:
        yield lab


@pytest.mark.parametrize("name", QUICK)
def test_no_rule_is_broken(lab: Lab, name: str) -> None:
    assert lab.run(f"quick-{QUICK.index(name)}", FAULTS[name]) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"{seed} {fault_of(seed)}")
def test_no_rule_is_broken_by_any_fault(lab: Lab, seed: int) -> None:
    assert lab.run(f"seed-{seed}", FAULTS[fault_of(seed)]) == []
