"""Command line: `jaxarch run | combine | report | list | data | reproduction | claims`.

Every command imports what it needs when it runs, so that `--help` imports no more than click.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxarch import ArgumentError, DeadStartWarning, NonFiniteWarning, ResultWarning
from jaxarch._internal import interruption
from jaxarch._internal.cpu_cores import keep_to_cores
from jaxarch._internal.errors import did_you_mean, printable, shortened, shown
from jaxarch.lab import launcher

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jaxarch.lab.html_report import Reported
    from jaxarch.lab.results import ResultFolder

LONGEST_MESSAGE = 1000
"""Maximum characters of an error. Typed values are shortened before; this limits other libraries' texts."""


class _Group(click.Group):
    """Commands by name; for an unknown one, the error suggests the nearest."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise ArgumentError(f"command: unknown {shown(args[0])}; {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def _of_a_result_folder(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that writes a result folder."""
    force = click.option("--force", is_flag=True, help="Replace the folder of --out if it exists.")
    root = click.option(
        "--root",
        default="results",
        show_default=True,
        metavar="DIR",
        help="Folder for numbered folders.",
    )
    out = click.option("--out", metavar="DIR", help="Write to this folder instead of a numbered one.")
    return out(root(force(command)))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jaxarch")
def app() -> None:
    """Learned network architectures, measured apart from their weights."""


@app.command()
@click.argument("experiment", required=False)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting; see `jaxarch list EXPERIMENT`.",
)
@click.option("--seeds", metavar="N", help="Number of runs; short for --set seeds=N.")
@click.option(
    "--dataset",
    metavar="NAME|NPZ",
    help="Data set: a name, or an npz file with x and y; short for --set dataset=...",
)
@_of_a_result_folder
@click.option("--dry-run", is_flag=True, help="Print what would be trained, its memory and time, and stop.")
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Train in other processes: a Dask scheduler's workers, or local:N for N processes here.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option(
    "--distributed",
    is_flag=True,
    help="Run as one of several processes: of SLURM, MPI, Kubernetes or a TPU pod.",
)
@click.option("--processes", type=int, metavar="N", help="With --distributed: start N processes here.")
@click.option("--coordinator", metavar="HOST:PORT", help="Address of process 0, if you start them by hand.")
@click.option(
    "--process", type=int, metavar="I", help="Index of this process, from 0, if you start them by hand."
)
def run(
    experiment: str | None,
    assignments: tuple[str, ...],
    seeds: str | None,
    dataset: str | None,
    out: str | None,
    root: str,
    force: bool,
    dry_run: bool,
    cluster: str | None,
    quiet: bool,
    distributed: bool,
    processes: int | None,
    coordinator: str | None,
    process: int | None,
) -> None:
    """Run an experiment and write its results to a folder.

    The numbered folder holds tables, figures and a manifest. Without a name, run every strategy of [D] on
    handwritten digits, {1,2,3} against {4,5,6}.
    """
    launcher.check(distributed, coordinator, processes, process)
    if distributed and dry_run:
        raise ArgumentError("--dry-run: cannot be combined with --distributed; leave one of them out")
    if distributed and cluster is not None:
        raise ArgumentError("--cluster: cannot be combined with --distributed; leave one of them out")
    mine = launcher.place() if distributed else None
    if distributed and mine is None:
        sys.exit(launcher.launch(coordinator, processes, process))
    if cluster is not None:
        # A worker may share this process's GPU, so this process must not reserve its memory in advance.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    _prepare_jax()
    if mine is not None:
        _take_place(mine)
    from jaxarch.lab import results
    from jaxarch.lab.harness import check_spreads, executor_of, plan_of, read_settings
    from jaxarch.lab.harness.own_classes import own_classes
    from jaxarch.lab.results.folders import no_folder
    from jaxarch.run._processes import Team, taking_part

    is_first = mine is None or Team.of("all hosts").index == 0
    with taking_part(mine is not None):
        chosen = _experiment(experiment)
        values = _assignments(assignments)
        values |= {k: v for k, v in (("seeds", seeds), ("dataset", dataset)) if v is not None}
        settings = read_settings(chosen.settings, values | own_classes(chosen.settings, values))
        executor = None
        if cluster is not None:
            executor = executor_of(cluster)
            check_spreads(chosen)
        lines = plan_of(chosen, settings)
    if dry_run:
        _dry_run(chosen, settings, lines, root, out, force)
        return
    made = results.new_folder(chosen.name, root, out, force) if is_first else no_folder()
    with taking_part(mine is not None), made as folder:
        interruption.tell(partial(_what_is_left, folder, getattr(settings, "resume", "")))
        reported, failure = _run_and_report(folder.path, chosen, settings, executor, is_first, quiet)
    if is_first:
        _tell(reported, failure, folder)


