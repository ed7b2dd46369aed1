"""The mesh over which runs are spread; it also splits single runs that do not fit on one device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch.run._partition import RUNS, WHOLE, Partition, Rules, partition_of
from jaxarch.run._problem import Problem


@dataclasses.dataclass(frozen=True)
class RunsMesh:
    """A mesh whose axis `runs` splits the runs, and a partition of each run over its other axes.

    Attributes:
      mesh: its axes are all of type Auto.
      partition: partition of the arrays of one run; each is whole by default.
    """

    mesh: Mesh
    partition: Partition = WHOLE

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.mesh.size

    @property
    def shares(self) -> int:
        """Number of shares that the runs are split into."""
        return self.mesh.shape[RUNS]

    @property
    def per_share(self) -> int:
        """Number of devices that share each run."""
        return self.size // self.shares

    @property
    def axes(self) -> str:
        """Axes of the mesh and their sizes, as text."""
        return " ".join(f"{axis}={size}" for axis, size in self.mesh.shape.items())

    def on(self, problem: Problem) -> Problem:
        """Return the problem with batches split as the partition says."""
        return self.partition.on(problem, self.mesh.shape)

    @property
    def first(self) -> jax.Device:
        """First device of the mesh; all are alike."""
        return self.mesh.devices.flat[0]


def runs_mesh(devices: Sequence[jax.Device] | None, runs: int) -> RunsMesh:
    """Make a mesh with one axis, by default over all of this process's devices, but no more than runs."""
    devices = list(jax.local_devices() if devices is None else devices)
    if not devices:
        raise ArgumentError("devices: expected at least one device, got none")
    devices = devices[:runs]
    # JAX 0.10 makes explicit axes by default, for which a user's loss would have to spell out shardings.
    mesh = jax.make_mesh((len(devices),), (RUNS,), axis_types=(AxisType.Auto,), devices=devices)
    return RunsMesh(mesh)


def split_mesh(mesh: Mesh | None, rules: Rules | None, problem: Problem) -> RunsMesh | None:
    """Return the given mesh with the partition of a problem's runs over it; `None` without a mesh.

    Raises:
      ArgumentError: an object that is not a mesh, one without the axis `runs`, one with devices of other
        processes; errors of `partition_of`.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh) or RUNS not in mesh.axis_names:
        raise ArgumentError(
            f"mesh: expected a mesh with an axis {RUNS!r}, such as jax.make_mesh((2, 4), ('runs', 'data')), "
            f"got {shown(mesh)}"
        )
    # The mesh may consist of CPUs on a machine whose default devices are GPUs.
    here = set(jax.local_devices(backend=mesh.devices.flat[0].platform))
    if not here.issuperset(mesh.devices.flat):
        raise ArgumentError(
            "mesh: it has devices of other processes, but a run is split within one process; use "
            "jax.local_devices()"
        )
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    return RunsMesh(automatic, partition_of(problem, automatic, rules))


def check_batches(problem: Problem, mesh: RunsMesh) -> None:
    """Raise unless the batch axis of the mesh divides the number of examples of every batch.

    Raises:
      ArgumentError: naming the axis and the examples.
    """
    axis = mesh.partition.batch
    if axis is None:
        return
    devices = mesh.mesh.shape[axis]
    if problem.stream is None:
        rows = jax.tree.leaves(problem.data)[0].shape[0] if problem.train is None else problem.train.shape[-1]
        sizes = [problem.descent.batch_size or rows]
    else:
        batches = jax.tree.leaves(problem.stream.outline(1).batches)
        sizes = [leaf.shape[1] for leaf in batches if leaf.ndim > 1]
    for size in sizes:
        if size % devices:
            raise ArgumentError(
                f"mesh: its axis {axis!r} splits batches over {devices} devices, but batches of {size} "
                f"examples are not a multiple of {devices}; change the batch size or the mesh"
            )
