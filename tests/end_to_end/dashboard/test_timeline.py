"""Journeys in a real browser: an event is found on the timeline and opened; the chart by mouse, touch and keyboard."""

import re
import struct
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import playwright.sync_api
from playwright.sync_api import Route, expect

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.end_to_end.dashboard.browser import Browser, Service, open_browser, run_dashboard, schedule
from tests.operator.running_api import TEN
from tests.operator.sample_campaign import asked

START = int(TEN.timestamp())
HOUR = 3600

CHART = """async () => {
  const script = document.querySelector('script[src$="/timeline.js"]').src;
  const { chartOf } = await import(script.replace("timeline.js", "time-chart.js"));
  window.chart = chartOf(document.getElementById("timeline"));
}"""
"""Makes the chart of the page known to the functions of a test."""

POINT = """(label) => {
  const { layout, view, viewport, canvas } = chart;
  const item = chart.allItems().find((each) => each.label.startsWith(label));
  const lane = layout.rows[item.row].lanes.find((each) => each.items.includes(item));
  const box = canvas.getBoundingClientRect();
  const middle = (layout.x(view, item.from) + layout.x(view, item.to)) / 2;
  return [box.left + middle, box.top + layout.head + lane.top + lane.height / 2 - viewport.scrollTop];
}"""

FRAMES = """async (count) => {
  chart.stats.times.length = 0;
  const [seen, distances] = [[], []];
  let last = await new Promise(requestAnimationFrame);
  for (let n = 0; n < count; n += 1) {
    chart.zoom(n % 2 ? 1.02 : 1 / 1.03);
    chart.viewport.scrollTop += 90;
    const frame = chart.stats.frames;
    while (chart.stats.frames === frame) {
      const shown = await new Promise(requestAnimationFrame);
      distances.push(shown - last);
      last = shown;
    }
    seen.push([chart.stats.drawn, chart.stats.examined]);
  }
  return { seen, times: chart.stats.times, distances };
}"""
"""Zooms and scrolls at the same time, frame by frame; returns how many items were drawn and examined, how long that
took, and how far the frames of the browser were apart."""

NEXT_FRAME = "() => new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))"

TEXTS = """async () => {
  const texts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    texts.push(text);
    fillText.call(this, text, ...place);
  };
  const picture = chart.picture(chart.layout, { first: 0, last: 2 });
  CanvasRenderingContext2D.prototype.fillText = fillText;
  return texts;
}"""
"""Makes a picture of the first two rows, and returns the texts in it."""


def show_timeline(browser: Browser, query: str = "") -> None:
    """Show the timeline, and wait for its chart."""
    browser.show(f"/ui/timeline{query}")
    expect(browser.page.locator(".chart-view")).to_be_visible()
    browser.page.evaluate(CHART)


def read_view(browser: Browser) -> tuple[int, int]:
    """Return the range that the chart shows, in seconds since the start of the test."""
    view: dict[str, float] = browser.page.evaluate("chart.view")
    return round(view["from"]) - START, round(view["to"]) - START


def url_range(browser: Browser) -> dict[str, list[str]]:
    """Return the range in the address of the page."""
    query = parse_qs(urlsplit(browser.page.url).query)
    return {name: query[name] for name in ("from", "to", "hours") if name in query}


def point_of(browser: Browser, event: str) -> tuple[float, float]:
    """Return where an event is in the window."""
    x, y = browser.page.evaluate(POINT, f"Reboot {event[:8]}")
    return x, y


def test_event_is_found_on_the_timeline_by_keyboard_and_opened(browser: Browser, service: Service) -> None:
    schedule(service, "shop/FrontEnd_IN_0")
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.page.get_by_role("link", name="Timeline").click()
    browser.wait_until_live()
    browser.page.get_by_role("application", name="Events and waves").focus()
    browser.page.keyboard.press("ArrowDown")
    browser.page.keyboard.press("ArrowDown")
    expect(browser.page.locator(".chart-facts")).to_contain_text(f"Reboot {event[:8]} web")
    expect(browser.page.get_by_role("status").last).to_contain_text(f"web: Reboot {event[:8]}. Notice from")
    browser.page.keyboard.press("Escape")
    expect(browser.page.locator(".chart-facts")).to_be_hidden()
    browser.page.keyboard.press("ArrowDown")
    browser.page.keyboard.press("ArrowDown")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_url(f"**/ui/events/{event}")