def _run_and_report(
    folder: Path, chosen: Any, settings: Any, executor: Any, is_first: bool, quiet: bool
) -> tuple[Reported | None, Exception | None]:
    """Run an experiment in a folder; in the first process return its report, or the error in its place."""
    from jaxarch import ProgressBar
    from jaxarch.lab.harness import run_in

    progress = ProgressBar() if is_first and not quiet else None
    with progress or contextlib.nullcontext(), warnings.catch_warnings():
        for category in (DeadStartWarning, NonFiniteWarning, ResultWarning):
            # The manifest keeps these warnings, and they are printed under the table.
            warnings.simplefilter("ignore", category)
        if progress is not None:
            progress.doing("reading the data and planning the run")
        run_in(folder, chosen, settings, progress, executor)
        if not is_first:
            return None, None
        if progress is not None:
            progress.doing("drawing the figures")
        # A figure or page that cannot be made must not cost the results: keep them, and show the error.
        return _reported(chosen, folder)


def _dry_run(chosen: Any, settings: Any, lines: list[str], root: str, out: str | None, force: bool) -> None:
    """Print the plan, memory and time of a run; raise if the run itself would be refused."""
    from jaxarch.lab import results
    from jaxarch.lab.harness import check_resumed, memory_of, time_of

    check_resumed(chosen, settings)
    results.check_place(root, out, force)
    console = _console()
    console.print(f"{chosen.name} (dry run: nothing is trained or written)")
    for line in lines + memory_of(chosen, settings) + time_of(chosen, settings):
        console.print(f"  {line}")


def _tell(reported: Reported | None, failure: Exception | None, folder: ResultFolder) -> None:
    """Print a folder's tables, write its page, then raise what went wrong; the results are kept.

    Raises:
      ArgumentError: figures or a page that could not be written; a folder whose name is not the one that was
        asked for.
    """
    from jaxarch.lab import html_report

    console = _console()
    if reported is not None:
        console.print(reported.report)
    console.print(f"\nwritten to {folder.path}", soft_wrap=True)
    if reported is not None:
        reported.results.folder = folder.path  # The folder has its final name by now.
        failure = _page_failure(reported)
    if folder.taken is not None:
        raise ArgumentError(
            f"out: another process made {shown(folder.taken, 200)} during this run, so it is left alone; the "
            f"results are in {shown(folder.path, 200)}"
        )
    if isinstance(failure, OSError):
        what, again = (
            ("figures", "jaxarch report DIR draws them")
            if reported is None
            else (html_report.NAME, "jaxarch report DIR --html writes it")
        )
        raise ArgumentError(
            f"{what}: could not be written ({failure.strerror}); the results are in "
            f"{shown(folder.path, 200)}, and {again}"
        )
    if failure is not None:
        raise failure


@app.command()
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True)
@_of_a_result_folder
def combine(folders: tuple[str, ...], out: str | None, root: str, force: bool) -> None:
    """Combine result folders that differ only in their keys.

    Use it to split the seeds of a long experiment over machines or days, each run with its own --set key=N.
    """
    from jaxarch.lab import results
    from jaxarch.lab.harness import Results, combined, write

    parts = [Results(Path(folder)) for folder in folders]
    for part in parts:
        here = part.folder.resolve()
        if out is not None and Path(out).resolve() in (here, *here.parents):
            raise ArgumentError(
                f"out: {shown(out)} is, or contains, one of the combined folders; choose another"
            )
    chosen = _experiment(parts[0].manifest["experiment"])
    with _of_altered_files("combined", *folders):
        found = combined(chosen, parts)
    with results.new_folder(chosen.name, root, out, force) as folder:
        interruption.tell(partial(_what_is_left, folder, ""))
        write(folder.path, chosen, found.outcome, found.settings, **found.facts)
        reported, failure = _reported(chosen, folder.path)
    _tell(reported, failure, folder)


