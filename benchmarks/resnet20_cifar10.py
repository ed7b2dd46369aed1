"""Which criterion chooses the better half of a ResNet-20 that was trained on CIFAR-10?

    pip install '.[torch,data,plots]'
    python benchmarks/resnet20_cifar10.py                 # three hours on one core, resumable
    python benchmarks/resnet20_cifar10.py --minutes 0     # the table of what was measured so far
    python benchmarks/resnet20_cifar10.py --minutes 0 --figure accuracy.png

PyTorch trains ResNet-20 of He et al. (2016, section 4.2, shortcuts of option A) on CIFAR-10, in bfloat16.
`jaxarch.torch.plan` chooses channels to a budget, `apply` returns an ordinary, smaller module, and PyTorch
trains that one on. Every criterion of a seed has the same parent, batches and number of epochs.

- magnitude: |theta|, compared as `relative`, the default, and as `global`.
- taylor: |theta g| with the mean gradient g, `global`.
- fisher: theta^2 h / 2 with the Fisher diagonal h (optimal brain damage), `global`.
- random: one uniform number a channel, `global`.
- dense: the parent, trained on for as many epochs.

Gradients are those of 512 training pictures, one at a time, in evaluation mode. Training is by SGD with
Nesterov momentum .9, weight decay 5e-4, batches of 128, random crops and flips. The learning rate of a parent
rises to .2 in a quarter of its 8 epochs and falls to 0; afterwards it falls from .05 to 0 in 3 epochs.
Nothing was tuned, and no choice looked at the test pictures. Milliseconds are those of the compiled JAX
function with 64 pictures.

The pictures of the copy at hand went through JPEG, so accuracies are not exactly those of CIFAR-10.

Measured with 3 seeds: medians with the least and the most. The dense network has .840 [.840, .845].

| channels | scope | half of the multiply-adds | a quarter | ahead of random |
|---|---|---|---|---|
| magnitude | relative | .825 [.824, .825] | .792 [.791, .800] | 3 of 3, 3 of 3 |
| magnitude | global | .824 [.820, .827] | .795 [.781, .796] | 3 of 3, 2 of 3 |
| random | global | .818 [.817, .819] | .786 [.785, .786] |  |
| first-order change (Taylor) | global | .815 [.814, .825] | .751 [.739, .772] | 1 of 3, 0 of 3 |
| second-order change alone (Fisher, OBD) | global | .797 [.785, .803] | .655 [.645, .680] | 0 of 3, 0 of 3 |

With 3 seeds no paired test can show a difference. The dense network takes 47 ms, and with sizes as they come
the cut ones take 38 to 50 ms at half and 29 to 43 ms at a quarter, on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import jaxarch
from jaxarch.structure._latency import latency

EPOCHS, MORE_EPOCHS, BATCH, PICTURES = 8, 3, 128, 512
CHOICES = (
    ("magnitude", "relative"),
    ("magnitude", "global"),
    ("taylor", "global"),
    ("fisher", "global"),
    ("random", "global"),
)
BUDGETS = ("50%", "25%")
ROWS = Path(__file__).parents[1] / "docs/results/resnet20_cifar10.jsonl"
Data = tuple[torch.Tensor, torch.Tensor]
"""Pictures, normalized, and labels."""


class Block(nn.Module):
    """`relu(F(x) + x)`; where shapes differ, `x` is every second pixel with channels of zeros (option A)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.stride = stride
        self.added = after - before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures of the block's channels."""
        change = self.norms[1](self.second(functional.relu(self.norms[0](self.first(x)))))
        if self.stride > 1:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return functional.relu(change + x)


class ResNet20(nn.Module):
    """ResNet-20: three stages of three blocks, with 16, 32 and 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        widths = [16, *(16,) * 3, *(32,) * 3, *(64,) * 3]
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(*(Block(one, other, 1 + (one != other)) for one, other in pairs))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs for some pictures."""
        return self.head(self.blocks(functional.relu(self.norm(self.stem(x)))).mean((2, 3)))


def pictures() -> tuple[Data, Data]:
    """Return the training and the test pictures."""
    images = jaxarch.lab.data.load_images("cifar10")
    x, y = torch.from_numpy(np.array(images.x, np.float32)), torch.from_numpy(np.array(images.y, np.int64))
    of_train = x[: images.train]
    x = (x - of_train.mean((0, 1, 2))) / of_train.std((0, 1, 2))
    x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    train, test = ((x[rows], y[rows]) for rows in (slice(0, images.train), slice(images.train, None)))
    return train, test


