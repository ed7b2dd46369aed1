"""Data sets, tasks and transforms."""

from jaxarch.data.dataset import Dataset, from_arrays
from jaxarch.data.sources import SOURCES, Source, download, load, load_pictures
from jaxarch.data.tasks import Task, take_task_rows, two_groups
from jaxarch.data.tfds_files import read_tfds
from jaxarch.data.transforms import crop_and_pool, principal_components, unit_norm

__all__ = [
    "SOURCES",
    "Dataset",
    "Source",
    "Task",
    "crop_and_pool",
    "download",
    "from_arrays",
    "load",
    "load_pictures",
    "principal_components",
    "read_tfds",
    "take_task_rows",
    "two_groups",
    "unit_norm",
]
