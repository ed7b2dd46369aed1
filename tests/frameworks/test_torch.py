"""PyTorch modules become functions and smaller modules. These tests need the extra `torch`."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import jaxarch.torch
from jaxarch import ArgumentError, ResultWarning


class Residual(nn.Module):
    """A residual block with a grouped convolution, a group norm and a shared weight."""

    def __init__(self):
        super().__init__()
        self.into = nn.Conv2d(8, 16, 1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm = nn.BatchNorm2d(16)
        self.out = nn.Conv2d(16, 8, 1, bias=False)

    def forward(self, x):
        return x + self.out(torch.relu(self.norm(self.depthwise(self.into(x)))))


class Attention(nn.Module):
    """Attention with its number of heads in an attribute, as in timm."""

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads, self.each, self.inner = heads, width // heads, width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, self.heads, self.each).permute(2, 0, 3, 1, 4)
        values = nn.functional.scaled_dot_product_attention(*qkv)
        return self.out(values.transpose(1, 2).reshape(*x.shape[:2], self.inner))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Residual(), Residual(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )


def drawn(model):
    """A module in evaluation mode whose buffers are drawn too."""
    torch.manual_seed(0)
    for name, tensor in model.named_buffers():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
        elif name.endswith("running_mean"):
            tensor.normal_()
    return model.eval()


@pytest.fixture
def model():
    return drawn(convolutions())


@pytest.fixture
def x():
    return torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def outputs(model, *inputs):
    with torch.no_grad():
        return model(*inputs).numpy()


def masked(model, plan):
    """The module with zeros at the connections of the units that go."""
    model = copy.deepcopy(model)
    kept = plan.groups.mask(plan.kept)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in kept:
                tensor *= torch.from_numpy(np.asarray(kept[name]))
    return model


def test_the_function_computes_what_the_module_does(model, x):
    function, tree = jaxarch.torch.as_function(model)
    assert np.allclose(jax.jit(function)(tree, jnp.asarray(x.numpy())), outputs(model, x), atol=1e-5)


def test_the_arrays_are_copies(model):
    _, tree = jaxarch.torch.as_function(model)
    before = np.array(tree["0.weight"])
    with torch.no_grad():
        model[0].weight.add_(1)
    assert np.array_equal(tree["0.weight"], before)


def test_a_plan_returns_a_module_that_computes_what_the_masked_one_does(model, x):
    plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds")
    small = plan.apply()
    assert plan.after.multiply_adds <= 0.5 * plan.before.multiply_adds
    more = torch.randn(3, 3, 4, 4)
    assert np.allclose(outputs(small.model, more), outputs(masked(model, plan), more), atol=1e-5)
    sizes = [layer.weight.shape[0] for layer in small.model.modules() if isinstance(layer, nn.Conv2d)]
    assert sizes != [layer.weight.shape[0] for layer in model.modules() if isinstance(layer, nn.Conv2d)]


def test_layers_carry_their_new_sizes(model, x):
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply().model
    for layer in small.modules():
        if isinstance(layer, nn.Conv2d):
            assert (layer.out_channels, layer.in_channels // layer.groups) == layer.weight.shape[:2]
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.num_features == layer.weight.shape[0]


def test_a_smaller_module_trains_and_shares_no_memory(model, x):
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    before = [np.array(leaf) for leaf in jax.tree.leaves(small.tree)]
    whole = outputs(model, x)
    small.model.train()
    optimizer = torch.optim.SGD(small.model.parameters(), lr=0.1)
    small.model(x).square().sum().backward()
    optimizer.step()
    assert all(map(np.array_equal, before, jax.tree.leaves(small.tree)))
    assert np.array_equal(outputs(model, x), whole)


def test_the_state_dict_loads_into_a_module_of_the_smaller_sizes(model, x):
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    other = copy.deepcopy(small.model)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.zero_()
    other.load_state_dict(small.state_dict)
    assert np.array_equal(outputs(other, x), outputs(small.model, x))


def test_heads_that_an_attribute_counts_are_cut():
    model = drawn(nn.Sequential(nn.Linear(5, 12), Attention(), nn.Linear(12, 2)))
    x = torch.randn(2, 7, 5)
    plan = jaxarch.torch.plan(model, x, budget="70% multiply_adds", units="heads")
    small = plan.apply()
    assert small.model[1].heads < 3
    assert np.allclose(outputs(small.model, x), outputs(masked(model, plan), x), atol=1e-5)


def test_a_module_that_fixes_its_heads_says_so_and_leaves_a_function_and_tensors():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(12, 3, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x, need_weights=False)[0]

    model, x = drawn(Fixed()), torch.randn(2, 7, 12)
    small = jaxarch.torch.plan(model, x, budget="70% multiply_adds").apply()
    assert small.model is None
    assert "leave heads whole" in small.why and "no smaller model" in str(small)
    assert small.state_dict["inner.in_proj_weight"].shape[0] < 36
    made = {name: jnp.asarray(tensor.numpy()) for name, tensor in small.state_dict.items()}
    assert small.function(made, jnp.asarray(x.numpy())).shape == (2, 7, 12)


def test_a_shared_weight_stays_shared():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    model[2].weight, model[2].bias = nn.Parameter(model[2].weight), model[0].bias
    small = jaxarch.torch.plan(drawn(model), torch.ones(1, 4), budget="50% parameters").apply()
    assert small.model[2].bias is small.model[0].bias
    assert small.model[0].out_features == small.model[2].out_features < 8


def test_a_mean_over_units_divides_by_the_new_number_and_is_reported():
    model = drawn(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)))
    x = torch.randn(3, 4)
    with pytest.warns(ResultWarning, match="of `model` differ"):
        small = jaxarch.torch.plan(model, x, budget="50% multiply_adds", units="features").apply()
    assert small.model[1].normalized_shape == (4,)


def test_what_does_nothing_goes_exactly(model, x):
    with torch.no_grad():
        model[1].out.weight[:, 4:] = 0
    small = jaxarch.torch.shrink(model, x)
    assert small.model[1].into.out_channels == small.model[1].depthwise.groups == 4
    assert np.allclose(outputs(small.model, x), outputs(model, x), atol=1e-5)


def test_scores_are_tensors_by_name(model, x):
    model(x).square().sum().backward()
    taylor = {name: (p * p.grad).abs() for name, p in model.named_parameters()}
    plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds", scores=taylor, scope="global")
    name = "1.into.bias[0]" if "1.into.bias[0]" in plan.scores else next(iter(plan.scores))
    assert np.isfinite(plan.scores[name]).all()
    with pytest.raises(ArgumentError, match="no parameter"):
        jaxarch.torch.plan(model, x, budget="50% multiply_adds", scores={"other": torch.ones(3)})


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_an_optimizer_goes_on_with_the_cut_state(model, x, make):
    settings = {"momentum": 0.9} if make is torch.optim.SGD else {}
    optimizer = make(model.parameters(), lr=1e-3, **settings)
    model(x).square().sum().backward()
    optimizer.step()
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    after = make(small.model.parameters(), lr=1e-3, **settings)
    after.load_state_dict(small.optimizer_state(optimizer))
    kept = small.groups.mask(small.kept)
    first = model[0].weight, small.model[0].weight
    for name, value in optimizer.state[first[0]].items():
        now = after.state[first[1]][name]
        if value.numel() > 1:
            assert np.array_equal(now.flatten(), value.flatten()[kept["0.weight"].ravel()])
    small.model(x).square().sum().backward()
    after.step()
    with pytest.raises(ArgumentError, match="not of the original"):
        small.optimizer_state(after)


def test_a_state_of_other_shapes_is_refused(model, x):
    optimizer = torch.optim.Adafactor(model.parameters())
    model(x).square().sum().backward()
    optimizer.step()
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    with pytest.raises(ArgumentError, match="begin with a new optimizer"):
        small.optimizer_state(optimizer)


def test_modules_that_cannot_be_read_are_refused(model, x):
    with pytest.raises(ArgumentError, match=r"call model.eval\(\)"):
        jaxarch.torch.as_function(convolutions().train())
    with pytest.raises(ArgumentError, match="expected a PyTorch module, got"):
        jaxarch.torch.as_function(3)
    with pytest.raises(ArgumentError, match="64"):
        jaxarch.torch.as_function(nn.Linear(2, 2).double().eval())
    with pytest.raises(ArgumentError, match="torchax cannot translate it"):
        jaxarch.torch.plan(model, torch.ones(1, 7), budget="50% parameters")


def test_half_precision_keeps_its_dtype(x):
    model = drawn(convolutions()).bfloat16()
    small = jaxarch.torch.plan(model, x.bfloat16(), budget="50% multiply_adds").apply()
    assert {tensor.dtype for tensor in small.state_dict.values()} == {torch.bfloat16, torch.int64}
    assert small.model is not None


def test_an_attribute_that_only_looks_like_a_size_stays():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.longest = 16, 16
            self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            x = torch.relu(self.into(x[:, : self.longest]))
            return self.out(x.reshape(*x.shape[:2], self.hidden)).mean(1)

    model = drawn(Sequence())
    plan = jaxarch.torch.plan(model, torch.randn(2, 6, 8), budget="50% multiply_adds")
    small = plan.apply().model
    assert (small.hidden, small.longest) == (8, 16)
    longer = torch.randn(2, 24, 8)
    assert np.allclose(outputs(small, longer), outputs(masked(model, plan), longer), atol=1e-5)


@pytest.mark.parametrize("last", [1, 8])
def test_layers_of_a_class_may_take_the_smaller_and_the_larger_of_two_sizes_or_their_own(last):
    class Padded(nn.Module):
        def __init__(self, before):
            super().__init__()
            self.kernel, self.added = nn.Linear(before, 2 * before), before

        def forward(self, x):
            return torch.relu(self.kernel(x)) + nn.functional.pad(x, (0, self.added))

    model = drawn(nn.Sequential(nn.Linear(6, 4), Padded(4), Padded(8), nn.Linear(16, 3)))
    kept = {
        "0.bias[0]": np.arange(4) < 2,
        "1.kernel.bias[0]": np.arange(4) < 3,
        "2.kernel.bias[0]": np.arange(8) < last,
    }
    small = jaxarch.torch.plan(model, torch.randn(2, 6), kept=kept).apply().model
    assert [small[1].added, small[2].added] == [3, last]


def test_several_attributes_of_several_layers_change_together():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.width, self.heads, self.inner, self.hidden = 32, 4, 32, 48
            self.values, self.out = nn.Linear(32, 32), nn.Linear(32, 32)
            self.up, self.down = nn.Linear(32, 96), nn.Linear(48, 32)

        def forward(self, x):
            values = self.values(x.reshape(*x.shape[:2], self.width))
            values = values.reshape(*x.shape[:2], self.heads, self.inner // self.heads)
            weights = torch.einsum("bqhd,bkhd->bhqk", values, values).softmax(-1)
            x = self.out(torch.einsum("bhqk,bkhd->bqhd", weights, values).reshape(*x.shape[:2], self.inner))
            x = self.up(x)
            return self.down(torch.sigmoid(x[..., : self.hidden]) * x[..., self.hidden :])

    model = drawn(nn.Sequential(Block(), Block()))
    kept = {"0.out.weight[1]": np.arange(4) < 2, "1.out.weight[1]": np.arange(4) < 2}
    kept |= {"0.down.weight[1]": np.arange(48) < 24, "1.down.weight[1]": np.arange(48) < 24}
    small = jaxarch.torch.plan(model, torch.randn(2, 5, 32), kept=kept).apply().model
    assert [(block.width, block.heads, block.inner, block.hidden) for block in small] == [(32, 2, 16, 24)] * 2


def test_a_translation_that_computes_something_else_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ConvTranspose2d(8, 8, 2, stride=2, groups=4)).eval()
    x = torch.randn(2, 3, 4, 4)
    with pytest.raises(ArgumentError, match="something else than PyTorch"):
        jaxarch.torch.plan(model, x, budget="70% multiply_adds").apply()


def test_neither_the_module_nor_its_inputs_change():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 4)
            self.calls, self.last, self.cache = 0, None, {}
            self.register_buffer("count", torch.zeros((), dtype=torch.int32))

        def forward(self, x):
            self.calls += 1
            self.count += 1
            self.last = torch.relu_(self.into(torch.relu_(x)))
            if "bias" not in self.cache:
                self.cache["bias"] = self.out.bias * 2
            return self.out(self.last) + self.cache["bias"]

    model, x = Counting().eval(), torch.randn(3, 8)
    before = x.clone()
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    assert torch.equal(x, before)
    assert model.calls == 0 and model.last is None and model.count == 0 and not model.cache
    assert small.model.calls == 0 and small.model.count == 0


def test_lists_of_parameters_have_the_smaller_ones(x):
    class Regularized(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 4)
            self.penalized = [self.into.weight]

        def forward(self, x):
            return self.out(torch.relu(self.into(x)))

    small = jaxarch.torch.plan(Regularized().eval(), torch.randn(2, 8), budget="50% parameters").apply()
    assert small.model.penalized[0] is small.model.into.weight


def test_parameters_that_only_training_reads_are_named():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out, self.aside = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x):
            hidden = torch.relu(self.into(x))
            return (self.out(hidden), self.aside(hidden)) if self.training else self.out(hidden)

    plan = jaxarch.torch.plan(Auxiliary().eval(), torch.randn(2, 8), budget="50% multiply_adds")
    with pytest.warns(ResultWarning, match=r"no output depends on aside\.bias, aside\.weight"):
        plan.apply()


def test_a_module_that_draws_random_numbers_is_refused_and_leaves_torchax_usable(model, x):
    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 4)

        def forward(self, x):
            return self.out(nn.functional.dropout(x, 0.5))

    with pytest.raises(ArgumentError, match="draws random numbers"):
        jaxarch.torch.plan(Random().eval(), torch.randn(2, 8), budget="50% parameters")
    assert jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply().model is not None


def test_tensors_that_a_call_makes_are_translated():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.into, self.out = nn.Embedding(9, 8), nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return {"logits": self.out(torch.relu(self.into(x + self.table(torch.arange(len(x)))))), "n": 3}

    small = jaxarch.torch.plan(Positions().eval(), torch.randn(5, 8), budget="50% multiply_adds").apply()
    assert small.model is not None, small.why


def test_a_pruned_layer_has_the_sizes_of_its_arrays():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    prune.ln_structured(model[2], "weight", 0.5, n=1, dim=1)
    small = jaxarch.torch.shrink(model.eval(), torch.randn(2, 8))
    assert small.model[0].out_features == small.model[2].in_features == 8
    assert small.model[2].weight_orig.shape == (4, 8)


def test_an_optimizer_is_left_as_it_was():
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).eval(), torch.randn(2, 8)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict()["state"][3])
    small = jaxarch.torch.plan(model, x, budget="50% multiply_adds").apply()
    after = torch.optim.Adam(small.model.parameters())
    after.load_state_dict(small.optimizer_state(optimizer))
    small.model(x).sum().backward()
    after.step()
    assert all(torch.equal(before[name], value) for name, value in optimizer.state_dict()["state"][3].items())


def test_arrays_of_other_libraries_are_refused_as_inputs(model, x):
    with pytest.raises(ArgumentError, match=r"use torch\.from_numpy"):
        jaxarch.torch.plan(model, x.numpy(), budget="50% parameters")
    with pytest.raises(ArgumentError, match=r"inputs: a tensor is torch\.float64"):
        jaxarch.torch.plan(model, x.double(), budget="50% parameters")
    with pytest.raises(ArgumentError, match="optimizer: expected"):
        jaxarch.torch.plan(model, x, budget="50% parameters").apply().optimizer_state(None)


def test_norms_that_turn_their_inputs_have_the_size_of_their_weights():
    class Turned(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.movedim(1, -1)).movedim(-1, 1)

    layers = nn.Conv2d(3, 8, 1), Turned(8), nn.Conv2d(8, 12, 1), nn.InstanceNorm2d(12), nn.Conv2d(12, 2, 1)
    model, x = drawn(nn.Sequential(*layers)), torch.randn(2, 3, 5, 7)
    plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds", units=("channels", "features"))
    with pytest.warns(ResultWarning, match="of `model` differ"):
        small = plan.apply().model
    assert small[1].normalized_shape == (small[0].out_channels,) and small[0].out_channels < 8
    assert small[3].num_features == small[2].out_channels < 12


def test_a_plan_is_applied_to_the_weights_that_it_was_made_for(model, x):
    plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds")
    expected = outputs(masked(model, plan), x)
    with torch.no_grad():
        model[0].weight.add_(1)
    assert np.allclose(outputs(plan.apply().model, x), expected, atol=1e-5)
