"""What every experiment is made of, and what runs it: settings, outcome, results, tables."""

from jaxarch.experiments.harness import tables
from jaxarch.experiments.harness.certificates import CERTIFICATES, certificate_table, certificates
from jaxarch.experiments.harness.experiment import Context, Experiment, Outcome
from jaxarch.experiments.harness.parts import Parts
from jaxarch.experiments.harness.results import Results, costs
from jaxarch.experiments.harness.run import check_resumed, plan_of, report_on, run_in, time_of
from jaxarch.experiments.harness.settings import (
    FLOAT_BYTES,
    RESULT_NUMBERS,
    ExperimentSettings,
    TrainingSettings,
    check_room,
    read_settings,
    seed_keys,
)
from jaxarch.results import finding

__all__ = [
    "CERTIFICATES",
    "FLOAT_BYTES",
    "RESULT_NUMBERS",
    "Context",
    "Experiment",
    "ExperimentSettings",
    "Outcome",
    "Parts",
    "Results",
    "TrainingSettings",
    "certificate_table",
    "certificates",
    "check_resumed",
    "check_room",
    "costs",
    "finding",
    "plan_of",
    "read_settings",
    "report_on",
    "run_in",
    "seed_keys",
    "tables",
    "time_of",
]
