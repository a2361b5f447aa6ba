"""Scenarios: maintenance as text in a small language, and backends that run it. See `parser` for the format."""

from forewarn.testing.scenario.commands import NOTHING, Expect
from forewarn.testing.scenario.core_backend import CoreBackend
from forewarn.testing.scenario.handler_role import HandlerProgram
from forewarn.testing.scenario.journal_watcher import Cancelled
from forewarn.testing.scenario.lexer import ScenarioError
from forewarn.testing.scenario.library import Scenario, library_names, library_scenarios, library_text, parse_scenario
from forewarn.testing.scenario.lint import find_problems
from forewarn.testing.scenario.live_backend import LiveBackend, ScenarioNotAllowed
from forewarn.testing.scenario.parser import Script, Step, parse, render_script, syntax_errors
from forewarn.testing.scenario.result import step_result, verdict_of
from forewarn.testing.scenario.runner import Backend, CommandResult, InvalidCommand, StepResult, run_script
from forewarn.testing.scenario.setup import ServiceSetup, max_duration, required_setup
from forewarn.testing.scenario.speed_limits import measure, speed_problem

__all__ = [
    "NOTHING",
    "Backend",
    "Cancelled",
    "CommandResult",
    "CoreBackend",
    "Expect",
    "HandlerProgram",
    "InvalidCommand",
    "LiveBackend",
    "Scenario",
    "ScenarioError",
    "ScenarioNotAllowed",
    "Script",
    "ServiceSetup",
    "Step",
    "StepResult",
    "find_problems",
    "library_names",
    "library_scenarios",
    "library_text",
    "max_duration",
    "measure",
    "parse",
    "parse_scenario",
    "render_script",
    "required_setup",
    "run_script",
    "speed_problem",
    "step_result",
    "syntax_errors",
    "verdict_of",
]
