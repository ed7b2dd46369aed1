"""Which PyTorch models can be made smaller in one plain call, and does the result compute the right thing?

    pip install '.[torch]' timm torch-pruning
    python benchmarks/pytorch_models.py                     # some three hours on CPU, resumable
    python benchmarks/pytorch_models.py --models resnet18 timm/mixer_s32_224
    python benchmarks/pytorch_models.py --page docs/coverage.md

The models are those of torchvision that classify or segment pictures or classify videos, and small models of
timm, one a family. None was made for jaxarch. They have random weights: those of their constructors, with
normal numbers where a whole array would be 0, and random batch norm statistics. Rows are stored in
docs/results/pytorch_models.jsonl.

- jaxarch: `jaxarch.torch.plan(model, x, budget="50% multiply_adds")` and its `apply()`. The smaller model is
  compared with the masked one on batches of 2 and of 3 examples. If there is no smaller module, since the
  code fixes the number of heads, a second plan leaves heads whole, with 75% of the multiply-adds.
- Torch-Pruning: a `BasePruner` by magnitude with half of the channels of each layer, the classifier's outputs
  ignored, and a call of the model afterwards. It is told nothing else, such as numbers of heads.

Each model and each library has a process of its own, for three minutes at most, or ten for more than 150
million parameters, on a machine of 24 GB. Seconds are wall-clock time on one CPU core that other work may
share. XLA compiles without optimization, since each program runs once.

The answer is docs/coverage.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parents[1] / "docs/results/pytorch_models.jsonl"
PATIENCE, PATIENCE_FOR_LARGE, LARGE = 180, 600, 150e6
QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
TIMM = [
    "resnetv2_50",
    "vit_tiny_patch16_224",
    "convnextv2_atto",
    "efficientnet_lite0",
    "mobilenetv4_conv_small",
    "nfnet_f0",
    "mixer_s32_224",
    "resmlp_12_224",
    "coatnet_0_224",
    "levit_128s",
    "edgenext_xx_small",
    "poolformer_s12",
    "pvt_v2_b0",
    "cait_xxs24_224",
    "xcit_nano_12_p16_224",
    "ghostnet_100",
    "repvgg_a0",
    "dla34",
    "hrnet_w18_small",
    "res2net50_26w_4s",
    "mobilevit_xxs",
    "fastvit_t8",
    "eva02_tiny_patch14_224",
    "cspresnet50",
    "dpn68",
    "inception_v4",
    "selecsls42",
    "ese_vovnet19b_dw",
    "twins_pcpvt_small",
    "skresnet18",
    "rexnet_100",
    "mambaout_femto",
    "davit_tiny",
    "crossvit_tiny_240",
    "mobileone_s0",
]
NOT_ASKED = ("rcnn", "ssd", "retinanet", "fcos", "raft", "quantized")


def size(name: str) -> int:
    """Return the number of parameters of a model of torchvision, and 0 for small models of timm."""
    import torchvision

    if name.startswith("timm/"):
        return 0
    return int(torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"])


def names() -> list[str]:
    """Return all models to try, small ones first."""
    import torchvision

    found = [name for name in torchvision.models.list_models() if not any(part in name for part in NOT_ASKED)]
    return [*sorted(found, key=size), *(f"timm/{name}" for name in TIMM)]


def made(name: str) -> tuple[Any, Any, int]:
    """Return a model with random weights, an input, and the number of its outputs."""
    import torch

    torch.manual_seed(0)
    if name.startswith("timm/"):
        import timm

        model, outputs = timm.create_model(name.removeprefix("timm/"), pretrained=False), 1000
        shape: tuple[int, ...] = model.default_cfg["input_size"]
    else:
        import torchvision

        arguments: dict[str, Any] = {"weights": None}
        if segments := any(part in name for part in ("deeplab", "fcn", "lraspp")):
            arguments["weights_backbone"] = None
        if name in ("googlenet", "inception_v3"):
            arguments["init_weights"] = False
        model = torchvision.models.get_model(name, **arguments)
        weights = torchvision.models.get_model_weights(name).DEFAULT
        outputs = 21 if segments else len(weights.meta["categories"])
        frames = (16,) if outputs == 400 else ()
        side = 64 if frames and not name.startswith(("s3d", "mvit")) else 224
        shape = (3, *frames, side, side)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.numel() > 1 and not tensor.any():
                tensor.normal_(std=0.05)
        for layer_name, tensor in model.named_buffers():
            if layer_name.endswith("running_mean"):
                tensor.normal_(std=0.1)
            elif layer_name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
    return model.eval(), torch.randn(2, *shape), outputs


def by_jaxarch(name: str) -> dict[str, Any]:
    """Return what became of a model with jaxarch."""
    import jaxarch.torch

    model, x, _ = made(name)
    row = planned(model, x, "50% multiply_adds", None)
    kinds = [kind for kind in row["kinds"] if kind in ("neurons", "channels")]
    if not row["module"] and "heads" in row["kinds"] and kinds:
        try:
            row["without heads"] = planned(model, x, "75% multiply_adds", kinds)
        except jaxarch.ArgumentError as error:
            row["without heads"] = {"module": False, "why": str(error)}
    return row


def planned(model: Any, x: Any, budget: str, units: Any) -> dict[str, Any]:
    """Return what became of a model with one plan."""
    import jaxarch.torch

    begun = time.perf_counter()
    plan = jaxarch.torch.plan(model, x, budget=budget, units=units)
    planned = time.perf_counter() - begun
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = plan.apply()
    return {
        "parameters": plan.before.parameters,
        "groups": len(plan.groups.groups),
        "kinds": sorted({group.kind for group in plan.groups.groups.values()}),
        "multiply_adds": plan.before.multiply_adds,
        "share": plan.after.multiply_adds / plan.before.multiply_adds,
        "seconds": planned,
        "apply seconds": time.perf_counter() - begun - planned,
        "difference": small.difference,
        "module": small.model is not None,
        "why": small.why,
        "not cut": plan.groups.not_cut(),
    }


def by_torch_pruning(name: str) -> dict[str, Any]:
    """Return what became of a model with Torch-Pruning."""
    import torch
    import torch_pruning

    model, x, outputs = made(name)
    ignored = [
        layer
        for layer in model.modules()
        if getattr(layer, "out_features", None) == outputs or getattr(layer, "out_channels", None) == outputs
    ]
    before, _ = torch_pruning.utils.count_ops_and_params(model, x[:1])
    begun = time.perf_counter()
    pruner = torch_pruning.pruner.BasePruner(
        model,
        x,
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        pruning_ratio=0.5,
        ignored_layers=ignored,
    )
    pruner.step()
    seconds = time.perf_counter() - begun
    with torch.no_grad():
        model(x)
    after, _ = torch_pruning.utils.count_ops_and_params(model, x[:1])
    return {"seconds": seconds, "share": after / before}


LIBRARIES = {"jaxarch": by_jaxarch, "Torch-Pruning": by_torch_pruning}


def one(name: str, library: str) -> dict[str, Any]:
    """Try a model with a library in a process of its own; a failure is a row too."""
    command = [sys.executable, __file__, "--one", name, "--library", library]
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"}
    patience = PATIENCE if size(name) <= LARGE else PATIENCE_FOR_LARGE
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {patience} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    if done.returncode == -signal.SIGKILL:
        return {"failed": "killed, as for want of memory"}
    raised = re.findall(r"^[\w.]*(?:Error|Exception)\b.*$", done.stderr, flags=re.M)
    return {"failed": (raised or [f"exit status {done.returncode}"])[-1][:300]}


def rows_of(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what was measured: a row for a library and a model."""
    rows: dict[str, dict[str, dict[str, Any]]] = {library: {} for library in LIBRARIES}
    for line in results.read_text().splitlines() if results.exists() else ():
        row = json.loads(line)
        rows[row["library"]][row["model"]] = row
    return rows


