"""Data sets, tasks and transforms."""

from jaxarch.data.sources import SOURCES, Dataset, from_arrays, load
from jaxarch.data.tasks import Task, take_task_rows, two_groups
from jaxarch.data.transforms import unit_norm

__all__ = ["SOURCES", "Dataset", "Task", "from_arrays", "load", "take_task_rows", "two_groups", "unit_norm"]