@app.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--against", metavar="OTHER", help="Compare with another folder of this experiment: DIR minus OTHER."
)
@click.option("--html", is_flag=True, help="Also write a page for the browser into DIR.")
def report(folder: str, against: str | None, html: bool) -> None:
    """Print the tables of a result folder and redraw its figures.

    With --against, print the settings that differ and the differences of medians.
    """
    from jaxarch.lab import html_report

    if against is not None:
        html_report.check_comparable(folder, against)
    console, first = _console(), _report_of(folder)
    name, page = html_report.NAME, partial(html_report.report_page, first)
    told: list[RenderableType] = [first.report]
    # The other folder may be somebody else's, so its figures are drawn in a temporary folder.
    with tempfile.TemporaryDirectory(prefix="jaxarch-") as figures:
        if against is not None:
            compared = html_report.compare(first, _report_of(against, Path(figures)))
            name, page = compared.file_name, partial(html_report.comparison_page, compared)
            told = list(compared.made)
        path = Path(folder) / name
        if html:
            with _of_altered_files("reported on", folder):
                text = page()
    if html:
        try:
            html_report.write(text, path)
        except OSError as error:
            raise ArgumentError(f"html: cannot write {shown(path, 200)} ({error.strerror})") from None
    for part in told:
        console.print(part)
    if html:
        console.print(f"written to {path}", soft_wrap=True)


def _report_of(folder: str, figures: Path | None = None) -> Reported:
    """Return the report on a folder; draw its figures there, or in the folder `figures`.

    Raises:
      ArgumentError: not a result folder, altered files, or figures that cannot be written.
    """
    from jaxarch.lab import results

    experiment = _experiment(results.read_manifest(folder)["experiment"])
    with _of_altered_files("reported on", folder):
        reported, failure = _reported(experiment, Path(folder), figures)
        if isinstance(failure, OSError):
            raise ArgumentError(f"figures: could not be written ({failure.strerror})") from failure
        if reported is None:
            assert failure is not None
            raise failure
    return reported


@contextlib.contextmanager
def _of_altered_files(done: str, *folders: str) -> Iterator[None]:
    """Turn an error that altered files cause into one line: these folders cannot be `done`."""
    with warnings.catch_warnings():
        # NumPy and Matplotlib warn at length about altered numbers.
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:
            # An argument that a figure refuses came from the files; any other one was typed by the user.
            if isinstance(error, ArgumentError) and not _is_of_a_figure(error):
                raise
            names = ", ".join(shown(Path(folder)) for folder in folders)
            raise ArgumentError(
                f"folder: {names} cannot be {done}: some files are not as jaxarch run wrote them; were they "
                "altered?"
            ) from error