def batches(data: Data, epochs: int, seed: int) -> Iterator[Data]:
    """Yield shuffled batches with random flips and crops."""
    random = torch.Generator().manual_seed(seed)
    x, y = data
    for _ in range(epochs):
        order = torch.randperm(len(y), generator=random)
        for start in range(0, len(y) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            flipped = torch.rand(BATCH, generator=random) < 0.5
            now = x[chosen]
            now = torch.where(flipped[:, None, None, None], now.flip(3), now)
            top, left = torch.randint(0, 9, (2,), generator=random).tolist()
            padded = functional.pad(now, (4, 4, 4, 4))
            yield padded[:, :, top : top + 32, left : left + 32], y[chosen]


def train(model: nn.Module, data: Data, epochs: int, seed: int, rate: float, rises: float) -> nn.Module:
    """Train a model; the learning rate rises for some share of the steps, then falls to 0."""
    model = model.to(memory_format=torch.channels_last).train()
    steps = epochs * (len(data[1]) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=5e-4, nesterov=True)

    def share(step: int) -> float:
        now = (step + 1) / steps
        return now / rises if now < rises else (1 - now) / (1 - rises)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    for x, y in batches(data, epochs, seed):
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """Return the accuracy on some pictures."""
    found = [model(x).argmax(1) for x in data[0].split(500)]
    return (torch.cat(found) == data[1]).float().mean().item()


def moments(model: nn.Module, data: Data) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the means of the gradient and of its square, over single training pictures."""
    names = {name: leaf for name, leaf in model.named_parameters() if leaf.ndim > 1}
    first, second = ({name: torch.zeros_like(leaf) for name, leaf in names.items()} for _ in range(2))
    for x, y in zip(data[0][:PICTURES], data[1][:PICTURES], strict=True):
        loss = functional.cross_entropy(model(x[None]), y[None])
        for name, gradient in zip(names, torch.autograd.grad(loss, [*names.values()]), strict=True):
            first[name] += gradient / PICTURES
            second[name] += gradient**2 / PICTURES
    return first, second


def scores(model: nn.Module, data: Data, criterion: str, seed: int) -> Any:
    """Return the scores of a criterion, as `jaxarch.torch.plan` takes them."""
    if criterion == "random":
        random, picture = np.random.default_rng(seed), jax.numpy.zeros((1, 3, 32, 32))
        groups = jaxarch.structure.axis_groups(*jaxarch.torch.as_function(model), picture)
        return {name: random.uniform(size=group.size) for name, group in groups.groups.items()}
    leaves = {name: leaf.detach() for name, leaf in model.named_parameters() if leaf.ndim > 1}
    if criterion == "magnitude":
        return {name: leaf.abs() for name, leaf in leaves.items()}
    gradient, square = moments(model, data)
    if criterion == "taylor":
        return {name: (leaf * gradient[name]).abs() for name, leaf in leaves.items()}
    return {name: leaf**2 * square[name] / 2 for name, leaf in leaves.items()}


def parent(seed: int, data: Data, folder: Path) -> nn.Module:
    """Return a trained network, from the folder if it is there."""
    torch.manual_seed(seed)
    model = ResNet20()
    if (path := folder / f"{seed}.pt").exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    train(model, data, EPOCHS, seed, 0.2, 0.25)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    return model


def trained_on(model: nn.Module, data: Data, test: Data, seed: int) -> dict[str, float]:
    """Train a model for the further epochs; return its accuracies before and after."""
    before = accuracy(model, test)
    train(model, data, MORE_EPOCHS, seed + 1000, 0.05, 1e-3)
    return {"before": before, "accuracy": accuracy(model, test)}


def smaller(
    model: nn.Module, data: Data, test: Data, seed: int, choice: tuple[str, str], budget: str
) -> dict[str, Any]:
    """Cut a trained network, train it on, and return what was measured."""
    criterion, scope = choice
    plan = jaxarch.torch.plan(
        model,
        torch.zeros(2, 3, 32, 32),
        budget=f"{budget} multiply_adds",
        scores=scores(model, data, criterion, seed),
        scope=scope,
    )
    small = plan.apply()
    return {
        **trained_on(small.model, data, test, seed),
        "multiply-adds": plan.after.multiply_adds,
        "share": plan.after.multiply_adds / plan.before.multiply_adds,
        "parameters": plan.after.parameters,
        "kept": {name: int(units.sum()) for name, units in plan.kept.items()},
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(path: Path, folder: Path, seeds: int, minutes: float) -> None:
    """Measure what is missing, seed by seed, until the minutes are over."""
    cells = [
        (budget, seed, choice)
        for budget in BUDGETS
        for seed in range(seeds)
        for choice in (("dense", ""), *CHOICES)
        if choice[0] != "dense" or budget == BUDGETS[0]
    ]
    keys = [
        {"seed": seed, "criterion": choice[0], "scope": choice[1], "budget": budget}
        for budget, seed, choice in cells
    ]
    done = rows_of(path)
    missing = [key for key in keys if not any(row.items() >= key.items() for row in done)]
    if not missing or minutes <= 0:
        return
    end, (data, test) = time.monotonic() + 60 * minutes, pictures()
    for number, key in enumerate(missing):
        if time.monotonic() > end:
            print(f"not begun: {len(missing) - number} cells", file=sys.stderr)
            return
        seed, budget, choice = key["seed"], key["budget"], (key["criterion"], key["scope"])
        start = time.monotonic()
        model = parent(seed, data, folder)
        if choice[0] == "dense":
            measured = {**trained_on(model, data, test, seed), "share": 1.0}
        else:
            measured = smaller(model, data, test, seed, choice, budget)
        with path.open("a") as file:
            file.write(json.dumps({**key, **measured, "seconds": time.monotonic() - start}) + "\n")
        print(f"{key}: {measured['accuracy']:.4f}", file=sys.stderr, flush=True)


def with_milliseconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the latency of their networks, with 64 pictures."""
    x = jax.numpy.zeros((64, 3, 32, 32))
    function, tree = jaxarch.torch.as_function(ResNet20().eval())
    groups = jaxarch.structure.axis_groups(function, tree, x)
    found = []
    for row in rows:
        counts = row.get("kept", {})
        kept = {name: np.arange(groups.groups[name].size) < count for name, count in counts.items()}
        found.append(row | {"ms": 1e3 * latency(groups.smaller(kept), groups.cut(tree, kept), (x,))})
    return found


def by_choice(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each criterion and scope, in the order of seeds; the dense networks come first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        found.setdefault(f"{row['criterion']}, {row['scope']}".rstrip(", "), []).append(row)
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a row for each choice: accuracies, the pairs that are ahead of random channels, sizes."""
    lines = [
        "| channels | accuracy: median [least, most] | before | ahead of random | parameters | ms |",
        "|---|---|---|---|---|---|",
    ]
    found, whole = by_choice(rows), sum(leaf.numel() for leaf in ResNet20().parameters())
    random = {row["seed"]: row["accuracy"] for row in found.get("random, global", [])}
    for name, of_name in found.items():
        values, before = ([row[key] for row in of_name] for key in ("accuracy", "before"))
        pairs = [row["accuracy"] > random[row["seed"]] for row in of_name if row["seed"] in random]
        parameters = np.median([row.get("parameters", whole) for row in of_name])
        lines.append(
            f"| {name} | {np.median(values):.3f} [{min(values):.3f}, {max(values):.3f}] "
            f"| {np.median(before):.3f} | {sum(pairs)} of {len(pairs)} | {parameters:,.0f} "
            f"| {np.median([row['ms'] for row in of_name]):.0f} |"
        )
    return lines


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy against multiply-adds and milliseconds: medians, with bars from the least to the most."""
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    dense, *others = by_choice(rows).items()
    whole = _point(dense[1])
    for (name, of_name), marker in zip(others, "os^Dvp", strict=False):
        budgets = [[row for row in of_name if row["budget"] == budget] for budget in reversed(BUDGETS)]
        points = [_point(of_budget) for of_budget in budgets if of_budget] + [whole]
        accuracies = np.array([point["accuracy"] for point in points])
        apart = np.abs(accuracies[:, 1:] - accuracies[:, :1]).T
        for axis, x in zip(axes, ("share", "ms"), strict=True):
            places = [point[x] for point in points]
            axis.errorbar(places, accuracies[:, 0], apart, marker=marker, ms=4, lw=1, label=name)
    axes[0].set(xlabel="multiply-adds, % of the dense network's", ylabel="test accuracy")
    axes[1].set(xlabel="milliseconds for 64 pictures")
    axes[1].legend(loc="lower right", fontsize="small")
    drawn.savefig(path, dpi=150)


def _point(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of some seeds; for accuracies also the least and the most."""
    accuracies = [row["accuracy"] for row in rows]
    return {
        "share": 100 * np.median([row["share"] for row in rows]),
        "ms": np.median([row["ms"] for row in rows]),
        "accuracy": (np.median(accuracies), min(accuracies), max(accuracies)),
    }


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROWS, help="a file of rows, which is added to")
    parser.add_argument("--parents", type=Path, default=Path("parents"), help="a folder of trained networks")
    parser.add_argument("--seeds", type=int, default=3, help="number of parents")
    parser.add_argument("--minutes", type=float, default=1e9, help="nothing is begun after so many")
    parser.add_argument("--figure", type=Path, help="a file for the figure")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run(arguments.results, arguments.parents, arguments.seeds, arguments.minutes)
    rows = with_milliseconds(rows_of(arguments.results))
    for budget in BUDGETS:
        if of_budget := [row for row in rows if row["budget"] == budget]:
            print(f"{budget} of the multiply-adds, {MORE_EPOCHS} epochs after {EPOCHS}:")
            print("\n".join(table(of_budget)))
    if arguments.figure:
        figure(rows, arguments.figure)


if __name__ == "__main__":
    main()
