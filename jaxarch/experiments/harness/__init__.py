"""What every experiment is made of, and what runs it: settings, outcome, results, tables."""

from jaxarch.experiments.harness import pace, tables
from jaxarch.experiments.harness.certificates import CERTIFICATES, certificate_table, certificates
from jaxarch.experiments.harness.combined import combined
from jaxarch.experiments.harness.executors import DaskWorkers, LocalProcesses, executor_of
from jaxarch.experiments.harness.experiment import Context, Experiment, Outcome
from jaxarch.experiments.harness.part import Part, Work
from jaxarch.experiments.harness.parts import Parts
from jaxarch.experiments.harness.results import Results, costs
from jaxarch.experiments.harness.run import (
    check_resumed,
    check_spreads,
    memory_of,
    plan_of,
    report_on,
    run_in,
    time_of,
)
from jaxarch.experiments.harness.settings import (
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
from jaxarch.experiments.harness.spread import Spread
from jaxarch.experiments.harness.written import write
from jaxarch.results import finding

__all__ = [
    "CERTIFICATES",
    "FLOAT_BYTES",
    "RESULT_NUMBERS",
    "Context",
    "DaskWorkers",
    "Experiment",
    "ExperimentSettings",
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
