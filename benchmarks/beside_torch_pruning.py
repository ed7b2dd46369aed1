"""Do the criteria of jaxarch rank units as Torch-Pruning does on the same network?

    pip install '.[torch]' scikit-learn torchvision torch-pruning
    python benchmarks/beside_torch_pruning.py            # some two minutes, on one core
    python benchmarks/beside_torch_pruning.py --networks MobileNetV2

Both libraries score the channels of the same PyTorch module, with the same weights, examples and gradients,
in evaluation mode. The networks are a residual network after 300 steps on handwritten digits, the same with
a head that reads every place (flattened), ResNet-18 and, if asked for, MobileNetV2 of torchvision. The last
two have random weights, scales and running statistics. There are 8 examples. Groups of both libraries are
paired if they have the same set of members, paths and axes of arrays. The classifier's outputs are left
out.

Columns, of the scores of the units in each pair of groups:

- rank correlation: Spearman's, the median over groups and the least.
- difference: the largest over the largest score, after a factor for each group. Rounding means that the
  scores are proportional.
- kept by both: the share of the better half of a group that is the same, the median and the least.
- together: the same share if the units of all groups are compared, with the nearest scope of `plan`.
- again: the largest difference between Torch-Pruning's scores and a plain formula on the members of the
  group in jaxarch. Rounding means that groups, order of units and definition are understood.

Measured with Torch-Pruning 1.6.1, PyTorch 2.10 and JAX's float32 on a CPU. All groups are equal: 5 and 5 of
the networks on digits, 12 of ResNet-18, 25 of MobileNetV2. The formula gives Torch-Pruning's scores up to
rounding, but for Taylor, Hessian and OBD of the flattened network (see below). Proportional, with the same
units kept: magnitudes and their squares with the scales of batch norms, the scales alone, first-order
Taylor. Hessian is proportional for the example that Torch-Pruning uses. Exceptions are flattened heads and
depthwise convolutions. Of the others, on digits and ResNet-18:

| Torch-Pruning | jaxarch | rank correlation | kept by both |
|---|---|---|---|
| magnitude, p=2, its default | magnitude(params), the default | .87, .15 | .75, .54 |
| magnitude, p=1, "first" | magnitude(params) | .51, .55 | .62, .70 |
| LAMP | lamp(params) | .56, .04 | .62, .50 |
| FPGM, its default | geometric_median(groups, params) | .45, .67 | .62, .74 |
| Taylor, multivariable | snip(params, gradients) | .82, .92 | .81, .86 |
| Hessian | taylor(params, 0, squares, "*weight") | .05, .93 | .50, .91 |
| OBDCImportance | taylor(params, 0, squares) | .95, .96 | .88, .94 |
| random | {name: random numbers} | -.04, .01 | .50, .50 |

Reasons, as read in `torch_pruning/pruner/importance.py`:

- Magnitude: squares, summed over a layer's connections of the unit, and a batch norm's scale as a layer of
  its own; then the mean over layers. jaxarch has the mean of |w| over all connections in kernels. Both
  divide by what is the same for all units of a group, so `magnitude(params, "*weight")` is proportional.
- Normalizer: the mean over the group's units, as the scope `relative`. Without it, Torch-Pruning compares
  means over layers, and the scope `global` sums: groups of many layers then keep more.
- "first": the filters of one layer of the group, the one its search began with; it may be a shortcut's.
- LAMP: squares as above, then each unit's share in those of the larger units of its group. Within a group
  this is the order of the squares. jaxarch has the mean of the shares of single connections in their leaf,
  which a few large weights decide. The shares of units are `lamp(norms, everything)`, norms by name of the
  group, with the same units kept. (Their difference is a near tie in another order.)
- FPGM: distances between |w|^p, so that w and -w are the same filter, layer by layer, and then the mean.
  The paper's are between w. jaxarch's are between w too, of all connections of a unit together. With signs,
  layer by layer, the ranks correlate with jaxarch's by .97 and more, so that signs are the reason. (In the
  flattened network the distances in the head also differ: Torch-Pruning has one row for each place.)
- Taylor: |w g|, summed and averaged in the same way. It counts no batch norm: it asks for group norm's
  pruning function in its place. Multivariable is |sum w g| of each layer and has no counterpart.
- Hessian: `accumulate_grad` looks for a name among tensors, so that the last example alone counts.
- OBDCImportance: w^2 g^2 of filters alone, whereas jaxarch counts what reads the unit too. It fails on
  convolutions with a bias, and on depthwise ones.
- Depthwise kernels count in jaxarch, and not in Torch-Pruning.
- Taylor, Hessian and OBDCImportance sort the indices of a group in place, and not those of their units.
  Behind a flattened head indices come unsorted, so that units have each other's scores: the least rank
  correlation of Taylor is .65 there, and magnitudes of the same group object change afterwards. With both
  sorted alike, the formula gives the same scores (1e-7).

No criterion of jaxarch is filters alone ("first", OBDCImportance) or |sum w g|: pass arrays by name of the
group. Random scores take one line: a dict of random arrays.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch_pruning
import torchvision
from scipy.stats import spearmanr
from torch import nn
from torch.nn import functional
from torch_pruning.pruner import importance

import jaxarch
import jaxarch.torch
from jaxarch import saliency
from jaxarch.structure._scored_units import compared_scores, unit_scores

WEIGHTS = "*weight"
"""Kernels and scales of batch norms, as PyTorch names both."""
KERNELS = (nn.Conv2d, nn.Linear)
Scores = dict[str, np.ndarray]


class Member(NamedTuple):
    """A layer's part in a group: rows of its weights, of three arrays of the same shape, and their units."""

    path: str
    axis: int
    rows: np.ndarray
    gradients: np.ndarray
    last: np.ndarray
    squares: np.ndarray
    units: np.ndarray
    is_kernel: bool
    is_first: bool


