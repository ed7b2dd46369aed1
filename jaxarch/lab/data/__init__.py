"""Data sets, pictures, texts, tasks and transforms."""

from jaxarch.lab.data.balanced_rows import balanced_rows
from jaxarch.lab.data.citeseer import Graph, citation_graph
from jaxarch.lab.data.dataset import Dataset, from_arrays
from jaxarch.lab.data.images import Images, images_from_arrays
from jaxarch.lab.data.sources import (
    SOURCES,
    Source,
    download,
    is_text,
    load,
    load_examples,
    load_images,
    load_text,
)
from jaxarch.lab.data.tasks import Task, take_task_rows, two_groups
from jaxarch.lab.data.text import Text, text_from_bytes
from jaxarch.lab.data.tfds_files import read_tfds
from jaxarch.lab.data.transforms import crop_and_pool, principal_components, unit_norm

__all__ = [
    "SOURCES",
    "Dataset",
    "Graph",
    "Images",
    "Source",
    "Task",
    "Text",
    "balanced_rows",
    "citation_graph",
    "crop_and_pool",
    "download",
    "from_arrays",
    "images_from_arrays",
    "is_text",
    "load",
    "load_examples",
    "load_images",
    "load_text",
    "principal_components",
    "read_tfds",
    "take_task_rows",
    "text_from_bytes",
    "two_groups",
    "unit_norm",
]
