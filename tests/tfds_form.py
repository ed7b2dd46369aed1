"""A tiny data set in the form of tensorflow-datasets, written by hand in either of its formats."""

import io
import json
import struct
from itertools import islice

import numpy as np

from jaxarch.lab.data.tfrecords import _masked, crc32c

SHAPE = (4, 5, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (7, *SHAPE)).astype(np.uint8)
LABELS = np.array([0, 2, 1, 1, 0, 2, 1])


def write(folder, form, name="tiny", splits=(("train", (4, 3)),), features=("image", "label")):
    """Write `name` into TFDS's data directory `folder`; returns where its files are.

    Each split has files of so many pictures; together they have the first of `IMAGES`, in order.
    """
    place = folder / name / "1.0.0"
    place.mkdir(parents=True)
    (place / "features.json").write_text(json.dumps(_features(features)))
    described = [
        {
            "name": split,
            "numBytes": "1",
            "shardLengths": [str(length) for length in shards],
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        }
        for split, shards in splits
    ]
    info = {"name": name, "version": "1.0.0", "fileFormat": form, "splits": described}
    (place / "dataset_info.json").write_text(json.dumps(info))
    records = iter([_record(image, label) for image, label in zip(IMAGES, LABELS, strict=True)])
    for split, shards in splits:
        for index, length in enumerate(shards):
            path = place / f"{name}-{split}.{form}-{index:05d}-of-{len(shards):05d}"
            {"tfrecord": write_tfrecords, "array_record": _write_array_records}[form](
                path, list(islice(records, length))
            )
    return place


def write_tfrecords(path, records):
    """Length, its checksum, bytes, their checksum; for each record."""
    with path.open("wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            for part in (length, record):
                file.write(part + struct.pack("<I", _masked(crc32c([part]))[0]))


def _write_array_records(path, records):
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def _record(image, label):
    import tensorflow_datasets as tfds
    from PIL import Image

    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(shape=SHAPE), "label": tfds.features.ClassLabel(num_classes=3)}
    )
    png = io.BytesIO()
    Image.fromarray(image).save(png, "PNG")
    return features.serialize_example({"image": png.getvalue(), "label": int(label)})


def _features(names):
    module = "tensorflow_datasets.core.features"
    known = {
        "image": {
            "pythonClassName": f"{module}.image_feature.Image",
            "image": {
                "dtype": "uint8",
                "encodingFormat": "png",
                "shape": {"dimensions": [str(side) for side in SHAPE]},
            },
        },
        "label": {
            "pythonClassName": f"{module}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": "3"},
        },
    }
    return {
        "pythonClassName": f"{module}.features_dict.FeaturesDict",
        "featuresDict": {"features": {name: known[name] for name in names}},
    }