class Block(nn.Module):
    """Two convolutions beside a shortcut, which has a convolution if the width changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        projection = nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Sequential(*projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both paths, after a ReLU."""
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(inner + self.shortcut(x))


class Residual(nn.Module):
    """A residual network of three blocks. Its head reads means over places, or every place (`flat`)."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.pool = nn.Identity() if flat else nn.AdaptiveAvgPool2d(1)
        self.stem, self.norm = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Block(16, 16), nn.AvgPool2d(2), Block(16, 32), Block(32, 32))
        self.head = nn.Linear(32 * 16 if flat else 32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        return self.head(self.pool(x).flatten(1))


def on_digits(flat: bool, examples: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a residual network after 300 steps on handwritten digits, and some examples."""
    digits = jaxarch.lab.data.load("digits")
    x = torch.tensor(np.asarray(digits.x, np.float32)).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(np.asarray(digits.y, np.int64))
    model = Residual(flat)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(300):
        rows = torch.randint(1200, (50,))
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model.eval(), x[1200 : 1200 + examples], y[1200 : 1200 + examples]


def of_torchvision(name: str, examples: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a model with random weights, scales and running statistics, and random examples."""
    model = torchvision.models.get_model(name, weights=None)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.uniform_(0.1, 1.5)
                layer.bias.normal_(std=0.2)
                layer.running_mean.normal_(std=0.1)
                layer.running_var.uniform_(0.5, 1.5)
    return model.eval(), torch.randn(examples, 3, 32, 32), torch.randint(1000, (examples,))


NETWORKS = {
    "digits": functools.partial(on_digits, False),
    "digits, flattened": functools.partial(on_digits, True),
    "ResNet-18": functools.partial(of_torchvision, "resnet18"),
    "MobileNetV2": functools.partial(of_torchvision, "mobilenet_v2"),
}


def is_counted(layer: nn.Module) -> bool:
    """Return whether Torch-Pruning's importances read a layer: not if it is a depthwise convolution."""
    return isinstance(layer, (*KERNELS, nn.BatchNorm2d)) and getattr(layer, "groups", 1) == 1


class Case:
    """A network for both sides: its groups in both libraries, and the gradients of both.

    Attributes:
      model: the PyTorch module.
      tree: its arrays.
      gradients: of the mean loss.
      squares: means over examples of squared gradients.
      last: squared gradients of the last example.
      groups: the groups that jaxarch finds.
      counts: the groups that may lose units in jaxarch, and in Torch-Pruning.
      members: by name in jaxarch, the kernels and scales of the groups that both libraries have.
    """

    def __init__(self, network: str, examples: int) -> None:
        torch.manual_seed(0)
        self.model, self.x, self.y = NETWORKS[network](examples)
        self.function, self.tree = jaxarch.torch.as_function(self.model)
        self.gradients, self.squares, self.last = self._gradients()
        self.groups = jaxarch.structure.axis_groups(self.function, self.tree, jnp.asarray(self.x.numpy()))
        *_, self.head = (layer for layer in self.model.modules() if isinstance(layer, nn.Linear))
        pairs, self.counts = self.fresh_pairs()
        self.members = {name: self._parts(name, group) for name, group in pairs.items()}

    def fresh_pairs(self) -> tuple[dict[str, Any], tuple[int, int]]:
        """Find Torch-Pruning's groups, since some of its importances change them, and pair them with ours."""
        self.graph = torch_pruning.DependencyGraph().build_dependency(self.model, self.x)
        found = [*self.graph.get_all_groups(ignored_layers=[self.head])]
        theirs = {self._members(group): group for group in found}
        ours = {
            name: frozenset(group.axes)
            for name, group in self.groups.groups.items()
            if group.kind == "channels"
        }
        pairs = {name: theirs[members] for name, members in ours.items() if members in theirs}
        return pairs, (len(ours), len(found))

    def losses(self) -> torch.Tensor:
        """Return the loss of each example."""
        return functional.cross_entropy(self.model(self.x), self.y, reduction="none")

    def _gradients(self) -> tuple[Any, ...]:
        """Return the mean gradient, the mean square of single examples' gradients, and the last square."""
        names, leaves = zip(*self.model.named_parameters(), strict=True)
        of_each = [torch.autograd.grad(loss, leaves, retain_graph=True) for loss in self.losses()]
        each = [[gradient.numpy() for gradient in of_leaf] for of_leaf in zip(*of_each, strict=True)]
        found = (
            [np.mean(of_leaf, 0) for of_leaf in each],
            [np.mean(np.square(of_leaf), 0) for of_leaf in each],
            [np.square(of_leaf[-1]) for of_leaf in each],
        )
        return tuple(
            dict.fromkeys(self.tree) | dict(zip(names, map(jnp.asarray, arrays), strict=True))
            for arrays in found
        )

    def _members(self, group: Any) -> frozenset[tuple[str, int]]:
        """Return path and axis of every array of a group of Torch-Pruning."""
        paths = {layer: path for path, layer in self.model.named_modules()}
        made = set()
        for dependency, _ in group:
            layer = dependency.target.module
            if layer not in paths:
                continue
            if not self.graph.is_out_channel_pruning_fn(dependency.handler):
                made |= {(f"{paths[layer]}.weight", 1)} if isinstance(layer, KERNELS) else set()
                continue
            arrays = (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
            made |= {(f"{paths[layer]}.{name}", 0) for name, array in arrays if array.ndim}
        return frozenset(made)

    def _parts(self, name: str, theirs: Any) -> list[Member]:
        """Return the kernels and scales of a group of jaxarch, row by row."""
        size, made = self.groups.groups[name].size, []
        layers = dict(self.model.named_modules())
        first = next(dependency for dependency, _ in theirs if is_counted(dependency.target.module))
        trees = self.tree, self.gradients, self.last, self.squares
        for path, axes in self.groups.units_of([name]).leaves:
            for axis, span in enumerate(axes):
                layer = layers[path.rpartition(".")[0]]
                if not path.endswith("weight") or name not in dict(span.groups()) or not is_counted(layer):
                    continue
                # Indices of other groups have the value 1.
                units = np.asarray(span.spread({name: jnp.arange(size) + 2})) - 2
                tables = (np.moveaxis(np.asarray(tree[path]), axis, 0) for tree in trees)
                rows = (table.reshape(len(units), -1)[units >= 0] for table in tables)
                is_first = layer is first.target.module and axis == 0
                kernel = isinstance(layer, KERNELS)
                made.append(Member(path, axis, *rows, units[units >= 0], kernel, is_first))
        return made

    def scored(self, scores: Any, scope: str) -> Scores:
        """Return the scores of units that `plan` has of scores of connections."""
        found = unit_scores(self.groups, "channels", scores, self.tree, summed=scope == "global")
        return {name: found[name] for name in self.members}

    def theirs(self, score: Callable[[Any], torch.Tensor]) -> Scores:
        """Return Torch-Pruning's scores."""
        pairs, _ = self.fresh_pairs()
        return {name: score(group).detach().numpy().astype(float) for name, group in pairs.items()}


def with_gradients(**options: Any) -> Callable[[Case], Callable[[Any], torch.Tensor]]:
    """Return the Taylor importance of the gradients of the mean loss."""

    def score(case: Case) -> Callable[[Any], torch.Tensor]:
        for name, leaf in case.model.named_parameters():
            leaf.grad = torch.tensor(np.asarray(case.gradients[name]))
        return importance.GroupTaylorImportance(**options)

    return score


def as_documented(case: Case) -> Callable[[Any], torch.Tensor]:
    """Return the Hessian importance, with gradients accumulated as its docstring says."""
    score = importance.GroupHessianImportance()
    for loss in case.losses():
        case.model.zero_grad()
        loss.backward(retain_graph=True)
        score.accumulate_grad(case.model)
    return score


def damage(case: Case) -> Callable[[Any], torch.Tensor]:
    """Return the OBD importance with Fisher matrices of layers."""
    made = importance.OBDCImportance(num_classes=case.head.out_features)
    pruner = SimpleNamespace(
        DG=case.graph,
        ignored_layers=[case.head],
        root_module_types=(torch_pruning.ops.TORCH_CONV, torch_pruning.ops.TORCH_LINEAR),
        _downstream_node_as_root_if_attention=lambda group: group,
    )
    made._prepare_model(case.model, pruner)
    case.losses().mean().backward()
    made.step()
    made._rm_hooks(case.model)
    return made


def mean(scores: np.ndarray) -> np.ndarray:
    return scores / scores.mean()


def shares(scores: np.ndarray) -> np.ndarray:
    """Return each score over the sum of those that are at least as large."""
    order = np.argsort(scores, kind="stable")
    made = np.empty_like(scores)
    made[order] = scores[order] / np.cumsum(scores[order][::-1])[::-1]
    return made


def apart(rows: np.ndarray) -> np.ndarray:
    """Return the sum of each row's distances to all others."""
    rows = rows.astype(float)
    squares = (rows**2).sum(1)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0)).sum(1)