def _is_of_a_figure(error: Exception) -> bool:
    """Return whether an error was raised while a figure was drawn."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("jaxarch.plots.") for frame, _ in frames)


@app.command(name="list")
@click.argument("experiment", required=False)
def list_(experiment: str | None) -> None:
    """List experiments, searches, transforms and data sets.

    With an experiment's name, list its settings, their defaults and their meaning.
    """
    from jaxarch.lab.harness.catalogue import EXPERIMENTS

    console = _console()
    if experiment is not None:
        from rich import box
        from rich.table import Table

        from jaxarch.lab.harness import listed
        from jaxarch.lab.harness.setting_help import remarks, setting_help

        chosen = _experiment(experiment)
        table = Table(
            title=f"{chosen.name}: {EXPERIMENTS[chosen.name]}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
        )
        table.add_column("setting", no_wrap=True)
        table.add_column("default", max_width=24, overflow="fold")
        table.add_column("meaning")
        described = setting_help(chosen.settings)
        for field in dataclasses.fields(chosen.settings):
            default = field.default
            value = listed(default) if isinstance(default, tuple) else str(default)
            table.add_row(field.name, value or "(empty)", described.get(field.name, ""))
        console.print(table)
        for remark in remarks(chosen.settings):
            console.print(f"\n{remark}")
        return
    from jaxarch import search, transforms
    from jaxarch.lab.data.listing import YOUR_FILES
    from jaxarch.lab.data.sources import SOURCES
    from jaxarch.lab.disentangling.measuring import MEANING
    from jaxarch.run._methods import methods_of

    rows = {
        "experiments": EXPERIMENTS,
        "searches, in jaxarch.search": {name: made.summary for name, made in methods_of(search).items()},
        "transforms, in jaxarch": {name: made.summary for name, made in methods_of(transforms).items()},
        "strategies of disentangling.strategies": MEANING,
        "data sets": {name: source.description for name, source in SOURCES.items()} | YOUR_FILES,
    }
    for title, entries in rows.items():
        console.print(f"{title}:")
        for name, description in entries.items():
            console.print(f"  {name:<28}{description}", soft_wrap=True)


@app.command()
@click.argument("name", required=False, metavar="[NAME|NPZ]")
@click.option("--download", is_flag=True, help="Download the data set first.")
def data(name: str | None, download: bool) -> None:
    """List the data sets, where each one is, and how to get it.

    With a name, show one data set and its number of examples per class.
    """
    from jaxarch.lab.data import listing, sources

    console = _console()
    if download:
        if name is None:
            raise ArgumentError(
                "download: expected the name of a data set, as in jaxarch data mnist --download"
            )
        interruption.tell(lambda: "nothing was written")  # A partial download is removed.
        console.print(f"downloaded into {sources.download(name)}", soft_wrap=True)
    for line in listing.overview() if name is None else listing.details(name):
        console.print(line, soft_wrap=True)


@app.command()
@click.argument("line", required=False, metavar="[LINE]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    help="Tables for the terminal (the default), the whole page, or a list of objects.",
)
@click.option(
    "--measured", metavar="DIR", help="Print findings.csv of a result folder as TOML, to paste into a line."
)
def reproduction(line: str | None, form: str | None, measured: str | None) -> None:
    """Show the papers' results beside what was measured.

    With the id of a line, show that line in full.

    `jaxarch reproduction --format markdown` prints docs/reproduction.md.
    """
    from jaxarch.lab import reproduction as book

    if measured is not None:
        if line is not None or form is not None:
            raise ArgumentError("--measured: cannot be combined with LINE or --format; leave them out")
        click.echo(book.as_toml(book.read_findings(measured)), nl=False)
        return
    papers = book.read() if line is None else book.only(book.read(), line)
    if form == "json":
        click.echo(book.as_json(papers))
    elif form == "markdown":
        click.echo(book.document(papers) if line is None else book.sections(papers), nl=False)
    else:
        # Do not crop: a command stays in one piece, so that it can be copied.
        _console().print(book.overview(papers) if line is None else book.details(papers), crop=False)


@app.command()
@click.argument("claim", required=False, metavar="[CLAIM]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="Tables for the terminal, markdown for papers, or a list of objects.",
)
@click.option("--cases", type=int, help="Number of cases drawn for each inequality; 10,000 by default.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the drawn cases.")
@click.option(
    "--search", type=float, metavar="SECONDS", help="Search this long for the worst case of one claim."
)
@click.option(
    "--list",
    "only_list",
    is_flag=True,
    help="List how each claim is known and where its proof is; check none.",
)
def claims(
    claim: str | None, form: str, cases: int | None, seed: int, search: float | None, only_list: bool
) -> None:
    """Check the theorems of the papers and of jaxarch.

    Print one line for each; with the id of a claim, show that claim in full.

    Exit status 1 if any verdict is not the recorded one, or a search finds a case that breaks the claim.
    """
    _prepare_jax()
    import jax
    from rich.progress import track

    from jaxarch.lab import claims as book

    if only_list:
        if claim is not None or form == "json" or cases is not None or search is not None:
            raise ArgumentError("--list: cannot be combined with CLAIM, --cases, --search or --format json")
        if form == "markdown":
            click.echo(book.listed_as_markdown(book.CLAIMS.values()), nl=False)
        else:
            book.show(_console(), book.listed(book.CLAIMS.values()))
        return
    if search is not None:
        if claim is None or form != "text" or cases is not None:
            raise ArgumentError(
                "--search: expected the id of one claim, and no --format or --cases beside it"
            )
        _search_worst_case(claim, search, jax.random.key(seed))
        return
    ids = [chosen.id for chosen in book.chosen(claim)]
    outcomes = book.outcomes(ids, cases=book.CASES if cases is None else cases, key=jax.random.key(seed))
    progress = _console(stderr=True)
    hidden = not progress.is_terminal
    report = book.Report(
        track(outcomes, "claims", len(ids), console=progress, transient=True, disable=hidden)
    )
    if form == "json":
        click.echo(book.as_json(report))
    elif form == "markdown":
        click.echo(book.as_markdown(report), nl=False)
        if claim is None:
            click.echo("\n" + book.equations_as_markdown(book.read_equations()), nl=False)
    else:
        book.show(_console(), book.overview(report) if claim is None else book.details(report[0]))
    if not report.as_recorded:
        sys.exit(1)


def _search_worst_case(claim: str, seconds: float, key: Any) -> None:
    """Search for the worst case of each inequality of a claim, in equal shares of the time, and print it."""
    from jaxarch.lab import claims as book

    checks = book.drawn_checks(book.chosen(claim)[0])
    held = True
    for position, check in enumerate(checks):
        worst = book.worst_case(claim, seconds=seconds / len(checks), key=key, check=position)
        book.show(_console(), book.searched(check, worst))
        held &= worst.holds
    if not held:
        sys.exit(1)


def main() -> None:
    """Run the command line; bad input prints one line and exits with status 2, without a traceback."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except ArgumentError as error:
        _fail(str(error))
    except click.ClickException as error:
        _fail(error.format_message())