def page(rows: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the page on all models that both libraries were tried on."""
    ours, theirs = rows["jaxarch"], rows["Torch-Pruning"]
    tried = [name for name in names() if name in ours and name in theirs]
    lines = [OPENING, *_summary(ours, theirs, tried), "", COLUMNS]
    lines += [f"| {' | '.join(_cells(name, ours[name], theirs[name]))} |" for name in tried]
    failures = {name: ours[name]["failed"] for name in tried if "failed" in ours[name]}
    lines += ["", "## Failures", "", *(f"- {name}: `{why}`" for name, why in failures.items())]
    others = {name: theirs[name]["failed"] for name in tried if "failed" in theirs[name]}
    lines += ["", "Of Torch-Pruning:", "", *(f"- {name}: `{why}`" for name, why in others.items()), ""]
    return "\n".join(lines)


OPENING = """\
# Which PyTorch models

This page tells which models of torchvision and timm jaxarch makes smaller. Each was cut to half of its multiply-adds by
`jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()`, without a list of layers or numbers of heads. Weights
are random. `python benchmarks/pytorch_models.py` writes the page; its docstring has the settings.
"""  # noqa: E501
COLUMNS = """\
- *Difference* is the largest difference of an output from the masked model's, in units of the largest output, for 2 and
  for 3 examples. Beyond rounding, units are normalized together with some that are gone, and `apply` warns.
- *Smaller module* is `yes` for an ordinary module with smaller layers. `heads whole` needs `units=` without heads, to 75%
  of the multiply-adds. With `function` the module's code fixes sizes: the JAX function and the state dict are smaller.
- *Seconds* are those of the plan and of `apply`, which compiles the dense and the smaller model to compare them. They
  were measured on one CPU core that other work shared.
- The last columns are those of one plain call of Torch-Pruning 1.6.1, for half of the channels of each layer. It neither
  compiles nor compares, so its seconds are no measure of the same work.

| model | parameters | groups | difference | smaller module | seconds | Torch-Pruning | seconds |
|---|---|---|---|---|---|---|---|"""  # noqa: E501


def _module(row: dict[str, Any]) -> str:
    """Return how the smaller model can be had."""
    if row["module"]:
        return "yes"
    return "heads whole" if row.get("without heads", {}).get("module") else "function"


def _cells(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    other = [
        "failed" if "failed" in theirs else "yes",
        f"{theirs['seconds']:.1f}" if "seconds" in theirs else "",
    ]
    if "failed" in ours:
        return [name, "", "", "", "failed", "", *other]
    return [
        name,
        f"{ours['parameters'] / 1e6:.1f} M",
        str(ours["groups"]),
        f"{ours['difference']:.0e}",
        _module(ours),
        f"{ours['seconds']:.1f} + {ours['apply seconds']:.0f}",
        *other,
    ]


def _summary(ours: dict[str, Any], theirs: dict[str, Any], tried: list[str]) -> list[str]:
    """Return the counts for both collections."""
    lines = []
    for place, those in (
        ("torchvision", [name for name in tried if not name.startswith("timm/")]),
        ("timm", [name for name in tried if name.startswith("timm/")]),
    ):
        made = [ours[name] for name in those if "failed" not in ours[name]]
        if not made:
            continue
        modules = [_module(row) for row in made]
        shares = [row["share"] for row in made]
        lines += [
            f"- {place}: {len(made)} of {len(those)} models became smaller in one plain call, to "
            f"{min(shares):.2%} to {max(shares):.2%} of their multiply-adds. Of these, "
            f"{modules.count('yes')} became ordinary modules, {modules.count('heads whole')} do so if heads "
            f"stay whole, and {modules.count('function')} remain functions. The largest difference from a "
            f"masked model is {max(row['difference'] for row in made):.0e} of the largest output. "
            f"Torch-Pruning cut {sum('failed' not in theirs[name] for name in those)}."
        ]
    return lines


def main() -> None:
    """Try all models that have no row yet, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROWS, help="a file of rows, which is added to")
    parser.add_argument("--models", nargs="*", help="some models only")
    parser.add_argument("--page", type=Path, help="write this page from the results instead")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--library", choices=LIBRARIES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(LIBRARIES[arguments.library](arguments.one)))
        return
    rows = rows_of(arguments.results)
    if arguments.page:
        arguments.page.write_text(page(rows))
        return
    for name in arguments.models or names():
        for library in LIBRARIES:
            if name not in rows[library]:
                row = {"model": name, "library": library, **one(name, library)}
                with arguments.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