@dataclasses.dataclass(frozen=True)
class Criterion:
    """A criterion of both libraries.

    Attributes:
      theirs: makes Torch-Pruning's importance.
      formula: the importance of each row of a layer, by which Torch-Pruning's scores are computed again from
        the groups of jaxarch: a mean over layers. `None` for random scores.
      ours: scores of connections or of units.
      text: the call of `ours`, for the table.
      only: the layers that count.
      normalized: what becomes of the mean over layers.
      scope: the scope of `plan` in which groups are compared as Torch-Pruning compares them.
    """

    theirs: Callable[[Case], Callable[[Any], torch.Tensor]]
    formula: Callable[[Member], np.ndarray] | None
    ours: Callable[[Case], Any]
    text: str
    only: Callable[[Member], bool] = lambda member: True
    normalized: Callable[[np.ndarray], np.ndarray] = mean
    scope: str = "relative"

    def again(self, case: Case) -> Scores | None:
        """Compute Torch-Pruning's scores from the groups of jaxarch."""
        if self.formula is None:
            return None
        made = {}
        for name, members in case.members.items():
            counted = [member for member in members if self.only(member)]
            total = np.zeros(case.groups.groups[name].size)
            for member in counted:
                np.add.at(total, member.units, self.formula(member))
            made[name] = self.normalized(total / len(counted))
        return made


