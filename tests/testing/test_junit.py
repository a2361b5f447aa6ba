"""Tests of JUnit reports: valid XML for any text, and totals that match the cases."""

from xml.etree import ElementTree

from forewarn.testing.junit import Case, CaseStatus, junit

PASSED = Case(name="asks once a second", classname="exam.freeze", status=CaseStatus.PASSED, seconds=1.25)
FAILED = Case(
    name="approves once",
    classname="exam.freeze",
    status=CaseStatus.FAILED,
    message="approved 2 times",
    details="POST at 10:00:00\nPOST at 10:00:01",
    seconds=0.5,
)
SKIPPED = Case(
    name="recovers",
    classname="exam.freeze",
    status=CaseStatus.SKIPPED,
    message="no marker file",
    details="--recovered FILE",
)


def test_report_has_all_cases_in_order() -> None:
    assert junit("forewarn exam", [PASSED, FAILED, SKIPPED]).decode() == (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        '<testsuites name="forewarn exam" tests="3" failures="1" errors="0" skipped="1" time="1.750">\n'
        '  <testsuite name="forewarn exam" tests="3" failures="1" errors="0" skipped="1" time="1.750">\n'
        '    <testcase classname="exam.freeze" name="asks once a second" time="1.250" />\n'
        '    <testcase classname="exam.freeze" name="approves once" time="0.500">\n'
        '      <failure message="approved 2 times" type="failed">POST at 10:00:00\nPOST at 10:00:01</failure>\n'
        "    </testcase>\n"
        '    <testcase classname="exam.freeze" name="recovers" time="0.000">\n'
        '      <skipped message="no marker file" />\n'
        "      <system-out>--recovered FILE</system-out>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_report_has_the_given_total_time() -> None:
    """The total differs from the sum if cases run in parallel, or if some work belongs to no case."""
    root = ElementTree.fromstring(junit("forewarn exam", [PASSED, FAILED], seconds=9.5))
    assert [root.get("time"), *(suite.get("time") for suite in root)] == ["9.500", "9.500"]


def test_report_without_cases_has_an_empty_suite() -> None:
    (suite,) = ElementTree.fromstring(junit("empty", []))
    assert (suite.get("tests"), suite.get("failures"), list(suite)) == ("0", "0", [])


def test_failure_without_details_contains_its_message() -> None:
    case = Case(name="n", classname="c", status=CaseStatus.FAILED, message="no answer")
    ((element,),) = ElementTree.fromstring(junit("s", [case]))
    failure = element.find("failure")
    assert failure is not None
    assert failure.text == "no answer"


def test_characters_that_xml_does_not_allow_are_replaced() -> None:
    """The output of a program under test may contain any bytes."""
    wild = "\x00\x1b[31mred \ud800 & <b> ]]> \ufffe é 🦊 \t."
    case = Case(name=wild, classname="c", status=CaseStatus.FAILED, message=wild, details=wild)
    ((element,),) = ElementTree.fromstring(junit(wild, [case]))
    failure = element.find("failure")
    assert failure is not None
    assert failure.text == "��[31mred � & <b> ]]> � é 🦊 \t."
    assert element.get("name") == "��[31mred � & <b> ]]> � é 🦊 \t."