def test_event_is_found_by_mouse_with_its_facts_and_opened(browser: Browser, service: Service) -> None:
    schedule(service, "shop/FrontEnd_IN_0")
    event = schedule(service, "web/web-0", "2h")
    browser.sign_in()
    show_timeline(browser)
    browser.page.mouse.move(*point_of(browser, event))
    facts = browser.page.locator(".chart-facts")
    expect(facts).to_contain_text(f"Reboot {event[:8]} web")
    expect(facts).to_contain_text("Notice19:00:00 – 21:00:00")
    expect(facts).to_contain_text("VMsweb-0")
    browser.page.mouse.click(*point_of(browser, event))
    browser.page.wait_for_url(f"**/ui/events/{event}")


def test_chart_changes_live_and_the_present_moves(browser: Browser, service: Service) -> None:
    browser.sign_in()
    show_timeline(browser)
    assert read_view(browser) == (-6 * HOUR, 18 * HOUR)
    event = schedule(service, "web/web-0")
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeExpected impactNow")
    service.api.advance("15m")
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeImpactNow")
    assert read_view(browser) == (-6 * HOUR + 900, 18 * HOUR + 900)
    service.api.advance("1h")
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeImpactCompletedNow")
    browser.page.get_by_text("The same as a table").click()
    expect(browser.page.locator(".chart-table")).to_contain_text(f"Reboot {event[:8]}")


def test_present_moves_with_the_clock_of_the_browser_between_updates(browser: Browser, service: Service) -> None:
    """A page of a service with a real clock; here it is simulated, to go faster."""
    browser.page.clock.install()
    browser.sign_in()
    browser.page.route(
        re.compile(r"/ui/timeline$"),
        lambda route: route.fulfill(response=(answer := route.fetch()), body=answer.text().replace(" data-manual", "")),
    )
    show_timeline(browser)
    first, _ = read_view(browser)
    browser.page.clock.run_for(600_000)
    assert 590 <= read_view(browser)[0] - first <= 610


def test_range_is_moved_by_keyboard_kept_in_the_address_and_follows_the_present_again(browser: Browser) -> None:
    browser.sign_in()
    show_timeline(browser)
    chart = browser.page.locator(".chart-view")
    chart.press("Shift+ArrowLeft")
    assert read_view(browser) == (-12 * HOUR, 12 * HOUR)
    browser.page.wait_for_url("**/ui/timeline?*from=2026-03-01T22*")
    assert url_range(browser) == {"from": ["2026-03-01T22:00:00Z"], "to": ["2026-03-02T22:00:00Z"]}
    browser.page.reload()
    browser.wait_until_live()
    browser.page.evaluate(CHART)
    assert read_view(browser) == (-12 * HOUR, 12 * HOUR)
    chart.press("+")
    assert read_view(browser) == (-8 * HOUR, 8 * HOUR)
    chart.press("-")
    assert read_view(browser) == (-12 * HOUR, 12 * HOUR)
    chart.press("n")
    assert read_view(browser) == (-6 * HOUR, 18 * HOUR)
    browser.page.wait_for_url("**/ui/timeline?*hours=24*")
    assert url_range(browser) == {"hours": ["24"]}


def test_updates_go_on_after_one_was_replaced_by_a_move(browser: Browser, service: Service) -> None:
    """While a range is loaded, an update waits; htmx forgets it for the next range."""
    browser.sign_in()
    show_timeline(browser)
    held: list[Route] = []
    browser.page.route("**/ui/timeline?*", lambda route: held.append(route), times=1)  # noqa: PLW0108 - Playwright sets an attribute of it
    browser.page.evaluate("addEventListener('refresh', () => { window.isRefreshed = true; })")
    with browser.page.expect_request("**/ui/timeline?*"):
        browser.page.locator(".chart-view").press("Shift+ArrowLeft")
    schedule(service, "web/web-0")
    browser.page.wait_for_function("window.isRefreshed")
    browser.page.locator(".chart-view").press("Shift+ArrowLeft")
    browser.page.wait_for_url("**/ui/timeline?*from=2026-03-01T16*")
    held[0].continue_()
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeExpected impactNow")
    service.api.advance("15m")
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeImpactNow")


