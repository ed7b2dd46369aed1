"""Data sets, pictures, tasks and transforms."""

from jaxarch.data.augmentation import crop_and_flip
from jaxarch.data.balanced_rows import balanced_rows
from jaxarch.data.dataset import Dataset, from_arrays
from jaxarch.data.images import Images, images_from_arrays, take_images
from jaxarch.data.sources import SOURCES, Source, download, load, load_images
from jaxarch.data.tasks import Task, take_task_rows, two_groups
from jaxarch.data.tfds_files import read_tfds
from jaxarch.data.transforms import crop_and_pool, principal_components, unit_norm
from jaxarch.streams import prefetch, repeat

__all__ = [
    "SOURCES",
    "Dataset",
    "Images",
    "Source",
    "Task",
    "balanced_rows",
    "crop_and_flip",
    "crop_and_pool",
    "download",
    "from_arrays",
    "images_from_arrays",
    "load",
    "load_images",
    "prefetch",
    "principal_components",
    "read_tfds",
    "repeat",
    "take_images",
    "take_task_rows",
    "two_groups",
    "unit_norm",
]