def _fail(message: str) -> None:
    click.echo(f"jaxarch: {shortened(printable(' '.join(message.split())), LONGEST_MESSAGE)}", err=True)
    sys.exit(2)


def _console(stderr: bool = False) -> Console:
    """Return a console that prints texts as they are: no markup, emoji or highlighting."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def _what_is_left(folder: ResultFolder, resume: str) -> str:
    """Say in a sentence what an interrupted run leaves behind."""
    if folder.finished:
        return f"the results are in {folder.path}"
    if resume and Path(resume).is_dir():
        return f"finished work is kept in {resume}; run the same command again to continue"
    return "nothing was written"


def _reported(
    experiment: Any, folder: Path, figures: Path | None = None
) -> tuple[Reported | None, Exception | None]:
    """Redraw a folder's figures and return the report on its files, or the error that prevented it."""
    from jaxarch.lab.html_report import Reported

    try:
        return Reported.on(folder, experiment, figures), None
    except Exception as error:
        return None, error


def _page_failure(reported: Reported) -> Exception | None:
    """Write the page of a folder into it; return the error, if there was one."""
    from jaxarch.lab import html_report

    try:
        html_report.write(html_report.report_page(reported), reported.results.folder / html_report.NAME)
    except Exception as error:
        return error
    return None


def _experiment(name: str | None) -> Any:
    from jaxarch.lab.harness import catalogue

    name = catalogue.DEFAULT if name is None else name
    if name not in catalogue.EXPERIMENTS:
        raise ArgumentError(f"experiment: unknown {shown(name)}; {did_you_mean(name, catalogue.EXPERIMENTS)}")
    return catalogue.experiment(name)


def _assignments(texts: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ArgumentError(f"--set: expected NAME=VALUE, got {shown(text)}")
        values[name.strip().replace("-", "_")] = value.strip()
    return values


def _prepare_jax() -> None:
    """Make every core a device and cache compiled programs; call it before JAX does anything."""
    from jaxarch import use_compilation_cache, use_cpu_cores

    use_cpu_cores()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxarch" / "xla"
        use_compilation_cache(cache)


def _take_place(place: launcher.Place) -> None:
    """Join the other processes at this place, with this process's share of the cores."""
    from jaxarch import use_cpu_cores
    from jaxarch.run._processes import join

    if place.cores is not None and place.process is not None:
        keep_to_cores(place.cores, place.process)
    use_cpu_cores(place.cores)
    launcher.take_place(place)
    join(place.coordinator, place.processes, place.process)
