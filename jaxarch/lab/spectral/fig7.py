"""[S] figures 7 and 11 to 15: the share of the hidden layer in use as the task turns non-linear."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import Network, Problem, PyTree, evaluate, plots, spectral_network, supervised
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_known, check_positive, check_strength
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.spectral import targets, training, wording
from jaxarch.search import spectral
from jaxarch.spectral import bundles, gamma_norm

NETWORKS = "networks.npz"
VARIANTS = {"trained": "L_1 trained", "zero": "L_1 = 0"}
MOST_DRAWN = 6
COLUMNS = {
    "alpha": "the target turns from linear (0) to quadratic (1)",
    "beta": "how abruptly it turns, at alpha = 1/2",
    "norm of Gamma": "size of all paths through the hidden layer; 0 if the layer is not in use",
    "L_1, L_2": "norm of the eigenvalues of the inputs, and of the hidden layer",
    "recruited": f"hidden neurons; {wording.LEFT}",
    "MSE, no hidden layer": "validation MSE without the hidden layer",
}


@dataclasses.dataclass(frozen=True)
class Settings(training.RegressionSettings):
    """Settings of `jaxarch run spectral.fig7`, changed with `--set NAME=VALUE`.

    [S] has `--set alphas=21 --seeds 100`. Recruitment compares the loss with the loss of all neurons. Where a
    linear target is fitted to the last digits, neurons that preserve these digits count too.

    Attributes:
      alphas: number of values of alpha, evenly spaced from 0 to 1.
      betas: how abruptly the target turns from linear to quadratic at alpha = 1/2.
      input_eigenvalues: `trained` (and penalised), as in the code of [S], or `zero`, as in its section 4.
      hidden: neurons of the hidden layer.
      epochs: passes over the training points.
      penalty: the norm of the eigenvalues that is penalised.
      strength: strength of the penalty.
      cutoff: connections with weights above this number are drawn.
    """

    alphas: int = 6
    betas: tuple[float, ...] = (5.0, 1000.0)
    input_eigenvalues: tuple[str, ...] = ("trained", "zero")
    hidden: int = 300
    epochs: int = 300
    penalty: Literal["l1", "l2", "squared l2"] = "l2"
    strength: float = 1e-4
    cutoff: float = 0.01

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("alphas", self.alphas, least=2)
        self.check_each(check_count, "hidden", "epochs")
        self.check_numbers(check_positive, "betas")
        check_known("input_eigenvalues", self.input_eigenvalues, VARIANTS)
        check_strength("strength", self.strength)

    def cells(self) -> pd.DataFrame:
        """Return every pair of beta and alpha, one row each."""
        alphas = np.linspace(0, 1, self.alphas).round(6)
        return pd.DataFrame([(b, a) for b in self.betas for a in alphas], columns=["beta", "alpha"])


def prepare(settings: Settings, input_eigenvalues: str) -> Problem:
    """Build the problem of all runs: one data set a cell, on the same inputs, and `seeds` starts for each."""
    x, rows = settings.inputs(2), settings.rows()
    cells = settings.cells()
    per_run = targets.shares(cells["alpha"].to_numpy(), cells["beta"].to_numpy())
    return supervised(
        spectral_network(
            (2, settings.hidden, 1), bias=True, train_input_eigenvalues=input_eigenvalues == "trained"
        ),
        (x, targets.parts(x)),
        loss=optax.squared_error,
        optimizer=optax.adam(settings.learning_rate),
        steps=settings.steps(settings.epochs),
        batch_size=settings.batch_size,
        train=rows["train"],
        validation=rows["validation"],
        per_run={"shares": np.repeat(per_run, settings.seeds, axis=0)},
        gather=targets.take_target_rows,
    )


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    for name in settings.input_eigenvalues:
        prepare(settings, name)
    alphas = ", ".join(f"{alpha:g}" for alpha in settings.cells()["alpha"].unique())
    runs = len(settings.cells()) * settings.seeds
    return [
        f"data: {settings.examples} points of [-1, 1]^2 to train on, {settings.held_out} to validate on, "
        f"{settings.held_out} to test on",
        f"targets: beta {', '.join(f'{beta:g}' for beta in settings.betas)}; alpha {alphas}",
        f"networks: 2 inputs and a bias, {settings.hidden}, 1; "
        + "; ".join(VARIANTS[name] for name in settings.input_eigenvalues),
        f"trainings: {len(settings.input_eigenvalues)}, one program each: {settings.steps(settings.epochs)} "
        f"steps of batch {settings.batch_size} x {runs} runs",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train a network on every target from every start."""
    cells, measured = settings.cells(), []
    networks: dict[str, Any] = {}
    spent: dict[str, Any] = {}
    runs = cells.loc[cells.index.repeat(settings.seeds)].reset_index(drop=True)
    runs["seed"] = np.tile(np.arange(settings.seeds), len(cells))
    labels = [f"beta {row.beta:g}, alpha {row.alpha:g}, seed {row.seed}" for row in runs.itertuples()]
    keys = jnp.tile(settings.seed_keys(), len(cells))
    for name in settings.input_eigenvalues:
        problem = prepare(settings, name)
        penalised = "eigenvalues/L[12]" if name == "trained" else "eigenvalues/L2"
        search = spectral(settings.strength, penalty=settings.penalty, where=penalised)
        trained = training.train(context, VARIANTS[name], search, keys, problem, labels, settings.tolerance)
        measured.append(_measure(settings, problem, trained, runs).assign(input_eigenvalues=name))
        first = jax.tree.map(lambda leaf: leaf[:: settings.seeds], trained.network.params)
        networks[name] = _drawn(problem, first)
        spent[VARIANTS[name]] = costs({"spectral": (trained.network, trained.report)})
    table = pd.concat(measured, ignore_index=True)
    return Outcome(table, _findings(table), costs=spent, arrays={NETWORKS: networks})


