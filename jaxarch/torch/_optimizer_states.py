"""States of PyTorch's optimizers, cut like the parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from jaxarch._internal.errors import ArgumentError, check_instance
from jaxarch.structure._groups import Groups


def cut_state(
    optimizer: torch.optim.Optimizer,
    names: Mapping[nn.Parameter, str],
    groups: Groups,
    kept: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Cut the state of an optimizer; see `ShrunkModule.optimizer_state`."""
    check_instance("optimizer", optimizer, torch.optim.Optimizer, "an optimizer of the original module")
    saved = optimizer.state_dict()
    # A state dict numbers the parameters in this order.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    cut = {}
    for number, state in saved["state"].items():
        if (path := names.get(parameters[number])) is None:
            raise ArgumentError("optimizer: it has parameters that are not of the original module")
        cut[number] = {name: _cut(value, path, name, groups, kept) for name, value in state.items()}
    return saved | {"state": cut}


def _cut(value: Any, path: str, name: str, groups: Groups, kept: Mapping[str, np.ndarray]) -> Any:
    """Cut one tensor of a parameter's state; a step counter stays."""
    if not torch.is_tensor(value):
        return copy.deepcopy(value)
    if value.numel() == 1:
        return value.clone()  # The new optimizer writes to it.
    whole = groups._shapes[path].shape
    if tuple(value.shape) != whole:
        raise ArgumentError(
            f"optimizer: {name!r} of {path!r} has shape {tuple(value.shape)}, not that of its parameter, "
            f"{whole}, so it cannot be cut; begin with a new optimizer"
        )
    # Cut positions, so that every dtype and device is cut alike.
    positions = np.arange(value.numel()).reshape(whole)
    left = np.array(groups.cut({path: positions}, kept)[path])
    return value.flatten()[torch.from_numpy(left).to(value.device)]
