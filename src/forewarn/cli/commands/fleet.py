"""`forewarn fleet …`: import and export the fleet file."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from forewarn.api import v1
from forewarn.api.client import ApiClient, FileFormat
from forewarn.api.errors import ApiError, NotFound, RequestRefused
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.errors import EXIT_INTERRUPTED, CliError, ExitCode
from forewarn.cli.files import atomic_write
from forewarn.cli.options.common import FILE_PATH, CommandGroup
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, write, write_bytes, write_json, write_message
from forewarn.cli.views.progress import ProgressBar
from forewarn.settings.file_reader import FileError

app = CommandGroup()

STDIO = Path("-")

MAX_LINES = 200
"""The most lines of differences shown on a terminal."""

NOT_STARTED = (
    "Interrupted before the service confirmed the import; `forewarn fleet import --dry-run` shows what differs."
)

SIGNS = {"added": ("+", Colour.GOOD), "changed": ("~", Colour.WARNING), "removed": ("-", Colour.BAD)}


@app.command("import")
@click.argument("file", type=FILE_PATH, metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show the differences; change nothing.")
@click.option("--prune", is_flag=True, help="Also remove scopes and VMs that the file does not name.")
@click.option("--yes", "-y", is_flag=True, help="Remove without asking.")
@with_service
def import_(connection: ServiceConnection, file: Path, dry_run: bool, prune: bool, yes: bool) -> None:
    """Import a fleet file: change the fleet to match it. Shows the differences; VMs that match are not touched.

    FILE is TOML, or JSON if its name ends in .json; - is stdin. Without --prune nothing is removed; with --prune the
    command shows what it would remove and asks for confirmation. Ctrl-C cancels the import on the service; what was
    done stays. After an interruption, run it again.

    Example: forewarn fleet import fleet.toml --dry-run
    """
    text, format_ = _read_file(file), _format(file, connection.output if file == STDIO else Output.TABLE)
    if prune and not (dry_run or yes):
        _confirm_removal(_import(connection.api, file, text, format_, dry_run=True, prune=True))
    result = _import(connection.api, file, text, format_, dry_run=dry_run, prune=prune)
    if connection.output is Output.JSON:
        write_json(result)
    else:
        _write_differences(result.differences)
    write_message(_summary(result))
    if result.refused_count:
        raise click.exceptions.Exit(ExitCode.REFUSED)


@app.command("export")
@click.argument("file", type=FILE_PATH, metavar="[FILE]", required=False)
@with_service
def export(connection: ServiceConnection, file: Path | None) -> None:
    """Export the fleet as a file that `fleet import` reads. Writes to FILE, or to stdout (-).

    The format is TOML, or JSON if the name of FILE ends in .json or with -o json.

    Example: forewarn fleet export fleet.toml
    """
    pieces = connection.api.export_fleet(_format(file, connection.output))
    if file is None or file == STDIO:
        for piece in pieces:
            write_bytes(piece)
        return
    with atomic_write(file) as draft:
        for piece in pieces:
            draft.write(piece)
    write_message(f"Exported the fleet to {file}.")


def _format(file: Path | None, output: Output) -> FileFormat:
    if file is not None and file.suffix.lower() in {".json", ".toml"}:
        return "json" if file.suffix.lower() == ".json" else "toml"
    return "json" if output is Output.JSON else "toml"


def _read_file(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIO else file.read_bytes()
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"FILE: cannot read {file}: {error.strerror or error}") from error


def _import(
    api: ApiClient, file: Path, text: bytes, format_: FileFormat, *, dry_run: bool, prune: bool
) -> v1.ImportResult:
    """Import the file and show a progress bar. Ctrl-C cancels the import."""
    is_started = False
    try:
        with ProgressBar("Comparing" if dry_run else "Importing") as bar:
            for progress in api.import_fleet(text, format_, dry_run=dry_run, prune=prune):
                is_started = True
                bar.show(progress.done, progress.total)
                if progress.error is not None:
                    raise _import_error(file, progress.error.error)
                if progress.result is not None:
                    return progress.result
    except KeyboardInterrupt:
        write_message(_cancel(api, dry_run=dry_run) if is_started else NOT_STARTED)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    raise CliError(ExitCode.FAILED, "the import ended without a result; run the command again to continue it")


def _cancel(api: ApiClient, *, dry_run: bool) -> str:
    """Cancel the import that this command has started; return what was done."""
    try:
        ended = api.cancel_import()
    except NotFound:
        return "Interrupted, but the import had ended; `forewarn fleet import --dry-run` shows what still differs."
    except ApiError as error:
        return f"Interrupted, but the import could not be canceled and may continue on the service: {error}"
    if dry_run:
        return "Canceled; nothing was changed."
    if not ended.canceled:
        return f"Interrupted, but the import had ended: {ended.done} of {ended.total} scopes are done."
    if not ended.done:
        return "Canceled; nothing was changed."
    return (
        f"Canceled: {ended.done} of {ended.total} scopes are done and stay changed, the others are as before. "
        "Run the command again to continue."
    )


def _import_error(file: Path, error: v1.ErrorBody) -> Exception:
    """Return why nothing was imported. An error in the file gets the file's name, which the service does not know."""
    if error.code != "invalid-fleet-file":
        return RequestRefused(409, error.code, error.message, error.details)
    key, problem = str(error.details["key"]), str(error.details["problem"])
    line = str(error.details.get("line", ""))  # older services do not send it
    return FileError("stdin" if file == STDIO else str(file), key, problem, int(line) if line else None)


