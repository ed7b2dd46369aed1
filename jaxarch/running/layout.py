"""Where a fit runs, kept with its checkpoints: a fit that goes on elsewhere would have other bits."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.sharding import Mesh

from jaxarch.errors import ArgumentError
from jaxarch.running.devices import runs_mesh
from jaxarch.running.options import Checkpoint, FitOptions

KIND_BYTES = 64
"""For what a device calls itself, such as `cpu` or `NVIDIA H200`."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the bits of a fit depend on beside what is fitted.

    Attributes:
      width: how many runs are in one program, over all devices.
      devices: how many share them; 0 where each step of a run is a program of its own, on one device.
      kind: what the devices call themselves.
    """

    width: int
    devices: int
    kind: str

    @classmethod
    def of(cls, mesh: Mesh | None, width: int) -> Layout:
        """That of a fit that begins."""
        device = jax.local_devices()[0] if mesh is None else mesh.devices.flat[0]
        return cls(width, 0 if mesh is None else mesh.size, device.device_kind)

    @classmethod
    def saved(cls, checkpoint: Checkpoint | None, name: str) -> Layout | None:
        """That of the fit that is continued, if one is.

        Raises:
          ArgumentError: one that cannot be.
        """
        like = {"width": np.asarray(0), "devices": np.asarray(0), "kind": np.zeros(KIND_BYTES, np.uint8)}
        tree = None if checkpoint is None else checkpoint.load(_slot(name), like)
        if tree is None:
            return None
        width, devices = int(tree["width"]), int(tree["devices"])
        if devices < 0 or width < 1 or width % max(devices, 1):
            raise ArgumentError(f"checkpoint: {_slot(name)!r} is damaged; use a fresh folder")
        return cls(width, devices, bytes(tree["kind"]).rstrip(b"\0").decode(errors="replace"))

    def save(self, checkpoint: Checkpoint, name: str) -> None:
        """Keep it beside the checkpoints of a fit."""
        kind = np.frombuffer(self.kind.encode()[:KIND_BYTES].ljust(KIND_BYTES, b"\0"), np.uint8)
        tree = {"width": np.asarray(self.width), "devices": np.asarray(self.devices), "kind": kind}
        checkpoint.save(_slot(name), tree, last=True)

    def mesh(self, options: FitOptions, name: str) -> Mesh | None:
        """The same devices again, of those that there are now; `None` without.

        Raises:
          ArgumentError: fewer devices, devices of another kind, another loop.
        """
        there = list(jax.local_devices() if options.devices is None else options.devices)
        loop, needed = ("scan", self.devices) if self.devices else ("step", 1)
        kinds = sorted({device.device_kind for device in there[:needed]})
        if len(there) < needed or kinds != [self.kind] or options.loop not in ("auto", loop):
            raise ArgumentError(
                f"checkpoint: {name!r} was begun with loop {loop!r} on {_devices(needed, [self.kind])}; loop "
                f"{options.loop!r} on {_devices(len(there), kinds)} would end with other bits: go on as "
                "it was begun, or use a fresh folder"
            )
        return runs_mesh(there, needed) if self.devices else None


def _devices(count: int, kinds: list[str]) -> str:
    return f"{count} device{'' if count == 1 else 's'} ({', '.join(kinds)})"


def _slot(name: str) -> str:
    return f"{name} layout"
