"""Layout of a fit on devices, kept with its checkpoints: on another layout its bits would differ."""

from __future__ import annotations

import dataclasses
import zlib

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError
from jaxarch.run._options import Checkpoint, FitOptions
from jaxarch.run._processes import Team, local_devices
from jaxarch.run._runs_mesh import RunsMesh, runs_mesh
from jaxarch.run._shares import Shares

KIND_BYTES = 64
"""Bytes for the name of a device's kind, such as `cpu` or `NVIDIA H200`."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout on which the bits of a fit depend, beside its inputs.

    Attributes:
      width: how many runs are in one program, over all devices of all processes.
      devices: how many devices have runs of their own; if runs are split, how many shares of the runs there
        are. 0 if each step of a run is a program of its own, on one device of each process.
      kind: the devices' kind; before it the axes of a mesh over which runs are split, and a number that
        stands for how.
    """

    width: int
    devices: int
    kind: str

    @classmethod
    def of(cls, mesh: RunsMesh | None, shares: Shares, width: int) -> Layout:
        """Return the layout of a fit that begins."""
        if mesh is None:
            return cls(width, 0, jax.local_devices()[0].device_kind)
        return cls(width, shares.devices, _kind(mesh))

    @classmethod
    def saved(cls, checkpoint: Checkpoint | None, name: str, team: Team) -> Layout | None:
        """Return the layout of the fit that is resumed, if there is one.

        Raises:
          ArgumentError: a damaged layout.
        """
        like = {"width": np.asarray(0), "devices": np.asarray(0), "kind": np.zeros(KIND_BYTES, np.uint8)}
        tree = None
        if checkpoint is not None:
            tree = checkpoint.load(_slot(name), like) if team.index == 0 else None
            tree = team.of_the_first(_slot(name), tree, like)
        if tree is None:
            return None
        width, devices = int(tree["width"]), int(tree["devices"])
        if devices < 0 or width < 1 or width % max(devices, 1):
            raise ArgumentError(f"checkpoint: {_slot(name)!r} is damaged; use a fresh folder")
        return cls(width, devices, bytes(tree["kind"]).rstrip(b"\0").decode(errors="replace"))

    def save(self, checkpoint: Checkpoint, name: str) -> None:
        """Save the layout beside the checkpoints of a fit."""
        # A checkpoint is loaded into arrays of known shapes, so the text is padded to a fixed length.
        kind = np.frombuffer(_kept(self.kind).encode().ljust(KIND_BYTES, b"\0"), np.uint8)
        tree = {"width": np.asarray(self.width), "devices": np.asarray(self.devices), "kind": kind}
        checkpoint.save(_slot(name), tree, last=True)

    def places(
        self, options: FitOptions, name: str, team: Team, split: RunsMesh | None
    ) -> tuple[RunsMesh | None, Shares]:
        """Return the layout's devices, among those available or of the given mesh, and each process's share.

        Without a mesh, the first value is `None`.

        Raises:
          ArgumentError: fewer devices, devices of another kind, another loop, another mesh; fewer processes,
            if each step of a run is a program of its own.
        """
        if split is not None:
            if (split.shares, _kept(_kind(split))) != (self.devices, self.kind):
                raise ArgumentError(
                    f"checkpoint: {name!r} was started on {self.kind} with {self.devices} shares of the "
                    f"runs; on {_kind(split)} with {split.shares} it would end with other bits; resume it as "
                    "it was started, or use a fresh folder"
                )
            return split, Shares((split.shares,))
        there, total = local_devices(options.devices), sum(team.devices)
        loop, needed = ("scan", self.devices) if self.devices else ("step", 1)
        shares = Shares.of(team.devices, needed, team.index)
        kinds = sorted({_kept(device.device_kind) for device in there[: shares.local]})
        if total < needed or kinds != [self.kind] or options.loop not in ("auto", loop):
            raise ArgumentError(
                f"checkpoint: {name!r} was started with loop {loop!r} on {_devices(needed, [self.kind])}; "
                f"with loop {options.loop!r} on {_devices(total, kinds)} it would end with other bits; "
                "resume it as it was started, or use a fresh folder"
            )
        if self.devices:
            return runs_mesh(there, shares.local), shares
        if team.size < self.width:
            raise ArgumentError(
                f"checkpoint: {name!r} was started with loop 'step' by {self.width} processes, but there are "
                f"{team.size} now; resume it with {self.width}, or use a fresh folder"
            )
        return None, Shares.of((1,) * team.size, self.width, team.index)


def _kind(mesh: RunsMesh) -> str:
    """Return the devices' kind, after the axes and partition of a mesh that splits more than the runs."""
    kind = mesh.first.device_kind
    if len(mesh.mesh.shape) == 1:
        return kind
    # Only `KIND_BYTES` are kept, so a checksum stands for the partition; Python's `hash` differs between
    # processes.
    return f"{mesh.axes} ({zlib.crc32(repr(mesh.partition).encode()):08x}): {kind}"


def _kept(kind: str) -> str:
    """Return a kind as a checkpoint keeps it, in at most `KIND_BYTES`: a checksum ends one that is longer."""
    whole = kind.encode()
    if len(whole) <= KIND_BYTES:
        return kind
    checksum = f"~{zlib.crc32(whole):08x}"
    return whole[: KIND_BYTES - len(checksum)].decode(errors="ignore") + checksum


def _devices(count: int, kinds: list[str]) -> str:
    return f"{count} device{'' if count == 1 else 's'} ({', '.join(kinds)})"


def _slot(name: str) -> str:
    return f"{name} layout"
