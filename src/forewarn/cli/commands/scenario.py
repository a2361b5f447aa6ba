"""`forewarn scenario …`: list, show, check and run scenarios."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forewarn.api.v1 import ScenarioVerdict
from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import ANY_NUMBER, FILE_PATH, CommandGroup, complete_words, output_option, with_options
from forewarn.cli.options.connection import SERVICE_OPTIONS
from forewarn.cli.output import Output, write, write_bytes, write_json, write_message
from forewarn.cli.scenario_runner import ScenarioOptions, ScenarioResult, run_scenarios
from forewarn.cli.views.tables import Column, write_table
from forewarn.testing.scenario import (
    Scenario,
    ScenarioError,
    find_problems,
    library_names,
    library_scenarios,
    library_text,
    parse_scenario,
    syntax_errors,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

app = CommandGroup()

SCENARIO_COLUMNS = (Column("SCENARIO"), Column("WHAT IT SHOWS", can_fold=True))
RESULT_COLUMNS = (
    Column("SCENARIO"),
    Column(
        "RESULT",
        colours={
            ScenarioVerdict.PASSED: Colour.GOOD,
            ScenarioVerdict.FAILED: Colour.BAD,
            ScenarioVerdict.INVALID: Colour.BAD,
        },
    ),
    Column("STEPS"),
    Column("TOOK", drop_order=1),
    Column("ON", drop_order=2),
)


def _complete_names(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    return complete_words(library_names(), incomplete)


@app.command("list")
@output_option
def list_(output: Output) -> None:
    """List the scenarios that come with Forewarn.

    Example: forewarn scenario list
    """
    if output is Output.JSON:
        write_json([{"name": each.name, "title": each.title, "handler": each.handler} for each in library_scenarios()])
    else:
        write_table(SCENARIO_COLUMNS, [(each.name, each.title) for each in library_scenarios()])


@app.command("show")
@click.argument("scenario", metavar="SCENARIO", shell_complete=_complete_names)
@output_option
def show(scenario: str, output: Output) -> None:
    """Show the text of a scenario.

    Copy one to start your own.

    Example: forewarn scenario show user-restart > mine.txt
    """
    found = _find_scenario(scenario)
    if output is Output.JSON:
        write_json({"name": found.name, "title": found.title, "handler": found.handler, "text": found.text})
    else:
        write_bytes(found.text.encode())


@app.command("check")
@click.argument("files", type=FILE_PATH, metavar="FILE...", nargs=-1, required=True)
@output_option
def check(files: Sequence[Path], output: Output) -> None:
    """Check scenario files for errors.

    Each error has its line, its word and what is allowed there. The exit code is 0 if there are no errors, else 1.

    Example: forewarn scenario check mine.txt
    """
    errors = [(file, error) for file in files for error in find_problems(_read_file(file))]
    if output is Output.JSON:
        write_json(
            [
                {"file": str(file), "line": e.line, "column": e.column, "word": e.word, "problem": e.problem}
                for file, e in errors
            ]
        )
    else:
        for file, error in errors:
            write(_error_text(str(file), error))
    if errors:
        raise click.exceptions.Exit(ExitCode.FAILED)
    write_message("No errors." if len(files) == 1 else f"No errors in {len(files)} files.")


@app.command("run")
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1, shell_complete=_complete_names)
@click.option("--all", "all_", is_flag=True, help="Run all scenarios that come with Forewarn.")
@click.option("--core", is_flag=True, help="Run on the rules alone, without a service, in milliseconds.")
@click.option("--private", is_flag=True, help="Run in a separate service with a manual clock.")
@click.option(
    "--speed",
    type=ANY_NUMBER,
    metavar="NUMBER",
    help="Run in a separate service, this many times faster than real time.",
)
@with_options(SERVICE_OPTIONS.values())
@output_option
def run(
    scenarios: Sequence[str],
    all_: bool,
    core: bool,
    private: bool,
    speed: float | None,
    output: Output,
    **service_options: Any,
) -> None:
    """Run scenarios and compare what happens with what they expect.

    SCENARIO is a name from `scenario list` or a file. Scenarios run in the running service; if no service runs, in a
    separate one with a manual clock, which takes a moment to start. Each scenario adds its own scopes and removes them
    when it ends.

    The exit code is 0 if everything happened as expected, else 1.

    Examples: forewarn scenario run user-restart; forewarn scenario run mine.txt --core
    """
    if bool(scenarios) is all_:
        raise CliError(ExitCode.USAGE, "specify SCENARIO, such as `forewarn scenario run user-restart`, or --all")
    if core and (private or speed is not None):
        raise CliError(ExitCode.USAGE, "--core and --private or --speed are mutually exclusive")
    if speed is not None and not speed > 0:
        raise CliError(ExitCode.USAGE, "--speed must be greater than 0")
    selected = list(library_scenarios()) if all_ else [_find_scenario(name) for name in scenarios]
    options = ScenarioOptions(core=core, private=private, speed=speed, service_options=service_options)
    results = run_scenarios(selected, options)
    _write_results(results, output)
    if any(result.verdict is not ScenarioVerdict.PASSED for result in results):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _write_results(results: list[ScenarioResult], output: Output) -> None:
    if output is Output.JSON:
        write_json(results)
        return
    write_table(
        RESULT_COLUMNS,
        [(each.name, each.verdict, str(len(each.steps)), f"{each.seconds:.2f} s", each.backend) for each in results],
    )
    for result in results:
        for line in result.failure_lines():
            write(line)


def _find_scenario(name: str) -> Scenario:
    """Return the scenario of this name that comes with Forewarn, else read it from a file."""
    is_shipped = name in library_names()
    text = library_text(name) if is_shipped else _read_file(Path(name))
    try:
        return parse_scenario(name if is_shipped else Path(name).stem, text)
    except ScenarioError as error:
        raise CliError(
            ExitCode.USAGE, f"SCENARIO: {_error_text(name, error)}{_more_errors(name, len(syntax_errors(text)) - 1)}"
        ) from None


def _more_errors(name: str, number: int) -> str:
    """Return a hint to the command that shows further errors."""
    return f" (`forewarn scenario check {name}` shows {number} more)" if number else ""


def _read_file(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        raise CliError(
            ExitCode.NOT_FOUND, f"there is no scenario or file {file}; `forewarn scenario list` lists the scenarios"
        ) from None
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"SCENARIO: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(ExitCode.USAGE, f"SCENARIO: cannot read {file}: not valid UTF-8") from None


def _error_text(file: str, error: ScenarioError) -> str:
    at = f" '{error.word}':" if error.word else ""
    return f"{file}:{error.line}:{error.column}:{at} {error.problem}"
