"""Exam of a handler: run the user's program in one scenario after another and grade its observable behaviour."""

from forewarn.testing.exam.api_report import api_report
from forewarn.testing.exam.catalog import HANDLER_VM, ExamScenario, HandlerMissing, exam_scenarios, own_scenario
from forewarn.testing.exam.causes import Cause, causes
from forewarn.testing.exam.checks import Check, Finding, Polarity, Verdict
from forewarn.testing.exam.expectations import Expectation, Expectations, InvalidExpectation, parse_expectations
from forewarn.testing.exam.handler_process import LaunchFailed, LaunchOptions
from forewarn.testing.exam.report import Report, cases, result_word, summary, unexercised_reason, with_labels
from forewarn.testing.exam.runner import ExamObserver, examine
from forewarn.testing.exam.scenario_run import LIMIT, ExamOptions, Markers, Result
from forewarn.testing.junit import junit

__all__ = [
    "HANDLER",
    "HANDLER_VM",
    "LIMIT",
    "Ask",
    "Cause",
    "Check",
    "Demand",
    "ExamObserver",
    "ExamOptions",
    "ExamScenario",
    "Expectation",
    "Expectations",
    "Finding",
    "HandlerMissing",
    "InvalidExpectation",
    "LaunchFailed",
    "LaunchOptions",
    "Markers",
    "Mood",
    "NotBegun",
    "Polarity",
    "Report",
    "Result",
    "Sheet",
    "UnknownWish",
    "Verdict",
    "Watcher",
    "Way",
    "Wish",
    "Wishes",
    "api_report",
    "cases",
    "causes",
    "exam_scenarios",
    "examine",
    "junit",
    "own_scenario",
    "parse_expectations",
    "result_word",
    "sheets",
    "summary",
    "unexercised_reason",
    "wishes_of",
    "with_labels",
]

# Earlier public names, kept as aliases.
Watcher = ExamObserver
NotBegun = LaunchFailed
Way = LaunchOptions
Sheet = ExamScenario
sheets = exam_scenarios
HANDLER = HANDLER_VM
Demand = Check
Mood = Polarity
Ask = ExamOptions
Wish = Expectation
Wishes = Expectations
UnknownWish = InvalidExpectation
wishes_of = parse_expectations
