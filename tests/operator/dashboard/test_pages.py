"""Filters, forms and error pages."""

from datetime import UTC, datetime

import pytest
from litestar.exceptions import ValidationException

from forewarn.api import v1
from forewarn.operator.dashboard.pages import convert_form, path_segment, show_count, show_moment, show_text
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import run_api


def test_time_has_its_utc_value_for_scripts_hover_and_browsers_without_scripts() -> None:
    moment = datetime(2026, 3, 2, 10, 15, 3, tzinfo=UTC)
    assert show_moment(moment, "relative") == (
        '<time datetime="2026-03-02T10:15:03Z" data-kind="relative" title="2026-03-02 10:15:03 UTC">'
        "2026-03-02 10:15 UTC</time>"
    )
    assert show_moment(None) == '<span class="none">none</span>'


def test_times_and_events_in_a_text_are_shown_as_such_and_the_rest_is_escaped() -> None:
    event = "5B067F98-E790-5859-9A37-B75D86282A82"
    assert show_text(f"<b> from 2026-03-02 10:15:00Z, event {event}, VM {event}, not at 2026-99-02 10:15:00Z") == (
        '&lt;b&gt; from <time datetime="2026-03-02T10:15:00Z" data-kind="moment" title="2026-03-02 10:15:00 UTC">'
        f'2026-03-02 10:15 UTC</time>, event <a href="/ui/events/{event}"><span class="id">5B067F98</span></a>, '
        f"VM {event}, not at 2026-99-02 10:15:00Z"
    )


def test_command_in_a_text_is_shown_as_code() -> None:
    assert show_text("`forewarn release <x>` ends it; a `b") == (
        "<code>forewarn release &lt;x&gt;</code> ends it; a `b"
    )


def test_numbers_have_separators_and_nouns() -> None:
    assert [show_count(n, "VM") for n in (0, 1, 12000)] == ["0 VMs", "1 VM", "12,000 VMs"]
    assert show_count(2, "entry", "entries") == "2 entries"


def test_segment_of_a_path_has_no_special_characters() -> None:
    assert path_segment("a/b?c#d e%") == "a%2Fb%3Fc%23d%20e%25"


def test_form_is_checked_like_a_request_of_the_api() -> None:
    assert convert_form({"done": "true", "reason": "x"}, v1.ResolveImpact) == v1.ResolveImpact(done=True, reason="x")
    for wrong in ({"done": "true"}, {"done": "perhaps", "reason": "x"}, {"done": "true", "reason": "x", "other": "1"}):
        with pytest.raises(ValidationException):
            convert_form(wrong, v1.ResolveImpact)


async def test_unknown_page_and_unknown_parameter_have_an_error_page() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        missing = await browser.get("/ui/nothing/here")
        text = page_text(missing.body.decode())
        assert (missing.status, text) == (404, "Not found There is no such page. Go to the overview")
        wrong = await browser.get("/ui?colour=red")
        assert (wrong.status, "Unknown query parameter colour" in page_text(wrong.body.decode())) == (400, True)
        method = await browser.post("/ui/stream")
        assert method.status == 405


async def test_error_of_a_part_of_a_page_is_a_text_for_the_place_of_errors() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        wrong = await browser.get("/ui?colour=red", HX_Request="true")
        assert (wrong.status, wrong.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert wrong.body == b"unknown query parameter colour"
