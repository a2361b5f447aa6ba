"""Journeys in a real browser through the emulator page: play a scenario and see its fault as the VM does."""

from collections.abc import Iterator

import playwright.sync_api
import pytest
from playwright.sync_api import expect

from forewarn.client import ClientError
from forewarn.testing import Forewarn
from tests.end_to_end.dashboard.browser import Browser, open_browser
from tests.operator.sample_report import sample_report

FAULTY = """# A VM of the fleet gets errors, then its events.
fleet demonstration
fault 410 web-0 times 2
query web-0
restart web-0
approve E1 by web-0
expect E1 Completed within 5m
"""


@pytest.fixture
def emulator() -> Iterator[Forewarn]:
    """A real service with guest endpoints, on manual time."""
    with Forewarn(settings={"policy.shortest_notice": "10s"}) as running:
        yield running


@pytest.fixture
def panel(emulator: Forewarn, chromium: playwright.sync_api.Browser) -> Iterator[Browser]:
    """A browser that shows the emulator page."""
    with open_browser(chromium, emulator.url) as opened:
        opened.sign_in(emulator.token)
        opened.page.get_by_role("navigation").get_by_role("link", name="Emulator").click()
        opened.wait_until_live()
        yield opened


def test_scenario_is_played_and_its_fault_is_seen_in_the_guest_view(panel: Browser, emulator: Forewarn) -> None:
    with panel.tabs.page.context.new_page() as guest:
        guest.goto(f"{panel.url}/ui/vms/web/web-0/guest")
        panel.choose("Play your own…")
        panel.dialog.get_by_label("Text").fill(FAULTY)
        panel.confirm("Play")
        panel.wait_for("Passed")
        panel.wait_for("E1 Completed after 1m")
        expect(guest.locator("#exchanges")).to_contain_text("410")
    assert [scope.id for scope in emulator.api.scopes()] == ["batch", "db-0", "shop", "web"]


def test_shipped_scenario_is_played_and_shown_on_its_own_page(panel: Browser) -> None:
    panel.main.get_by_role("button", name="Play user-restart").click()
    panel.wait_for("12 of 12 steps")
    expect(panel.page.locator("#run")).to_be_in_viewport()
    panel.main.get_by_role("link", name="S1", exact=True).click()
    panel.wait_for("expect E1 Completed within 5m")


def test_scenario_that_the_speed_would_change_has_the_reason_and_no_button(panel: Browser) -> None:
    row = panel.main.get_by_role("row").filter(has_text="eviction-8s")
    play = row.get_by_role("button", name="Play eviction-8s")
    expect(play).to_be_visible()
    panel.main.get_by_role("button", name="60×").click()
    expect(row).to_contain_text("set the speed to at most 1")
    expect(play).to_have_count(0)


def test_hostile_scenario_is_only_text(panel: Browser) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    panel.choose("Play your own…")
    panel.dialog.get_by_label("Text").fill(f"# {hostile}\nscope web availability-set\nvm web-0 domain 0\n")
    panel.confirm("Play")
    panel.wait_for("2 of 2 steps")
    panel.wait_for(hostile)
    panel.show("/ui/emulator/runs/S1")
    panel.wait_for(hostile)
    expect(panel.main.locator("img")).to_have_count(0)


def test_wrong_scenario_is_explained_in_its_dialog(panel: Browser) -> None:
    panel.choose("Play your own…")
    panel.dialog.get_by_label("Text").fill("scope web availability-set\nbreak everything\n")
    panel.confirm("Play")
    expect(panel.dialog.locator(".form-error")).to_contain_text("line 2, column 1: 'break'")
    panel.tabs.forgive("status of 4")


def test_time_is_advanced_by_buttons_and_by_keyboard(panel: Browser, emulator: Forewarn) -> None:
    before = emulator.now
    emulator.schedule("Reboot", "web-0", notice="15m")
    panel.main.get_by_role("button", name="Advance by 5m").click()
    panel.wait_for("No event has changed.")
    panel.main.get_by_role("button", name="To the next change").press("Enter")
    panel.wait_for("1 change of events and campaigns")
    assert (emulator.now - before).total_seconds() == 900
    panel.main.get_by_label("Other speed").fill("30")
    panel.page.keyboard.press("Enter")
    panel.wait_for("Speed 30")


def test_fault_is_set_counts_hits_live_and_is_cleared(panel: Browser, emulator: Forewarn) -> None:
    panel.choose("Set a fault…")
    panel.dialog.get_by_label("Fault").select_option("status-500")
    panel.dialog.get_by_label("VM").fill("web/web-0")
    panel.confirm("Set the fault")
    row = panel.main.get_by_role("region", name="Faults").get_by_role("row").nth(1)
    expect(row).to_contain_text("status-500")
    with pytest.raises(ClientError):
        emulator.vm("web/web-0").document()
    expect(row.locator("td").nth(2)).not_to_have_text("0")
    panel.main.get_by_role("button", name="Clear fault F1").click()
    panel.wait_for("VMs get correct answers.")


def test_what_is_typed_stays_while_the_page_updates_itself(panel: Browser, emulator: Forewarn) -> None:
    emulator.fault("status-500", vm="web/web-0")
    row = panel.main.get_by_role("region", name="Faults").get_by_role("row").nth(1)
    expect(row.locator("td").nth(2)).to_have_text("0")
    fields = {"Advance by": "45m", "Other speed": "30"}
    for label, text in fields.items():
        panel.main.get_by_label(label, exact=True).fill(text)
    panel.page.keyboard.press("Tab")
    with pytest.raises(ClientError):
        emulator.vm("web/web-0").document()
    expect(row.locator("td").nth(2)).not_to_have_text("0")
    for label, text in fields.items():
        expect(panel.main.get_by_label(label, exact=True)).to_have_value(text)


def test_uploaded_report_appears_and_opens(panel: Browser, emulator: Forewarn) -> None:
    panel.wait_for("None yet")
    emulator.api.add_report(sample_report())
    panel.main.get_by_role("link", name="Exam: ./handler --fast").click()
    panel.wait_for("approve the event of your VM")


def test_pages_have_no_violation_in_both_themes_on_a_screen_and_a_phone(panel: Browser, emulator: Forewarn) -> None:
    emulator.fault("410", vm="web/web-0")
    report = emulator.api.add_report(sample_report())
    panel.main.get_by_role("button", name="Play eviction-8s").click()
    panel.wait_for("9 of 9 steps")
    found = {}
    for path in ("/ui/emulator", "/ui/emulator/runs/S1", f"/ui/emulator/reports/{report.id}"):
        panel.show(path)
        for dark in (False, True):
            for width in (1280, 390):
                panel.tabs.emulate(width=width, dark=dark)
                found[path, dark, width] = (panel.overflow(), panel.violations())
    assert found == dict.fromkeys(found, (0, []))
    panel.show("/ui/emulator")
    for button in ("Set a fault…", "Play your own…"):
        panel.choose(button)
        assert panel.violations() == []
        panel.page.keyboard.press("Escape")
