"""JUnit XML reports, which every CI service reads."""

import re
from collections.abc import Sequence
from enum import StrEnum
from io import BytesIO
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

import msgspec

INVALID_XML_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow, not even escaped; the output of a program under test may contain them."""


class CaseStatus(StrEnum):
    """The result of a case. Skipped cases were not judged: they count neither as passed nor as failed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    name: str
    classname: str
    """The group of the case, in parts separated by dots; viewers group a report by it."""
    status: CaseStatus
    message: str = ""
    """Why the case did not pass, in one line."""
    details: str = ""
    """What was observed, in any number of lines."""
    seconds: float = 0.0


def junit(suite: str, cases: Sequence[Case], *, seconds: float | None = None) -> bytes:
    """Return a report in UTF-8, indented, with the cases in the given order.

    `seconds` is the total run time, if it is not the sum of the cases.
    """
    attributes = _suite_attributes(suite, cases, sum(case.seconds for case in cases) if seconds is None else seconds)
    root = Element("testsuites", attributes)
    suite_element = SubElement(root, "testsuite", attributes)
    for case in cases:
        _add_case(suite_element, case)
    indent(root)
    buffer = BytesIO()
    ElementTree(root).write(buffer, encoding="UTF-8", xml_declaration=True)
    return buffer.getvalue() + b"\n"


def _suite_attributes(suite: str, cases: Sequence[Case], seconds: float) -> dict[str, str]:
    statuses = [case.status for case in cases]
    return {
        "name": _xml_text(suite),
        "tests": str(len(cases)),
        "failures": str(statuses.count(CaseStatus.FAILED)),
        "errors": "0",
        "skipped": str(statuses.count(CaseStatus.SKIPPED)),
        "time": _seconds(seconds),
    }


def _add_case(suite_element: Element, case: Case) -> None:
    element = SubElement(
        suite_element,
        "testcase",
        classname=_xml_text(case.classname),
        name=_xml_text(case.name),
        time=_seconds(case.seconds),
    )
    match case.status:
        case CaseStatus.FAILED:
            failure = SubElement(element, "failure", message=_xml_text(case.message), type="failed")
            failure.text = _xml_text(case.details or case.message)
        case CaseStatus.SKIPPED:
            SubElement(element, "skipped", message=_xml_text(case.message))
            _add_output(element, case.details)
        case CaseStatus.PASSED:
            _add_output(element, case.details)


def _add_output(element: Element, details: str) -> None:
    if details:
        SubElement(element, "system-out").text = _xml_text(details)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _xml_text(text: str) -> str:
    return INVALID_XML_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)
