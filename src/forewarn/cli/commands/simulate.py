"""`forewarn simulate`: a day of a large fleet in virtual time, and what its busiest machines carry."""

import secrets

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FROM_0, FROM_1, option, output_option
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.cli.views.progress import ProgressBar
from forewarn.cli.views.tables import write_details
from forewarn.core.errors import Invalid
from forewarn.testing.simulation.report import SimulationReport
from forewarn.testing.simulation.report import simulate as run_simulation

KIB = 1024


@click.command()
@click.option("--vms", type=FROM_1, metavar="N", default=1_000_000, show_default=True, help="How many VMs there are.")
@click.option("--cells", type=FROM_1, metavar="N", default=10, show_default=True, help="Over how many cells.")
@click.option("--hours", type=FROM_1, metavar="N", default=24, show_default=True, help="How much time passes.")
@option("--seed", type=FROM_0, envvar="FOREWARN_SEED", metavar="N", help="Repeat the simulation of this seed.")
@output_option
def simulate(vms: int, cells: int, hours: int, seed: int | None, output: Output) -> None:
    """Simulate polls, events, campaigns and host failures of a large fleet, and show the load.

    The rules and the documents are those of the service; only time is simulated. No service is needed or changed.

    Example: forewarn simulate --vms 1000000 --cells 10 --hours 24
    """
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    with ProgressBar("Simulating", writes_end=False) as bar:
        try:
            report = run_simulation(
                vms=vms,
                cells=cells,
                hours=hours,
                seed=chosen,
                on_progress=lambda done, total: bar.show(int(done), int(total)),
            )
        except Invalid as error:
            raise CliError(ExitCode.USAGE, f"--vms, --cells or --hours: {error}") from error
    if output is Output.JSON:
        write_json(report)
    else:
        _show(report)


def _show(report: SimulationReport) -> None:
    host, control, counts = report.busiest_host, report.busiest_control, report.counts
    write_details(
        (
            (
                "VMs",
                f"{report.vms:,} in {report.scopes:,} scopes, on {report.hosts:,} hosts, in {report.cells:,} cells",
            ),
            ("time", f"{report.hours:g} hours"),
            ("polls", f"{report.polls:,}, with {counts['documents']:,} different documents"),
            ("events", f"{counts['events']:,}, {counts['approvals']:,} approvals, {counts['impacts']:,} impacts"),
            ("hosts", f"{counts['host_maintenances']:,} maintained, {counts['host_failures']:,} failed"),
            ("campaigns", f"{counts['campaigns']:,} with {counts['waves']:,} waves"),
            ("saves", f"{report.saves:,}, {report.journal_lines:,} journal lines"),
        )
    )
    write("")
    write("The busiest host (the most of each that any host has):")
    write_details(
        (
            ("VMs", f"{host.vms:,}"),
            ("polls", f"{host.polls_per_second:,.1f} per second"),
            ("documents", f"{host.document_bytes_per_second / KIB:,.1f} KiB per second"),
            ("updates", f"{host.updates_per_second:,} in a second, {host.updates:,} in all"),
            ("commands", f"{host.commands_per_second:,} in a second, {host.commands:,} in all"),
        )
    )
    write("")
    write(f"The control node of the busiest cell ({control.cell}), if it is the only one left:")
    write_details(
        (
            ("saves", f"{control.saves_per_second:,} in a second, {control.saves_per_minute:,} in a minute"),
            ("in all", f"{control.saves:,} saves, {control.journal_lines:,} journal lines"),
            (
                "written",
                f"{control.saved_bytes / KIB**2:,.1f} MiB, the largest record {control.largest_record:,} bytes",
            ),
            ("commands", f"{control.commands_per_second:,} in a second"),
            ("heartbeats", f"{control.heartbeats_per_second:,.0f} per second"),
            ("updates", f"{control.updates_per_second:,} in a second, sent by NATS to hosts"),
        )
    )
    write_message(
        f"Computed in {report.measured.whole:,.0f}s: {report.measured.rules:,.1f}s in rules and encoding, "
        f"{report.measured.documents:,.1f}s in polls. Repeat it with --seed {report.seed}."
    )