def _measure(
    settings: Settings, problem: Problem, trained: training.Trained, runs: pd.DataFrame
) -> pd.DataFrame:
    """Measure every run, one row each."""
    rows = settings.rows()["test"]
    functions = problem.data[1][rows]
    truth = jnp.asarray(problem.per_run["shares"]) @ functions.T
    network, pruned = trained.network, trained.pruned
    errors = {
        name: np.asarray(jnp.mean(jnp.square(_outputs(problem, which, rows) - truth), axis=1))
        for name, which in (("mse", network), ("recruited_mse", pruned))
    }
    norms = {name: jnp.linalg.norm(values, axis=-1) for name, values in network.params["eigenvalues"].items()}
    inputs = norms.get("L1", jnp.zeros(len(runs)))
    measured = runs.assign(
        **errors,
        gamma_norm=np.asarray(jax.vmap(gamma_norm)(network.params)),
        mean_gamma_square=_of_the_mean(network, settings.seeds),
        input_eigenvalue_norm=np.asarray(inputs),
        hidden_eigenvalue_norm=np.asarray(norms["L2"]),
        eigenvalue_norm=np.asarray(jnp.hypot(inputs, norms["L2"])),
        recruited=trained.neurons_left("L2").astype(float),
        no_hidden_mse=np.asarray(pruned.info["losses"])[:, -1],
        seconds=trained.report.seconds,
        failed_at=np.asarray(network.info.failed_at),
    )
    measured.loc[measured["failed_at"] >= 0, [*errors, "gamma_norm", "recruited", "no_hidden_mse"]] = np.nan
    return measured


