"""The load in impact at one time, and the message about a limit that would be exceeded."""

from forewarn.core.campaign.limits import CampaignLimits, Counts, Load, Usage, UsageDraft, resolve_limits
from forewarn.core.campaign.spec import CampaignPolicy, Limit


def test_percentages_are_of_the_selection() -> None:
    policy = CampaignPolicy(scopes_at_once=Limit(percent=10), hosts_at_once=Limit(number=3))
    assert resolve_limits(policy, Counts(95, 40, 1000)) == CampaignLimits(scopes=9, hosts=3)


def test_exceeded_limit_names_the_excess() -> None:
    limits = CampaignLimits(scopes=2, vms=10)
    assert limits.exceeded(Counts(2, 99, 10)) == ()
    assert limits.allows(Counts(2, 99, 10))
    found = limits.exceeded(Counts(3, 99, 14))
    assert not limits.allows(Counts(3, 99, 14))
    assert [(one.rule, one.excess) for one in found] == [
        ("scopes_at_once", "1 scope too many"),
        ("vms_at_once", "4 VMs too many"),
    ]
    assert str(found[1]) == "vms_at_once allows 10: with this wave there would be 14, 4 VMs too many"


def test_shared_scopes_and_hosts_count_once_until_the_last_load_is_removed() -> None:
    first, second = Load("a", ("hv-0", "hv-1"), 3), Load("a", ("hv-1",), 2)
    in_use = Usage()
    in_use.add(first)
    assert in_use.plus(second) == Counts(1, 2, 5)
    in_use.add(second)
    in_use.remove(first)
    assert in_use.hosts == {"hv-1"}
    assert in_use.plus(first) == Counts(1, 2, 5)
    in_use.remove(second)
    assert in_use.plus(Load("b", (), 0)) == Counts(1, 0, 0)


def test_draft_counts_like_the_usage_with_its_loads_and_does_not_change_it() -> None:
    loads = [Load("a", ("hv-0", "hv-1"), 3), Load("b", ("hv-1",), 2), Load("b", ("hv-2",), 1), Load("c", ("hv-3",), 4)]
    for kept in range(len(loads)):
        in_use, both = Usage(), Usage()
        for load in loads[:kept]:
            in_use.add(load)
            both.add(load)
        draft, before = UsageDraft(in_use), [in_use.plus(load) for load in loads]
        for load in loads[kept:]:
            draft.add(load)
            both.add(load)
            assert [draft.plus(other) for other in loads] == [both.plus(other) for other in loads]
        assert [in_use.plus(load) for load in loads] == before
