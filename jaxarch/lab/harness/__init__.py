"""Harness of experiments: settings, outcomes, results, tables, and the functions that run them."""

from jaxarch.lab.harness import pace, tables
from jaxarch.lab.harness.certificates import CERTIFICATES, certificate_table, certificates
from jaxarch.lab.harness.combined import combined
from jaxarch.lab.harness.executors import DaskWorkers, LocalProcesses, executor_of
from jaxarch.lab.harness.experiment import Context, Experiment, Outcome
from jaxarch.lab.harness.part import Part, Work
from jaxarch.lab.harness.parts import Parts
from jaxarch.lab.harness.report import FolderReport, report_on
from jaxarch.lab.harness.results import Results, costs
from jaxarch.lab.harness.run import (
    check_resumed,
    check_spreads,
    memory_of,
    plan_of,
    run_in,
    time_of,
)
from jaxarch.lab.harness.settings import (
    FLOAT_BYTES,
    RESULT_NUMBERS,
    ExperimentSettings,
    PartSettings,
    TrainingSettings,
    check_room,
    listed,
    read_settings,
    seed_keys,
)
from jaxarch.lab.harness.spread import Spread
from jaxarch.lab.harness.written import write
from jaxarch.lab.results import finding

__all__ = [
    "CERTIFICATES",
    "FLOAT_BYTES",
    "RESULT_NUMBERS",
    "Context",
    "DaskWorkers",
    "Experiment",
    "ExperimentSettings",
    "FolderReport",
    "LocalProcesses",
    "Outcome",
    "Part",
    "PartSettings",
    "Parts",
    "Results",
    "Spread",
    "TrainingSettings",
    "Work",
    "certificate_table",
    "certificates",
    "check_resumed",
    "check_room",
    "check_spreads",
    "combined",
    "costs",
    "executor_of",
    "finding",
    "listed",
    "memory_of",
    "pace",
    "plan_of",
    "read_settings",
    "report_on",
    "run_in",
    "seed_keys",
    "tables",
    "time_of",
    "write",
]