def _of_the_mean(network: Network, seeds: int) -> np.ndarray:
    """Compute `|mean Gamma|^2` over each cell's networks that have not failed, repeated for each network."""
    weights = jax.vmap(bundles)(network.params)
    gamma = np.einsum("rij,rjk->rijk", np.asarray(weights[3, 2], float), np.asarray(weights[2, 1], float))
    gamma[np.asarray(network.info.failed_at) >= 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # A cell may have no networks left.
        mean = np.nanmean(gamma.reshape(-1, seeds, *gamma.shape[1:]), axis=1)
    return np.repeat(np.square(mean).sum(axis=(1, 2, 3)), seeds)


def _outputs(problem: Problem, network: Any, rows: np.ndarray) -> np.ndarray:
    return evaluate(spectral(), network, problem, rows)[..., 0]


def _drawn(problem: Problem, params: PyTree) -> dict[str, Array]:
    """Compute the outputs on the plane and the weights of each cell's first network, for drawing."""

    def one(params: PyTree) -> dict[str, Array]:
        assert problem.predict is not None
        weights = {f"W{i}{j}": block for (i, j), block in bundles(params).items()}
        return {"outputs": problem.predict(params, {}, (targets.plane(), None))[..., 0], **weights}

    return jax.jit(jax.vmap(one))(params)


def conclusion(results: Results) -> Iterable[str]:
    """Compare a linear target with a quadratic one, and the abruptness of the transition over beta."""
    table, hidden, beta = results.table, results.settings["hidden"], results.settings["betas"][0]
    variants = [(VARIANTS[str(name)], runs) for name, runs in table.groupby("input_eigenvalues", sort=False)]
    for variant, of in variants:
        runs = {alpha: of[(of["beta"] == beta) & (of["alpha"] == alpha)] for alpha in (0, 1)}
        norms = [tables.inline(part["gamma_norm"], ".3f") for part in runs.values()]
        left = " and ".join(tables.median(part["recruited"], ".0f") for part in runs.values())
        paths = " (all paths through the hidden layer)" * (variant == variants[0][0])
        linear = [f"{targets.linear_share(alpha, beta):.0%}" for alpha in runs]
        yield (
            f"{variant}, beta = {beta:g}: the norm of Gamma{paths} is {norms[0]} for a target that is "
            f"{linear[0]} linear and {norms[1]} for one that is {linear[1]} linear, with {left} of {hidden} "
            f"hidden neurons ({tables.counted(part['gamma_norm'] for part in runs.values())})."
        )
    steps = [f"{said} with {variant}" for variant, of in variants if (said := _largest_steps(of))]
    if steps:
        yield f"From one alpha to the next, the median norm changes by at most {'; '.join(steps)}."


def _largest_steps(table: pd.DataFrame) -> str:
    """Name the largest step of the median norm of Gamma between alphas, at the least and largest beta."""
    said = []
    for beta in dict.fromkeys((table["beta"].min(), table["beta"].max())):
        medians = table[table["beta"] == beta].groupby("alpha")["gamma_norm"].median()
        steps = medians.diff().abs().dropna()
        if len(medians) > 2 and len(steps):
            said.append(f"{steps.max():.3f} (beta = {beta:g}, to alpha = {steps.idxmax():g})")
    return " and ".join(said)


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    settings, table = results.settings, results.table
    names = list(dict.fromkeys(table["input_eigenvalues"]))
    quantities = {
        "norm of $\\Gamma$": "gamma_norm",
        "norm of $L_1$, $L_2$": "eigenvalue_norm",
        "neurons recruited": "recruited",
        "test MSE": "mse",
    }
    grid = {
        label: {VARIANTS[name]: _lines(table[table["input_eigenvalues"] == name], column) for name in names}
        for label, column in quantities.items()
    }
    results.draw(plots.sweep(grid, "$\\alpha$", logarithmic=["test MSE"]), "transition")
    for name in names:
        _draw(results, name)
    runs = table.groupby(table["input_eigenvalues"].map(VARIANTS), sort=False)
    first, *others = (_table(table, name, beta) for name in names for beta in settings["betas"])
    return [
        first,
        *wording.explain((VARIANTS[name] for name in names), COLUMNS),
        *others,
        *results.remarks(runs),
    ]


def _lines(table: pd.DataFrame, column: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Map beta to the alphas and the measured values, shape (seeds, alphas), without failed seeds."""
    lines = {}
    for beta, part in table.groupby("beta", sort=False):
        runs = part.pivot(index="seed", columns="alpha", values=column).dropna()
        lines[f"$\\beta$ = {beta:g}"] = (runs.columns.to_numpy(np.float64), runs.to_numpy())
    return lines


def _draw(results: Results, name: str) -> None:
    """Draw targets, fits and architectures of the first seed, at some of the alphas."""
    table, networks, cutoff = results.table, results.arrays(NETWORKS), results.settings["cutoff"]
    cells = table[(table["input_eigenvalues"] == name) & (table["seed"] == 0)].reset_index(drop=True)
    alphas = cells["alpha"].unique()
    shown = alphas[np.linspace(0, len(alphas) - 1, min(len(alphas), MOST_DRAWN)).round().astype(int)]
    of_network = {n.removeprefix(f"{name}/"): v for n, v in networks.items() if n.startswith(f"{name}/")}
    drawings: dict[str, Any] = {}
    for beta in cells["beta"].unique():
        label = f"$\\beta$ = {beta:g}"
        chosen = cells[(cells["beta"] == beta) & cells["alpha"].isin(shown)]
        columns = {index: f"$\\alpha$ = {alpha:g}" for index, alpha in chosen["alpha"].items()}
        mixed = targets.shares(chosen["alpha"].to_numpy(), chosen["beta"].to_numpy())
        truth = np.asarray(targets.parts(targets.plane()) @ mixed.T)
        fits = {column: of_network["outputs"][i] for i, column in columns.items()}
        wanted = dict(zip(columns.values(), np.moveaxis(truth, -1, 0), strict=True))
        errors = {column: fits[column] - wanted[column] for column in fits}
        rows = {"target f": wanted, "network": fits, "error": errors}
        title = f"{VARIANTS[name]}, {label}, first seed"
        results.draw(plots.fields(rows, title=title), f"fits-{name}-beta-{beta:g}")
        drawings[label] = {
            column: {(i, j): of_network[f"W{i}{j}"][index] for i, j in ((2, 1), (3, 2), (3, 1))}
            for index, column in columns.items()
        }
    title = f"{VARIANTS[name]}, first seed: connections above {cutoff:g}"
    results.draw(plots.architectures(drawings, cutoff, title), f"architectures-{name}")


def _table(table: pd.DataFrame, name: str, beta: float) -> RenderableType:
    part = table[(table["input_eigenvalues"] == name) & (table["beta"] == beta)]
    rows = [
        (
            f"{alpha:g}",
            tables.spread(runs["gamma_norm"], ".3f"),
            tables.median(runs["input_eigenvalue_norm"], ".3f"),
            tables.median(runs["hidden_eigenvalue_norm"], ".3f"),
            tables.spread(runs["recruited"], ".0f"),
            tables.median(runs["mse"], ".1e"),
            tables.median(runs["no_hidden_mse"], ".1e"),
        )
        for alpha, runs in part.groupby("alpha")
    ]
    columns = ("alpha", "norm of Gamma", "L_1", "L_2", "recruited", "test MSE", "MSE, no hidden layer")
    return tables.table(f"{VARIANTS[name]}, beta = {beta:g}: median [quartiles]", columns, rows)


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    quantities = {
        "gamma_norm": "norm of Gamma",
        "eigenvalue_norm": "norm of L_1 and L_2 together",
        "recruited": "hidden neurons recruited",
        "mse": "test MSE",
        "no_hidden_mse": "validation MSE without the hidden layer",
    }
    found = []
    for (name, beta), part in table.groupby(["input_eigenvalues", "beta"], sort=False):
        where = f"{VARIANTS[str(name)]}, beta {beta:g}"
        runs = part[["alpha", "gamma_norm"]]
        medians = runs.groupby("alpha", as_index=False).median()
        for of, ranked in (("all runs", runs), ("medians", medians)):
            what = f"Spearman correlation of alpha and the norm of Gamma, {of}: {where}"
            found.append(finding(what, ranked.corr("spearman").iloc[0, 1]))
        found += [
            finding(f"{words}: {where}, alpha {alpha:g}", runs[column])
            for column, words in quantities.items()
            for alpha, runs in part.groupby("alpha")
        ]
        squares = part.groupby("alpha")["mean_gamma_square"].first()
        found += [
            finding(f"square norm of the mean of Gamma over the largest: {where}, alpha {alpha:g}", share)
            for alpha, share in (squares / squares.max()).items()
        ]
        found.append(finding(f"largest test MSE of all runs: {where}", part["mse"].max()))
    found += [
        finding(
            f"share of the target's variance that is linear: beta {beta:g}, alpha {alpha:g}",
            targets.linear_share(alpha, beta),
        )
        for beta, alpha in table[["beta", "alpha"]].drop_duplicates().itertuples(index=False)
    ]
    return found


def charts(results: Results) -> list[Chart]:
    """Chart every run's norm of Gamma, recruited neurons and error against alpha."""
    table = results.table
    cells = zip(table["input_eigenvalues"].map(VARIANTS), table["beta"], strict=True)
    table = table.assign(target=[f"{variant}, beta = {beta:g}" for variant, beta in cells])
    quantities = {"gamma_norm": "norm of Gamma", "recruited": "neurons recruited", "mse": "test MSE"}
    return [
        Chart(
            f"{words} against alpha",
            table,
            "alpha",
            column,
            "target",
            at="alpha",
            labels=quantities | {"target": "network and target"},
            logarithmic=(False, column == "mse"),
        )
        for column, words in quantities.items()
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