def squared(tree: Any) -> Any:
    return jax.tree.map(jnp.square, tree)


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def scales(path: str, leaf: Any) -> bool:
    return path.endswith("weight") and leaf.ndim == 1


def lengths(case: Case) -> dict[str, jax.Array]:
    """Return the norm of each unit's weights, by group."""
    found = case.scored(squared(saliency.magnitude(case.tree, WEIGHTS)), "global")
    return {name: jnp.sqrt(jnp.asarray(sums, jnp.float32)) for name, sums in found.items()}


def drawn(case: Case) -> Scores:
    rng = np.random.default_rng(0)
    return {name: rng.uniform(size=group.size) for name, group in case.groups.groups.items()}


def made(kind: type, **options: Any) -> Callable[[Case], Any]:
    return lambda case: kind(**options)


def is_kernel(member: Member) -> bool:
    return member.is_kernel


def is_filter(member: Member) -> bool:
    return member.is_kernel and member.axis == 0


def power(p: int) -> Callable[[Member], np.ndarray]:
    return lambda member: (np.abs(member.rows) ** p).sum(1)


def distances(p: int) -> Callable[[Member], np.ndarray]:
    return lambda member: apart(np.abs(member.rows) ** p)


MAGNITUDE = importance.GroupMagnitudeImportance
CRITERIA = {
    "magnitude, p=1": Criterion(
        made(MAGNITUDE, p=1),
        power(1),
        lambda case: saliency.magnitude(case.tree, WEIGHTS),
        'magnitude(params, "*weight")',
    ),
    "magnitude, p=2 (default)": Criterion(
        made(MAGNITUDE),
        power(2),
        lambda case: squared(saliency.magnitude(case.tree, WEIGHTS)),
        'magnitude(params, "*weight") squared',
    ),
    "magnitude, p=2 (default), beside our default": Criterion(
        made(MAGNITUDE),
        power(2),
        lambda case: saliency.magnitude(case.tree),
        "magnitude(params), the default",
    ),
    "magnitude, p=2, normalizer=None": Criterion(
        made(MAGNITUDE, normalizer=None),
        power(2),
        lambda case: squared(saliency.magnitude(case.tree, WEIGHTS)),
        'magnitude(params, "*weight") squared',
        normalized=lambda scores: scores,
        scope="global",
    ),
    'magnitude, p=1, "first"': Criterion(
        made(MAGNITUDE, p=1, group_reduction="first"),
        power(1),
        lambda case: saliency.magnitude(case.tree),
        "magnitude(params)",
        only=lambda member: member.is_first,
    ),
    "LAMP": Criterion(
        made(importance.LAMPImportance),
        power(2),
        lambda case: saliency.lamp(case.tree),
        "lamp(params)",
        normalized=shares,
    ),
    "LAMP, beside lamp of units": Criterion(
        made(importance.LAMPImportance),
        power(2),
        lambda case: saliency.lamp(lengths(case), jaxarch.everything),
        "lamp(norms of units)",
        normalized=shares,
        scope="global",
    ),
    "batch norm scale": Criterion(
        made(importance.BNScaleImportance),
        power(1),
        lambda case: saliency.magnitude(case.tree, scales),
        "magnitude(params, scales)",
        only=lambda member: not member.is_kernel,
    ),
    "FPGM (default, p=2)": Criterion(
        made(importance.FPGMImportance),
        distances(2),
        lambda case: saliency.geometric_median(case.groups, case.tree),
        "geometric_median(groups, params)",
        only=is_kernel,
    ),
    "FPGM, p=1": Criterion(
        made(importance.FPGMImportance, p=1),
        distances(1),
        lambda case: saliency.geometric_median(case.groups, case.tree),
        "geometric_median(groups, params)",
        only=is_kernel,
    ),
    "Taylor (default)": Criterion(
        with_gradients(),
        lambda member: np.abs(member.rows * member.gradients).sum(1),
        lambda case: saliency.snip(case.tree, case.gradients),
        "snip(params, gradients)",
        only=is_kernel,
    ),
    "Taylor, multivariable": Criterion(
        with_gradients(multivariable=True),
        lambda member: np.abs((member.rows * member.gradients).sum(1)),
        lambda case: saliency.snip(case.tree, case.gradients),
        "snip(params, gradients)",
        only=is_kernel,
    ),
    "Hessian": Criterion(
        as_documented,
        lambda member: (member.rows**2 * member.last).sum(1),
        lambda case: saliency.taylor(case.tree, zeros(case.squares), case.squares, WEIGHTS),
        'taylor(params, 0, squares, "*weight")',
    ),
    "Hessian, beside the last example": Criterion(
        as_documented,
        lambda member: (member.rows**2 * member.last).sum(1),
        lambda case: saliency.taylor(case.tree, zeros(case.last), case.last, WEIGHTS),
        'taylor(params, 0, last, "*weight")',
    ),
    "OBD (OBDCImportance)": Criterion(
        damage,
        lambda member: (member.rows**2 * member.squares).sum(1),
        lambda case: saliency.taylor(case.tree, zeros(case.squares), case.squares),
        "taylor(params, 0, squares)",
        only=is_filter,
    ),
    "random": Criterion(made(importance.RandomImportance), None, drawn, "{name: random numbers}"),
}


