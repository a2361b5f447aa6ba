"""The plan in the documentation is the one that the planner makes."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tools.pictures.campaign_plan import example_plan, vms_at_once

PAGE = Path(__file__).parents[3] / "docs/explanation/campaigns.md"
BEGIN, END = "<!-- waves -->\n", "<!-- end of waves -->\n"


def table() -> Iterator[str]:
    """Return the waves of the plan as the lines of a table."""
    yield "| wave | announced | starts | expected to end | VMs |"
    yield "|---|---|---|---|---|"
    for wave in example_plan().waves:
        times = " | ".join(f"{moment:%H:%M}" for moment in (wave.announce_at, wave.not_before, wave.ends_at))
        yield f"| {wave.scope} {wave.n}: update domain {wave.update_domain} | {times} | {', '.join(wave.vms)} |"


def generated(page: str) -> str:
    """Return the page with the table as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(f"{line}\n" for line in table()) + END + after


def test_page_has_the_waves_of_the_plan(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(generated(page))
    else:
        assert page == generated(page)


def test_stale_table_is_found() -> None:
    page = PAGE.read_text()
    stale = page.replace("| 21:50 | 22:05 |", "| 21:50 | 22:00 |")
    assert stale != page
    assert generated(stale) == page


def test_example_never_affects_more_vms_than_the_page_allows() -> None:
    whole = example_plan()
    starts: list[datetime] = [wave.not_before for wave in whole.waves]
    assert max(vms_at_once(whole, moment) for moment in starts) == 3