def test_range_is_moved_by_mouse_and_events_of_another_time_are_loaded(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    service.api.advance("7d")
    browser.sign_in()
    show_timeline(browser, "?hours=744")
    assert browser.page.evaluate("chart.stats.items") == 1
    show_timeline(browser)
    assert browser.page.evaluate("chart.stats.items") == 0
    box = browser.page.locator(".chart-view canvas").bounding_box()
    assert box is not None
    y = box["y"] + 20
    before = read_view(browser)
    browser.page.mouse.move(box["x"] + 400, y)
    browser.page.mouse.down()
    browser.page.mouse.move(box["x"] + 900, y, steps=3)
    browser.page.mouse.up()
    dragged = read_view(browser)
    assert (dragged[0] < before[0], dragged[1] - dragged[0]) == (True, 24 * HOUR)
    browser.page.keyboard.down("Control")
    for _ in range(30):
        browser.page.mouse.wheel(0, 120)
    browser.page.keyboard.up("Control")
    expect(browser.page.locator(".chart-legend")).to_have_text("NoticeImpactCompletedNow")
    browser.page.wait_for_function(f"chart.view.to - chart.view.from > {91 * 24 * HOUR}")  # the longest, of 92 days
    browser.page.get_by_role("button", name="All that is loaded").click()
    browser.page.mouse.click(*point_of(browser, event))
    browser.page.wait_for_url(f"**/ui/events/{event}")


def test_chart_is_pinched_dragged_and_tapped_on_a_phone(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0", "6h")
    browser.sign_in()
    browser.tabs.emulate(width=390, height=800)
    show_timeline(browser)
    touch = browser.tabs.context.new_cdp_session(browser.page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def send(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    browser.page.locator(".chart-view").scroll_into_view_if_needed()
    box = browser.page.locator(".chart-view canvas").bounding_box()
    assert box is not None
    y = box["y"] + 20
    send("touchStart", (150, y), (200, y))
    send("touchMove", (100, y), (250, y))
    send("touchEnd")
    browser.page.evaluate(NEXT_FRAME)  # moves are handled once per frame
    pinched = read_view(browser)
    assert 7 * HOUR < pinched[1] - pinched[0] < 9 * HOUR
    send("touchStart", (100, y))
    for x in (120, 140, 200):
        send("touchMove", (x, y))
    send("touchEnd")
    browser.page.evaluate(NEXT_FRAME)
    panned = read_view(browser)
    assert (panned[0] < pinched[0], panned[1] - panned[0]) == (True, pinched[1] - pinched[0])
    browser.page.get_by_role("button", name="All that is loaded").click()
    point = point_of(browser, event)
    send("touchStart", point)
    send("touchEnd")
    expect(browser.page.locator(".chart-facts")).to_contain_text(f"Reboot {event[:8]}")
    send("touchStart", point)
    send("touchEnd")
    browser.page.wait_for_url(f"**/ui/events/{event}")


def test_filters_keep_the_range_and_a_chosen_range_replaces_it(browser: Browser, service: Service) -> None:
    schedule(service, "web/web-0")
    browser.sign_in()
    show_timeline(browser, "?from=2026-03-02T08:00:00Z&to=2026-03-02T12:00:00Z")
    browser.page.get_by_label("Row per").select_option("host")
    browser.page.get_by_role("button", name="Show").click()
    browser.page.wait_for_url("**group=host*")
    browser.wait_until_live()
    browser.page.evaluate(CHART)
    assert (read_view(browser), browser.page.evaluate("chart.data.rows[0].label")) == ((-2 * HOUR, 2 * HOUR), "hv-0")
    browser.page.get_by_label("Range", exact=True).select_option("1")
    browser.page.get_by_role("button", name="Show").click()
    browser.page.wait_for_url("**hours=1&**")
    assert url_range(browser) == {"hours": ["1"]}


def test_chart_is_saved_as_png_and_printed_in_the_light_theme(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    schedule(service, "web/web-0")
    browser.sign_in()
    browser.tabs.emulate(dark=True)
    show_timeline(browser)
    with browser.page.expect_download() as download:
        browser.page.get_by_role("button", name="Save as PNG").click()
    assert download.value.suggested_filename == "forewarn-timeline-2026-03-02.png"
    download.value.save_as(tmp_path / "chart.png")
    content = (tmp_path / "chart.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert width == 2 * browser.page.evaluate("chart.size.width")
    assert height > 100
    browser.page.evaluate(
        """() => addEventListener("beforeprint", () => {
          const page = document.querySelector(".chart-pages canvas");
          window.printed = [page.width > 1000, ...page.getContext("2d").getImageData(4, 4, 1, 1).data.slice(0, 3)];
        })"""
    )
    assert browser.page.pdf().startswith(b"%PDF")
    assert browser.page.evaluate("window.printed") == [True, 255, 255, 255]
    expect(browser.page.locator(".chart-pages canvas")).to_have_count(0)


def test_windows_blackouts_and_planned_waves_are_drawn(browser: Browser, service: Service) -> None:
    blackout = v1.CampaignBlackout(start=TEN.replace(hour=13), end=TEN.replace(hour=14), why="trade fair")
    window = v1.CampaignWindow(start="08:00", end="18:00")
    service.api.start_campaign(asked("kernel", "web", windows=[window], blackouts=[blackout]))
    browser.sign_in()
    show_timeline(browser)
    legend = browser.page.locator(".chart-legend")
    for name in ("Planned notice", "Expected impact", "Window", "Black-out"):
        expect(legend).to_contain_text(name)
    canvas = browser.page.locator(".chart-view canvas")
    middle = browser.page.evaluate(f"chart.layout.x(chart.view, {START + 3.5 * HOUR})")
    canvas.hover(position={"x": middle, "y": 52})
    expect(canvas).to_have_attribute("title", "Black-out: trade fair")
    browser.page.get_by_text("The same as a table").click()
    expect(browser.page.locator("#timeline-table")).to_contain_text("Black-out trade fair: 22:00:00 – 23:00:00")


def test_backgrounds_of_many_campaigns_leave_room_for_the_rows(browser: Browser) -> None:
    browser.sign_in()
    show_timeline(browser)
    windows = [{"kind": "window", "from": START + n, "to": START + 300 + n, "label": f"c{n}"} for n in range(9)]
    later = {"kind": "blackout", "from": START + 310, "to": START + 320, "label": "fair"}
    data = {"from": START, "to": START + 400, "rows": [], "backgrounds": [*windows, later]}
    shown: Any = browser.page.evaluate(
        """(data) => {
          chart.update(data);
          const { areas, backgrounds, hiddenStrips, head } = chart.layout;
          return { areas, labels: backgrounds.map(({ label }) => label), hiddenStrips, head };
        }""",
        data,
    )
    assert shown == {
        "areas": [
            {"kind": "window", "from": START, "to": START + 308},
            {"kind": "blackout", "from": START + 310, "to": START + 320},
        ],
        "labels": ["fair", "c0", "c1"],
        "hiddenStrips": 7,
        "head": 122,
    }


def test_picture_of_some_rows_says_which(browser: Browser, service: Service) -> None:
    for vm in ("web/web-0", "shop/FrontEnd_IN_0", "db-0/db-0"):
        schedule(service, vm)
    browser.sign_in()
    show_timeline(browser)
    title, *others = browser.page.evaluate(TEXTS)
    assert (title.endswith(", rows 1 to 2 of 3"), {"db-0", "shop"} <= set(others)) == (True, True)


def test_facts_of_the_selected_item_stay_beside_it_when_the_window_changes(browser: Browser, service: Service) -> None:
    schedule(service, "web/web-0", "6h")
    browser.sign_in()
    show_timeline(browser)
    browser.page.locator(".chart-view").press("ArrowDown")
    expect(browser.page.locator(".chart-facts")).to_be_visible()
    for width in (390, 1280):
        browser.tabs.emulate(width=width)
        expect(browser.page.locator(".chart-facts")).to_be_in_viewport(ratio=1)
        assert browser.overflow() == 0


def test_hostile_text_is_only_text_in_the_facts_and_the_table(browser: Browser, service: Service) -> None:
    hostile = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    ask = v1.ScheduleEvents(
        type=EventType.REBOOT, vms=["web/web-0"], notice="15m", unannounced=True, reason=hostile, description=hostile
    )
    service.api.schedule(ask)
    browser.sign_in()
    show_timeline(browser)
    browser.page.locator(".chart-view").press("ArrowDown")
    expect(browser.page.locator(".chart-facts")).to_contain_text(hostile)
    browser.page.get_by_text("The same as a table").click()
    expect(browser.page.locator(".chart-table")).to_contain_text(hostile)
    expect(browser.main.locator("img")).to_have_count(0)


def test_facts_and_table_have_no_violation_in_both_themes_on_a_screen_and_a_phone(
    browser: Browser, service: Service
) -> None:
    schedule(service, "web/web-0")
    service.api.start_campaign(asked("kernel", "batch", windows=[v1.CampaignWindow(start="08:00", end="18:00")]))
    browser.sign_in()
    found = {}
    for path in ("/ui/timeline?table=1", "/ui/campaigns/kernel?table=1"):
        browser.show(path)
        expect(browser.page.locator(".chart-table")).to_be_visible()
        browser.page.locator(".chart-view").press("ArrowDown")
        expect(browser.page.locator(".chart-facts")).to_be_visible()
        for dark in (False, True):
            for width in (1280, 390):
                browser.tabs.emulate(width=width, dark=dark)
                browser.page.evaluate(NEXT_FRAME)  # the chart follows the window
                found[path, dark, width] = (browser.overflow(), browser.violations())
        browser.tabs.emulate()
    assert found == dict.fromkeys(found, (0, []))


def test_overlapping_items_are_below_each_other_and_the_plan_is_above_reality(browser: Browser) -> None:
    browser.sign_in()
    show_timeline(browser)
    items = [("a", 0, 100, False), ("b", 50, 150, False), ("c", 110, 200, False), ("p", 0, 300, True)]
    row = {
        "label": "web",
        "items": [
            {"label": label, "bars": [["impact", START + begin, START + end]], "facts": [], "plan": plan}
            for label, begin, end, plan in items
        ],
    }
    data = {"from": START, "to": START + 400, "rows": [row], "backgrounds": []}
    lanes: Any = browser.page.evaluate(
        """(data) => {
          chart.update(data);
          return chart.layout.rows[0].lanes.map(({ height, items }) => [height, items.map(({ label }) => label)]);
        }""",
        data,
    )
    assert lanes == [[12, ["p"]], [20, ["a", "c"]], [20, ["b"]]]


def test_many_items_of_one_row_are_drawn_as_far_as_they_can_be_told_apart(browser: Browser) -> None:
    browser.sign_in()
    show_timeline(browser)
    items = [
        {"label": f"i{n}", "href": f"/{n}", "bars": [["impact", START + 120 * n, START + 120 * n + 60]], "facts": []}
        for n in range(5000)
    ]
    data = {"from": START, "to": START + 120, "rows": [{"label": "web", "items": items}], "backgrounds": []}
    counts: Any = browser.page.evaluate(
        """async (data) => {
          const counts = {};
          chart.update(data);
          for (const [name, from, to] of [["all", 0, 600_000], ["last", 599_000, 600_000]]) {
            chart.show(data.from + from, data.from + to);
            const frame = chart.stats.frames;
            while (chart.stats.frames === frame) {
              await new Promise(requestAnimationFrame);
            }
            counts[name] = [chart.stats.drawn, chart.stats.examined, chart.layout.rows[0].lanes.length];
          }
          return counts;
        }""",
        data,
    )
    width = browser.page.evaluate("chart.size.width")
    assert counts["all"][2] == 1
    assert 0 < counts["all"][0] <= width
    assert counts["last"][1] < 20


def test_5000_events_stay_smooth_because_only_what_is_visible_is_drawn(
    chromium: playwright.sync_api.Browser,
) -> None:
    """Each frame looks at the visible items only. The times of the frames are in the output of the test (`-rP`)."""
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:04}"\nkind = "standalone"\nhosts = ["h{n % 97}"]\nvms = [{{ name = "vm-{n:04}" }}]\n'
        for n in range(5000)
    )
    with run_dashboard(fleet) as service, open_browser(chromium, service.running.url) as browser:
        for part in range(5):
            vms = [f"s{n:04}/vm-{n:04}" for n in range(part, 5000, 5)]
            notice = f"{15 + 10 * part}m"
            service.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=vms, notice=notice, unannounced=True))
        service.api.advance("30m")
        browser.sign_in()
        for group in ("scope", "host"):
            show_timeline(browser, f"?group={group}&hours=6")
            assert browser.page.evaluate("chart.stats.items") == 5000
            result: Any = browser.page.evaluate(FRAMES, 60)
            lanes = browser.page.evaluate("chart.size.height") // 20 + 2
            tallest = browser.page.evaluate("Math.max(...chart.layout.rows.map(({ lanes }) => lanes.length))")
            assert len(result["seen"]) == 60
            assert all(0 < drawn <= lanes for drawn, _ in result["seen"])
            assert all(examined <= 2 * (lanes + 2 * tallest) for _, examined in result["seen"])
            for name in ("times", "distances"):
                times = sorted(result[name])
                report = f"median {times[len(times) // 2]:.1f} ms, longest {times[-1]:.1f} ms, of {len(times)} frames"
                sys.stdout.write(f"5,000 events by {group}, {name}: {report}\n")
