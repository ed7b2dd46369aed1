"""Certificates (`jaxarch.certify`) of every run of every strategy, and their table for a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import Network, Problem
from jaxarch.certificates import Certificate, Errors, certify
from jaxarch.lab.harness import tables
from jaxarch.masks import density

CERTIFICATES = "certificates.csv"
"""Table of a result folder with one row for each mask that was found."""
BOUNDS = {"held_out": "held-out rows", "training": "training rows"}
SEPARATOR = "; "
"""Separator of the assumptions in a cell."""


def certificates(
    done: Mapping[str, tuple[Network, Any]],
    problem: Problem,
    runs: Mapping[str, np.ndarray],
    certified: Callable[[Network, Problem], Certificate] = certify,
) -> pd.DataFrame:
    """Certify every run that did not fail and whose mask lacks a connection.

    Args:
      done: networks of many runs by strategy, as `compare` returns them.
      problem: the problem that they were trained on; nothing was chosen by its `validation` rows.
      runs: columns that identify runs, such as seeds, each of shape (runs,).
      certified: makes the certificate of one run from its network and its problem.
    """
    rows = []
    for name, (network, _) in done.items():
        if network.mask is None:
            continue
        chosen = np.asarray(jax.vmap(density)(network.mask)) < 1
        if network.info.failed_at is not None:
            chosen &= np.asarray(network.info.failed_at) < 0
        for run in np.flatnonzero(chosen).tolist():
            certificate = certified(network.of_run(run), problem.of_run(run))
            labels = {column: values[run] for column, values in runs.items()}
            rows.append({"strategy": name} | labels | _row(certificate))
    return pd.DataFrame(rows, columns=None if rows else ["strategy", *runs])


def _row(certificate: Certificate) -> dict[str, Any]:
    flips = certificate.flips
    return {
        "connections": certificate.connections,
        "kept": certificate.kept,
        "loss": certificate.loss,
        "gap": certificate.gap,
        "flips_tried": flips.tried,
        "flips_better": flips.better,
        "best_flip": flips.change,
        "description": certificate.length,
        **_errors("training", certificate.training, certificate.why_not),
        **_errors("held_out", certificate.held_out, certificate.why_not_held_out),
        "delta": certificate.delta,
        "assumed": SEPARATOR.join(certificate.assumptions),
    }


def _errors(which: str, errors: Errors | None, why_not: str) -> dict[str, Any]:
    rate, bound = (np.nan, np.nan) if errors is None else (errors.rate, errors.bound)
    return {f"{which}_errors": rate, f"{which}_bound": bound, f"{which}_why_not": why_not}


def certificate_table(table: pd.DataFrame, title: str) -> list[RenderableType]:
    """Return the table of each strategy's certificates, with medians and quartiles over runs, and remarks.

    The remarks say why bounds are missing, and what the bounds assume.

    Args:
      table: the result of `certificates`, or some of its rows.
      title: a name for the runs.
    """
    if table.empty:
        return []
    groups = [(str(name), runs) for name, runs in table.groupby("strategy", sort=False)]
    rows = [
        (
            name,
            tables.spread(runs["gap"], ".1f"),
            tables.spread(runs["flips_better"], ".0f"),
            *(tables.spread(_upwards(runs[f"{which}_bound"]), ".2f") for which in BOUNDS),
        )
        for name, runs in groups
    ]
    tried = f"of {table['flips_tried'].max()} flips better"
    columns = ("strategy", "gap", tried, *(f"bound on new errors, {words}" for words in BOUNDS.values()))
    title = f"certificates: {title}, median [quartiles]"
    return [tables.table(title, columns, rows), *_missing(groups), *_assumed(table)]


def _upwards(bounds: pd.Series) -> pd.Series:
    """Round up to two decimals, so that the printed number is still an upper bound."""
    return np.ceil(100 * bounds) / 100


def _missing(groups: list[tuple[str, pd.DataFrame]]) -> Iterator[str]:
    """Yield lines on why strategies have no bound, without the advice on what to do about it."""
    for which, words in BOUNDS.items():
        reasons: dict[str, list[str]] = {}
        for name, runs in groups:
            for why_not in filter(None, runs[f"{which}_why_not"].dropna().unique()):
                reason = why_not.removeprefix("none: ").partition(";")[0]
                reasons.setdefault(reason, []).append(name)
        yield from (f"no bound from {words} for {', '.join(names)}: {why}" for why, names in reasons.items())


def _assumed(table: pd.DataFrame) -> Iterator[str]:
    """Yield lines on the probability and the assumptions of the bounds."""
    assumed = dict.fromkeys(filter(None, SEPARATOR.join(table["assumed"].dropna()).split(SEPARATOR)))
    if assumed:
        yield f"each bound is wrong with probability at most {table['delta'].max():g}, if it is true:"
        yield from (f"- {part}" for part in assumed)
