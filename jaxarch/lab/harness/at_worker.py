"""Make a part in a worker process, under the driver's conditions, and return its warnings too."""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import platform
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import pandas as pd

from jaxarch import ArgumentError, Progress, use_compilation_cache, use_cpu_cores
from jaxarch.lab.checks import first_line, shown
from jaxarch.lab.harness.part import Part, Work
from jaxarch.lab.results import devices_here, devices_in_words

CONFIG = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)
"""Options of JAX's configuration that results depend on."""
CACHE = "jax_compilation_cache_dir"
PACKAGES = ("jaxarch", "jax", "jaxlib", "numpy")
TOLD_EVERY = 1.0
"""Minimum seconds between two messages to the driver about a running training."""

# A Dask worker may have several threads, but warning filters and JAX's configuration belong to the process.
_alone = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Conditions of the driver that a worker must share; with other releases its numbers would differ.

    Attributes:
      host: the driver's host.
      process: the driver's process id.
      config: options of JAX's configuration, by name.
      versions: versions of packages, by name.
      cache: the folder of compiled programs, used on the same host only; or empty.
      devices: the number of CPU devices of a worker.
      topic: the Dask topic of messages to the driver; or empty.
    """

    host: str
    process: int
    config: tuple[tuple[str, Any], ...]
    versions: tuple[tuple[str, str], ...]
    cache: str
    devices: int
    topic: str

    @classmethod
    def here(cls, devices: int, topic: str) -> Conditions:
        """Return the conditions of this process."""
        return cls(
            platform.node(),
            os.getpid(),
            tuple((name, _configured(name)) for name in CONFIG),
            tuple((name, version(name)) for name in PACKAGES),
            _configured(CACHE) or "",
            devices,
            topic,
        )

    @property
    def ours(self) -> bool:
        """True if this process is the driver."""
        return (self.host, self.process) == (platform.node(), os.getpid())


@dataclasses.dataclass(frozen=True)
class Made:
    """Result of a part that was made.

    Attributes:
      result: a table, or a pytree of NumPy arrays.
      ends: the last `Progress` of each training.
      warned: the category and message of each warning.
      where: host and process.
      devices: the devices of the process, as in `2 x cpu`.
    """

    result: Any
    ends: tuple[Progress, ...]
    warned: tuple[tuple[type[Warning], str], ...]
    where: str
    devices: str


@dataclasses.dataclass(frozen=True)
class Failed:
    """Error that a part ended in.

    Attributes:
      message: the line of an `ArgumentError`, or the traceback of any other error.
      argument: whether it was an `ArgumentError`.
      where: host and process.
    """

    message: str
    argument: bool
    where: str


def packed(part: Part, load: Callable[[], Any], found: dict[str, Any]) -> bytes:
    """Pickle a part with everything that it needs.

    Raises:
      ArgumentError: something cannot be pickled; names the part.
    """
    try:
        # Pickled separately: these bytes are the key under which a worker caches the loaded data.
        loads = pickle.dumps(load)
        return pickle.dumps((part.name, part.function, part.settings, loads, found))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ArgumentError(
            f"parts: {part.name} cannot be sent to a worker: {first_line(error)}; expected a function at the "
            "top of a module, and settings that can be pickled"
        ) from error


def check_same(dataset: str, here: str, there: str) -> None:
    """Raise unless a worker has loaded the driver's data; equal names may stand for different files.

    Args:
      dataset: the name of the data set.
      here: the digest of the worker's data.
      there: the digest of the driver's data.

    Raises:
      ArgumentError: names the data set and the machine.
    """
    if here != there:
        raise ArgumentError(f"dataset: {shown(dataset)} is not the same on {platform.node()}")


def make(conditions: Conditions, package: bytes) -> Made | Failed:
    """Make a part; return its error as `Failed` instead of raising it."""
    where = f"process {os.getpid()} on {platform.node()}"
    with _alone:
        try:
            _take_over(conditions)
            name, function, settings, loads, found = pickle.loads(package)
            told = _Told(conditions.topic, name)
            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("always")
                result = function(_loaded(loads), settings, found, Work(told))
                if not isinstance(result, pd.DataFrame):
                    result = jax.device_get(result)
            warned = dict.fromkeys((warning.category, str(warning.message)) for warning in record)
            devices = devices_in_words(devices_here())
            return Made(result, tuple(told.last.values()), tuple(warned), where, devices)
        except ArgumentError as error:
            return Failed(str(error), True, where)
        except Exception:
            return Failed(traceback.format_exc(), False, where)


def _take_over(conditions: Conditions) -> None:
    """Set up this process to compute as the driver does.

    Raises:
      ArgumentError: the worker has other releases, or has started JAX with other devices.
    """
    if conditions.ours:
        return
    for name, theirs in conditions.versions:
        if version(name) != theirs:
            raise ArgumentError(
                f"executor: a worker on {platform.node()} has {name} {version(name)}, and not {theirs}"
            )
    for name, value in conditions.config:
        if _configured(name) != value:
            jax.config.update(name, value)
    try:
        use_cpu_cores(conditions.devices)
    except ArgumentError:
        raise ArgumentError(
            f"devices: a worker on {platform.node()} has started JAX with {len(jax.devices('cpu'))} CPU "
            f"devices, and not {conditions.devices}; restart the workers"
        ) from None
    here = conditions.cache and conditions.host == platform.node()
    if here and _configured(CACHE) != conditions.cache:
        use_compilation_cache(conditions.cache)


def _configured(name: str) -> Any:
    return getattr(jax.config, name)


@functools.lru_cache(maxsize=1)
def _loaded(loads: bytes) -> Any:
    """Load the data of an experiment's parts, once per process."""
    return pickle.loads(loads)()


class _Told:
    """Progress callback: keeps each training's last message, and sends others to the driver if it can."""

    def __init__(self, topic: str, part: str) -> None:
        self.last: dict[str, Progress] = {}
        self._send = _sender(topic, part)
        self._latest = time.monotonic()
        self._send({})  # Tells the driver that the part has begun.

    def __call__(self, told: Progress) -> None:
        if told.step >= told.steps and told.group + 1 >= told.groups:
            self.last[told.name] = dataclasses.replace(told, look=None)
        elif time.monotonic() > self._latest + TOLD_EVERY:
            self._latest = time.monotonic()
            names = ("name", "step", "steps", "group", "groups", "runs", "loss")
            self._send({name: getattr(told, name) for name in names})


def _sender(topic: str, part: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that sends messages to the driver by the Dask scheduler, or drops them."""
    if topic and "distributed" in sys.modules:
        from distributed import get_worker

        try:
            worker = get_worker()
        except ValueError:
            pass
        else:
            return lambda told: worker.log_event(topic, {"part": part, **told})
    return lambda told: None
