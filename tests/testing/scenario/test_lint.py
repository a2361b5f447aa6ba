"""Tests of the scenario linter: it finds all errors of a scenario, without errors that only follow from others."""

from forewarn.testing.scenario import find_problems, library_scenarios

WEB = "platform automatic\nscope web availability-set\nvm web-0\n"


def found(text: str) -> list[tuple[int, int, str]]:
    return [(error.line, error.column, error.word) for error in find_problems(text)]


def test_errors_in_words_names_times_and_arrows_are_all_found() -> None:
    text = (
        f"{WEB}vm web-0\nquery web-9\ncancel E7\nrestart web-0\nwait 5m ->\n"
        "query web-0 at 10:04\nwait soon\nschedule Reboot web-8 in 15m → E2 Scheduled\n"
    )
    assert found(text) == [
        (4, 4, "web-0"),
        (5, 7, "web-9"),
        (6, 8, "E7"),
        (8, 9, ""),
        (9, 13, "at"),
        (10, 6, "soon"),
        (11, 17, "web-8"),
    ]


def test_shipped_scenarios_have_no_errors() -> None:
    assert {scenario.name: found(scenario.text) for scenario in library_scenarios() if found(scenario.text)} == {}


def test_unmet_expectation_is_not_an_error() -> None:
    assert found(f"{WEB}restart web-0 → E1 Started\nexpect E1 Completed within 1s\n") == []


def test_unknown_vm_is_no_error_if_the_refusal_is_expected() -> None:
    assert found(f"{WEB}restart web-9 → refused vm-not-found: scope web has no VM web-9\n") == []


def test_names_that_a_wrong_line_may_define_are_no_errors() -> None:
    assert found("scope web availability-sett\nvm web-0\nquery web-0\n") == [(1, 11, "availability-sett")]
    assert found(f"{WEB}vm web-1 domain x\nquery web-1\nquery web-2\n") == [(4, 17, "x"), (6, 7, "web-2")]
    assert found("platform automatic\nscope a standalone\nquery a/x\nvm x\n") == [(3, 7, "a/x")]


def test_labels_after_a_wrong_line_that_may_create_events_are_no_errors() -> None:
    assert found(f"{WEB}shedule Reboot web-0\ncancel E1\n") == [(4, 1, "shedule")]
    assert found(f"{WEB}schedule Rebot web-0\ncancel E1\n") == [(4, 10, "Rebot")]
    assert found(f"{WEB}restart web-9\ncancel E1\n") == [(4, 9, "web-9")]


def test_scenario_that_is_too_long_is_one_error() -> None:
    assert found("tick\n" * 10_001) == [(10_001, 1, "")]
