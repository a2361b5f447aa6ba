"""Journeys in a real browser: plan, start and finish a campaign whose gate closes; edit, repair and clone one."""

import json
from pathlib import Path
from typing import Any

import playwright.sync_api
from playwright.sync_api import Locator, Route, expect

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from tests.cli.in_process import run_up
from tests.end_to_end.dashboard.browser import LOST, Browser, Service, open_browser
from tests.operator.running_api import TEN
from tests.operator.sample_campaign import asked
from tests.support.canned_server import run_canned_server
from tests.support.program import Machine

EDITOR = "/ui/campaigns/plan"
TOML = """\
name = "kernel"
type = "Reboot"

[selection]
scopes = ["web"]

[policy]
gap = "20m"
"""
PAUSE = 300
"""Milliseconds after a key before the page sends the input."""

RETRY = 2_000
"""Milliseconds until it is sent again after the service could not be reached."""

MAX_STEPS = 100
"""After so many steps of the clock, a campaign must have ended."""


def toml(browser: Browser) -> Locator:
    """Return the text area of the file."""
    return browser.page.locator("#toml")


def field(browser: Browser, label: str) -> Locator:
    """Return a field of the form."""
    return browser.page.locator("#campaign-form").get_by_label(label, exact=True)


def wait_for_plan(browser: Browser, text: str) -> None:
    """Wait until the plan of the newest input is shown."""
    plan = browser.page.locator("#plan")
    expect(plan).to_have_attribute("data-state", "current")
    expect(plan).to_contain_text(text)


def chart(browser: Browser) -> Any:
    """Return the data of the campaign's chart."""
    return json.loads(browser.page.locator("#campaign-chart-data").text_content() or "")


def test_campaign_with_a_gate_that_closes_is_planned_started_and_finished(
    tmp_path: Path, chromium: playwright.sync_api.Browser
) -> None:
    health = {"status": 200}
    with (
        run_canned_server(lambda *_: (health["status"], b"")) as gate,
        run_up(Machine(tmp_path)) as service,
        open_browser(chromium, service.ready["operator_url"]) as browser,
    ):
        token = read_token(Path(service.ready["token_file"]))
        api = ApiClient(service.ready["operator_url"], token)
        browser.sign_in(token)
        browser.show("/ui/campaigns")
        browser.main.get_by_role("link", name="Plan a campaign").click()
        browser.wait_until_live()

        field(browser, "Name (required)").fill("kernel")
        field(browser, "Type (required)").select_option("Reboot")
        field(browser, "Scopes").fill("web")
        field(browser, "Gate").fill(f"{gate}/healthy")
        field(browser, "Gate retries").fill("0")
        wait_for_plan(browser, "3 waves")
        expect(toml(browser)).to_have_value(
            'name = "kernel"\ntype = "Reboot"\n\n[selection]\nscopes = ["web"]\n\n[policy]\n'
            f'gate = {{ url = "{gate}/healthy", retries = 0 }}\n'
        )
        toml(browser).press("Control+End")
        toml(browser).press_sequentially('gap = "20m"\n')
        expect(field(browser, "Gap")).to_have_value("20m")
        wait_for_plan(browser, "3 waves")

        browser.choose("Start…")
        expect(browser.dialog).to_contain_text("Reboot of 6 VMs in 1 scope, in 3 waves")
        expect(browser.dialog).to_contain_text(f"only if the gate {gate}/healthy is open")
        browser.dialog.get_by_label("Reason").fill("new kernel")
        browser.confirm("Start campaign")
        browser.page.wait_for_url(f"{browser.url}/ui/campaigns/*-*")
        browser.wait_until_live()
        browser.wait_for("new kernel")

        api.advance("17m")
        health["status"] = 503
        api.advance("40m")
        browser.wait_for("Gate closed")
        browser.wait_for(f"{gate}/healthy")
        health["status"] = 200
        for _ in range(MAX_STEPS):
            if api.campaign("kernel").ended_at is not None:
                break
            api.advance("2m")
        browser.wait_for("Completed")
        browser.wait_for("6 of 6 VMs")
        expect(browser.page.locator("#campaign-chart canvas").last).to_be_visible()
        drawn = chart(browser)
        (stop,) = drawn["backgrounds"]
        assert (stop["kind"], stop["label"].startswith("Gate closed: ")) == ("stop", True)
        (row,) = drawn["rows"]
        happened = [(item["label"], item.get("mark")) for item in row["items"] if not item.get("plan")]
        assert happened == [("Wave 1", "done"), ("Wave 2", "done"), ("Wave 3", "done")]
        second = next(item for item in row["items"] if item["label"] == "Wave 2" and not item.get("plan"))
        assert stop["from"] < stop["to"] <= second["bars"][-1][2]

        browser.main.get_by_role("link", name="Clone").click()
        browser.wait_until_live()
        expect(field(browser, "Name (required)")).to_have_value("kernel")
        expect(field(browser, "Gate")).to_have_value(f"{gate}/healthy")
        wait_for_plan(browser, "3 waves")