def _confirm_removal(preview: v1.ImportResult) -> None:
    """Show what would be removed, and ask for confirmation."""
    named = [difference for difference in preview.differences if difference.action == "removed"]
    removed = [difference for difference in named if not difference.refusal]
    if not removed:
        return
    for line in _all_difference_lines(named):
        write_message(line)
    if not sys.stdin.isatty():
        raise CliError(ExitCode.USAGE, f"{_count_text(removed)} would be removed; to confirm, add --yes")
    if not click.confirm(f"Remove {_count_text(removed)}?", err=True):
        raise CliError(ExitCode.FAILED, "aborted; nothing was changed")


def _write_differences(differences: Sequence[v1.Difference]) -> None:
    lines = _all_difference_lines(differences)
    shown = lines[:MAX_LINES] if sys.stdout.isatty() else lines
    for line in shown:
        write(line)
    if len(lines) > len(shown):
        write_message(
            f"… and {len(lines) - len(shown)} more lines; to see all, redirect the output to a file or use -o json."
        )


def _all_difference_lines(differences: Sequence[v1.Difference]) -> list[str]:
    return [line for difference in differences for line in _difference_lines(difference)]


def _difference_lines(difference: v1.Difference) -> list[str]:
    sign, colour = SIGNS[difference.action]
    what = f"scope {difference.scope}" if difference.vm is None else f"{difference.scope}/{difference.vm}"
    fields = [f"    {name}: {old or 'nothing'} → {new or 'nothing'}" for name, (old, new) in difference.fields.items()]
    refused = [coloured(f"    refused: {difference.refusal}", Colour.BAD)] if difference.refusal else []
    return [coloured(f"{sign} {what}", colour), *(fields if difference.action == "changed" else ()), *refused]


def _summary(result: v1.ImportResult) -> str:
    applied = [difference for difference in result.differences if not difference.refusal]
    counts = ", ".join(f"{_count_text([each for each in applied if each.action == what])} {what}" for what in SIGNS)
    refused = f", {result.refused_count} refused" if result.refused_count else ""
    would = "Dry run, nothing was changed: " if result.dry_run else ""
    return f"{would}{counts}{refused}, {_number_text(result.unchanged_count, 'VM')} unchanged."


def _count_text(differences: Sequence[v1.Difference]) -> str:
    """Count scopes and VMs separately."""
    vms = sum(difference.vm is not None for difference in differences)
    counts = ((len(differences) - vms, "scope"), (vms, "VM"))
    return " and ".join(_number_text(count, what) for count, what in counts if count) or "0"


def _number_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