def difference(ours: Scores, theirs: Scores) -> float:
    """Return the largest difference over the largest score, after a factor for each group."""

    def of_group(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs(a * (a @ b) / (a @ a) - b).max() / np.abs(b).max())

    return max(of_group(ours[name], theirs[name]) for name in theirs)


def kept(scores: np.ndarray) -> set[int]:
    return {*np.argsort(-scores, kind="stable")[: len(scores) // 2].tolist()}


def common(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of the better half that is in both."""
    return len(kept(ours) & kept(theirs)) / (len(ours) // 2)


def row(case: Case, criterion: Criterion) -> list[str]:
    """Return the cells of a criterion, in the order of the printed columns."""
    try:
        theirs = case.theirs(criterion.theirs(case))
    except (KeyError, RuntimeError) as error:
        return [criterion.text, f"Torch-Pruning raises {type(error).__name__}", "", "", "", ""]
    ours = case.scored(criterion.ours(case), criterion.scope)
    again = criterion.again(case)
    ranks = [float(spearmanr(ours[name], theirs[name]).statistic) for name in theirs]
    halves = [common(ours[name], theirs[name]) for name in theirs]
    compared = compared_scores(case.groups, ours, criterion.scope)
    together = common(*(np.concatenate([each[name] for name in theirs]) for each in (compared, theirs)))
    return [
        criterion.text,
        f"{np.median(ranks):.3f}, {min(ranks):.3f}",
        f"{difference(ours, theirs):.0e}",
        f"{np.median(halves):.2f}, {min(halves):.2f}",
        f"{together:.2f}",
        "" if again is None else f"{largest(again, theirs):.0e}",
    ]


def largest(again: Mapping[str, np.ndarray], theirs: Scores) -> float:
    """Return the largest difference over the largest score, of scores that should be equal."""
    return max(float(np.abs(again[name] - theirs[name]).max() / theirs[name].max()) for name in theirs)


COLUMNS = ["Torch-Pruning", "jaxarch", "rank correlation", "difference", "kept by both", "together", "again"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*NETWORKS][:3])
    parser.add_argument("--examples", type=int, default=8)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for network in arguments.networks:
        case = Case(network, arguments.examples)
        (ours, theirs), equal = case.counts, len(case.members)
        print(f"\n{network}: {ours} groups of channels, {theirs} in Torch-Pruning, {equal} equal\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for name, criterion in CRITERIA.items():
            print(f"| {' | '.join([name, *row(case, criterion)])} |", flush=True)


if __name__ == "__main__":
    main()