def test_wrong_input_is_kept_and_leads_to_its_place(browser: Browser) -> None:
    browser.sign_in()
    browser.show(EDITOR)
    toml(browser).fill(TOML)
    wait_for_plan(browser, "3 waves")
    problem = browser.page.locator("#input-error")

    field(browser, "Gap").fill("soon")
    expect(problem).to_contain_text("line 8: policy.gap: 'soon' is not a duration")
    expect(toml(browser)).to_have_value(TOML.replace("20m", "soon"))
    expect(field(browser, "Gap")).to_have_attribute("aria-invalid", "true")
    expect(browser.page.locator("#open-start")).to_be_disabled()
    problem.get_by_role("button", name="Show line 8").click()
    assert browser.page.evaluate("getSelection().toString()") == 'gap = "soon"'
    problem.get_by_role("button", name="Show the field").click()
    expect(field(browser, "Gap")).to_be_focused()

    broken = TOML.replace('"20m"', "")
    toml(browser).fill(broken)
    expect(problem).to_contain_text("invalid TOML")
    expect(field(browser, "Gap")).to_be_disabled()  # the form could not show the file
    expect(field(browser, "Name (required)")).to_have_value("kernel")
    expect(toml(browser)).to_have_value(broken)

    toml(browser).fill("# For ticket 7.\n" + TOML.replace("20m", "1h"))
    expect(field(browser, "Gap")).to_have_value("1h")
    expect(field(browser, "Gap")).to_be_enabled()
    expect(problem).to_be_empty()
    wait_for_plan(browser, "3 waves")
    field(browser, "Gap").fill("2h")
    expect(toml(browser)).to_have_value("# For ticket 7.\n" + TOML.replace("20m", "2h"))


def test_draft_survives_a_reload_and_a_new_sign_in(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show(EDITOR)
    toml(browser).fill(TOML)
    wait_for_plan(browser, "3 waves")
    browser.page.reload()
    expect(toml(browser)).to_have_value(TOML)
    expect(field(browser, "Gap")).to_have_value("20m")

    def end_sessions(route: Route) -> None:
        for session in service.running.sessions.all():
            service.running.sessions.end(session.id)
        route.continue_()

    # Without a session the page could be left before the draft has changed, so it ends with the request for the plan.
    browser.page.route(f"**{EDITOR}", end_sessions, times=1)
    field(browser, "Gap").fill("30m")
    browser.wait_for_sign_in()
    browser.page.get_by_label("Token").fill("a-token-for-tests")
    browser.page.get_by_role("button", name="Sign in").click()
    expect(field(browser, "Gap")).to_have_value("30m")
    expect(toml(browser)).to_have_value(TOML.replace("20m", "30m"))
    browser.tabs.forgive("status of 401")


def test_input_is_sent_again_until_the_service_is_reached(browser: Browser) -> None:
    browser.page.clock.install()
    browser.sign_in()
    browser.show(EDITOR)
    browser.page.route(f"**{EDITOR}", lambda route: route.abort("connectionrefused"))
    toml(browser).fill(TOML)
    browser.page.clock.run_for(PAUSE)
    expect(browser.page.locator("#plan-state")).to_have_text("The service cannot be reached. Trying again…")
    browser.page.unroute_all()
    browser.page.clock.run_for(RETRY)
    wait_for_plan(browser, "3 waves")
    browser.tabs.forgive(LOST)


def test_error_of_the_page_is_not_taken_for_an_unreachable_service(browser: Browser) -> None:
    """It would plan the same again and again."""
    browser.sign_in()
    browser.show(EDITOR)
    line = {"plan": "<p>a plan without a summary</p>", "chart": {"rows": []}, "now": TEN.isoformat()}
    browser.page.route(f"**{EDITOR}", lambda route: route.fulfill(body=json.dumps(line) + "\n"))
    with browser.page.expect_event("pageerror"):
        toml(browser).fill(TOML)
    expect(browser.page.locator("#plan-state")).to_be_empty()
    browser.tabs.forgive("TypeError", "cloneNode")


def test_no_place_is_shown_with_its_key(browser: Browser) -> None:
    browser.sign_in()
    browser.show(EDITOR)
    toml(browser).fill(TOML + "vms_at_once = 1\n")
    wait_for_plan(browser, "6 without a place")
    wait_for_plan(browser, "vms_at_once allows 1, and it has 2 VMs, 1 VM too many")
    expect(browser.page.locator("#open-start")).to_be_disabled()
    browser.page.locator("#plan").get_by_role("link", name="vms_at_once").first.click()
    expect(field(browser, "VMs at once")).to_be_in_viewport()


def test_plan_and_dialog_have_no_violation_in_both_themes_on_a_screen_and_a_phone(
    browser: Browser, service: Service
) -> None:
    service.api.start_campaign(asked("other", "batch"))  # the plan has a note about it
    browser.sign_in()
    browser.show(EDITOR)
    toml(browser).fill(TOML.replace('"web"', '"batch"'))
    wait_for_plan(browser, "waves")
    found = {}
    for dark in (False, True):
        for width in (1280, 390):
            browser.tabs.emulate(width=width, dark=dark)
            found["page", dark, width] = (browser.overflow(), browser.violations())
            browser.choose("Start…")
            found["dialog", dark, width] = (browser.overflow(), browser.violations())
            browser.page.keyboard.press("Escape")
    assert found == dict.fromkeys(found, (0, []))
