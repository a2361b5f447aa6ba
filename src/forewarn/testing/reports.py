"""Findings as JUnit XML, the form of a report that every CI service reads."""

import re
from collections.abc import Sequence
from enum import StrEnum
from io import BytesIO
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

import msgspec

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file can hold, not even escaped; a program under test may well have written them."""


class CaseStatus(StrEnum):
    """How a case came out. Skipped is what was not judged: it counts neither for nor against."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    name: str
    classname: str
    """Where it belongs, in parts parted by dots: reports are folded by it."""
    status: CaseStatus
    message: str = ""
    """In one line, why it is not passed."""
    details: str = ""
    """What was seen, in as many lines as it takes."""
    seconds: float = 0.0


def junit(suite: str, cases: Sequence[Case], *, seconds: float | None = None) -> bytes:
    """Write a report: UTF-8, indented, the cases in their order.

    `seconds` is how long all of it took, where that is not the sum of the cases.
    """
    about = _about(suite, cases, sum(case.seconds for case in cases) if seconds is None else seconds)
    root = Element("testsuites", about)
    folder = SubElement(root, "testsuite", about)
    for case in cases:
        _add(folder, case)
    indent(root)
    written = BytesIO()
    ElementTree(root).write(written, encoding="UTF-8", xml_declaration=True)
    return written.getvalue() + b"\n"


def _about(suite: str, cases: Sequence[Case], seconds: float) -> dict[str, str]:
    statuses = [case.status for case in cases]
    return {
        "name": _allowed(suite),
        "tests": str(len(cases)),
        "failures": str(statuses.count(CaseStatus.FAILED)),
        "errors": "0",
        "skipped": str(statuses.count(CaseStatus.SKIPPED)),
        "time": _seconds(seconds),
    }


def _add(folder: Element, case: Case) -> None:
    element = SubElement(
        folder,
        "testcase",
        classname=_allowed(case.classname),
        name=_allowed(case.name),
        time=_seconds(case.seconds),
    )
    match case.status:
        case CaseStatus.FAILED:
            failure = SubElement(element, "failure", message=_allowed(case.message), type="failed")
            failure.text = _allowed(case.details or case.message)
        case CaseStatus.SKIPPED:
            SubElement(element, "skipped", message=_allowed(case.message))
            _add_output(element, case.details)
        case CaseStatus.PASSED:
            _add_output(element, case.details)


def _add_output(element: Element, details: str) -> None:
    if details:
        SubElement(element, "system-out").text = _allowed(details)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _allowed(text: str) -> str:
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
