"""Training as a differentiable function of row weights: against `pretrain` itself and against finite differences."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from krepes import _autodiff
from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import SGD, AdamW, Steps
from krepes.encoders.losses import LOSSES, weighted_mean
from krepes.encoders.pretrain import make_twins, pretrain
from krepes.encoders.recording import Recording
from krepes.encoders.twins import Bootstrap, Twins
from krepes.encoders.weighted_norm import WeightedBatchNorm
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.influence import reverse
from krepes.influence.reverse import differentiate, forward
from krepes.influence.stepsize import NEAR, RISE, _falls, near_step_size
from krepes.influence.warm import warm_steps
from krepes.views import GaussianNoise, ViewStream

EVERY = [*LOSSES, "byol"]


def own(Z_a, Z_b, w=None):
    """A loss of one's own: distances of unit rows, and a pull of the mean to the origin."""
    U_a, U_b = (torch.nn.functional.normalize(Z, dim=1) for Z in (Z_a, Z_b))
    return weighted_mean((U_a - U_b).square().sum(1), w) + weighted_mean(U_a, w).square().sum()


OWN = [*EVERY, own]


def encoder(norm=True, out=4):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(6) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(5, 6, bias=not norm), middle, nn.Tanh(), nn.Linear(6, out)).double()


@pytest.fixture
def X(generator):
    return torch.randn(12, 5, generator=generator, dtype=torch.float64)


def small_steps(X, loss, rule, T=7, norm=True):
    def views(t):
        draw = torch.Generator().manual_seed(t)
        chosen = torch.randperm(12, generator=draw)[:8]
        noise = torch.randn(2, 8, 5, generator=draw, dtype=torch.float64)
        return chosen, X[chosen] + 0.2 * noise

    Y = torch.empty(1, 4).double()
    net = encoder(norm)
    compare = loss if callable(loss) else LOSSES.get(loss)
    twins = Bootstrap(net, Y, (3,), 0.9) if loss == "byol" else Twins(net, Y, (3,), compare)
    return Steps(twins.train(), views, rule, T, 12, tau=lambda t: 0.9)


def outcomes_of(X, net):
    net = copy.deepcopy(net).eval()

    def measure(state):
        own = {name.removeprefix("encoder."): x for name, x in state.items() if name.startswith("encoder.")}
        with WeightedBatchNorm(torch.ones(0)):
            Z = _autodiff.with_parameters(net, own)(X)
        return torch.stack([Z[0] @ Z[1], Z[3].sin().sum(), (Z[5] - Z[6]).square().sum()])

    return measure


def by_differences(steps, measure, size):
    """Five points for each weight: the error is of fourth order, so that the step may be far above round-off."""
    rows = []
    for i in range(steps.n):
        e = torch.zeros(steps.n).double()
        e[i] = size
        f = {k: measure(forward(steps, steps.start(), 1 + k * e, 99)[-1]).detach() for k in (-2, -1, 1, 2)}
        rows.append((8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * size))
    return torch.stack(rows)


RULES = {"sgd": SGD(0.005), "adamw": AdamW(lambda t: 1e-2 / (1 + t), 1e-2)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", OWN)
def test_derivative_in_the_weights_is_that_of_finite_differences(loss, rule, X):
    steps = small_steps(X, loss, RULES[rule])
    measure = outcomes_of(X, steps.twins.encoder)
    found = differentiate(steps, measure, progress=False).dw
    expected = by_differences(steps, measure, 1e-4)
    # Adam divides by the size of gradients, and some are nearly zero: there round-off is amplified.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("t", [0, 5])
def test_derivative_of_an_adamw_step_is_that_of_its_formula_by_autograd(t, generator):
    """Some entries have moments of zero, where the root would have no derivative."""
    rule, (b1, b2), eps = AdamW(lambda t: 1e-2 / (1 + t), 0.1), (0.9, 0.999), 1e-8
    made = [torch.randn(9, generator=generator, dtype=torch.float64) for _ in range(4)]
    made[1][:3], made[2][:3], made[3][:2] = 0.0, 0.0, 0.0
    theta, m, v, g = (x.requires_grad_() for x in (made[0], made[1], made[2].square().detach(), made[3]))
    m_after, v_after = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    root = (v_after + 1e-24).sqrt() / (1 - b2 ** (t + 1)) ** 0.5 + eps
    plain = theta * (1 - rule.lr(t) * 0.1) - rule.lr(t) / (1 - b1 ** (t + 1)) * m_after / root, m_after, v_after
    after, moments = rule.update(t, {"x": theta}, {"x": g}, {"first/x": m, "second/x": v})
    ours = after["x"], moments["first/x"], moments["second/x"]
    along = [torch.randn(9, generator=generator, dtype=torch.float64) for _ in range(3)]
    for found, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(found, expected)
    pulled = [torch.autograd.grad(of, (theta, m, v, g), along, retain_graph=True) for of in (ours, plain)]
    for found, expected in zip(*pulled, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", sorted(set(EVERY) - {"vicreg"}))
def test_scaling_all_weights_changes_nothing(loss, X):
    """The sum of w_i dw_i is zero for a loss of means; VICReg's covariance has W - 1 below."""
    steps = small_steps(X, loss, SGD(0.05), norm=False)
    if loss == "byol":
        steps.twins.predictor = nn.Identity()  # its batch norm keeps an unbiased running variance, of no effect here
    found = differentiate(steps, outcomes_of(X, steps.twins.encoder), progress=False).dw
    assert float(found.sum(0).abs().max()) < 1e-10 * float(found.abs().sum(0).max())


@pytest.mark.parametrize("loss", EVERY)
def test_weight_zero_is_a_training_without_the_row(loss, X):
    """Full batches, so that the other rows meet the same views whether the row is there or not."""
    gone, rest = 4, [i for i in range(12) if i != 4]

    def views_of(rows):
        def views(t):
            noise = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
            return torch.arange(len(rows)), (X + 0.2 * noise)[:, rows]

        return views

    steps = small_steps(X, loss, RULES["adamw"])
    w = torch.ones(12).double()
    w[gone] = 0.0
    whole = Steps(steps.twins, views_of(list(range(12))), steps.rule, 7, 12, tau=steps.tau)
    less = Steps(steps.twins, views_of(rest), steps.rule, 7, 11, tau=steps.tau)
    found = forward(whole, whole.start(), w, 99)[-1]
    expected = forward(less, less.start(), torch.ones(11).double(), 99)[-1]
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", EVERY)
def test_replay_of_a_recording_ends_at_the_trained_weights(loss, X, tmp_path):
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=5)
    settings = dict(loss=loss, projector=(6, 3), epochs=4, lr=1e-2, seed=3, progress=False)
    trained = pretrain(nn.Sequential(encoder(), nn.Dropout(0.0)), stream, record=True, **settings)
    trained.recording.save(tmp_path / "r.safetensors")
    recording = Recording.load(tmp_path / "r.safetensors")
    twins = make_twins(nn.Sequential(encoder(), nn.Dropout(0.0)), stream, loss, (6, 3), 0.99)
    steps = recording.steps(twins, stream)
    last = forward(steps, steps.start(), torch.ones(12).double(), 99)[-1]
    for name, x in trained.encoder.state_dict().items():
        torch.testing.assert_close(last[f"encoder.{name}"], x, rtol=1e-6, atol=1e-8)
    with pytest.raises(InvalidInputError, match="not the recording"):
        pretrain(encoder(), stream, checkpoint=tmp_path / "c.safetensors", **settings)
        Recording.load(tmp_path / "c.safetensors")


def test_outcomes_in_groups_and_states_in_segments_change_nothing(X, monkeypatch):
    steps = small_steps(X, "vicreg", RULES["sgd"], T=9)
    measure = outcomes_of(X, steps.twins.encoder)
    expected = differentiate(steps, measure, progress=False)
    size = sum(x.numel() * x.element_size() for x in steps.start().values())
    few = differentiate(steps, measure, memory_budget=(4 + 3) * size + 5 * size, progress=False)
    monkeypatch.setattr(reverse.math, "isqrt", lambda T: 99)
    whole = differentiate(steps, measure, progress=False)
    for found in (few, whole):
        torch.testing.assert_close(found.dw, expected.dw, rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidInputError, match="the budget is 100"):
        differentiate(steps, measure, memory_budget=100, progress=False)


def test_killed_reverse_pass_goes_on_where_it_was(X, tmp_path, monkeypatch):
    steps = small_steps(X, "barlow_twins", SGD(0.05), T=9)
    measure = outcomes_of(X, steps.twins.encoder)
    expected = differentiate(steps, measure, progress=False)
    pull_back, seen = reverse.pull_back, []

    def dies(steps, t, *rest):
        seen.append(t)
        if t == 4:
            raise MemoryError("killed")
        return pull_back(steps, t, *rest)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(reverse, "pull_back", dies)
        differentiate(steps, measure, path=tmp_path / "r", progress=False)
    seen.clear()
    monkeypatch.setattr(reverse, "pull_back", lambda steps, t, *rest: (seen.append(t), pull_back(steps, t, *rest))[1])
    found = differentiate(steps, measure, path=tmp_path / "r", progress=False)
    assert seen == [5, 4, 3, 2, 1, 0]
    assert torch.equal(found.dw, expected.dw)
    other = small_steps(X, "barlow_twins", SGD(0.04), T=9)
    with pytest.raises(InvalidInputError, match="another training"):
        differentiate(other, measure, path=tmp_path / "r", progress=False)
    with pytest.raises(InvalidInputError, match="of other outcomes"):  # the same training, another question
        differentiate(steps, lambda state: 2 * measure(state), path=tmp_path / "r", progress=False)
    assert torch.equal(differentiate(steps, measure, path=tmp_path / "r", progress=False).dw, expected.dw)


# Warm


@pytest.mark.parametrize("loss", EVERY)
def test_step_size_is_the_largest_that_keeps_the_loss_falling_and_the_encoder_near(loss, X):
    net = encoder(norm=False)
    steps = warm_steps(net, ViewStream(X, GaussianNoise(0.2)), loss, lr=1.0, steps=12)
    found = near_step_size(steps, net)
    assert all(b <= a + (RISE - 1) * abs(a) for a, b in pairwise(found.losses)) and len(found.losses) == 7
    assert all(part <= most for part, most in zip(found.moved, NEAR, strict=True))
    assert all(float(size) > found.lr for size in found.refused)


def test_a_loss_below_zero_that_stands_still_is_replayed(X):
    stream = ViewStream(X, GaussianNoise(0.2))
    net = pretrain(encoder(norm=False), stream, loss="spectral", epochs=300, lr=1e-2, progress=False).encoder
    found = near_step_size(warm_steps(net, stream, "spectral", lr=1.0, steps=12), net)
    assert found.losses[0] < 0 and found.lr > 1e-6
    assert (
        _falls(-5.0, -5.0) and _falls(-5.0, -4.91) and not _falls(-5.0, -4.89)
    )  # a loss that stands still does not rise
    assert _falls(5.0, 5.09) and not _falls(5.0, 5.11)


def test_without_a_step_size_the_replay_is_refused(X):
    net = encoder(norm=False)
    steps = warm_steps(net, ViewStream(X, GaussianNoise(0.2)), "vicreg", lr=1.0, steps=6)
    with pytest.raises(InvalidInputError, match="at none of 2 step sizes.*at the smallest, 100: "):
        near_step_size(steps, net, (1e3, 1e2))


@pytest.mark.parametrize("loss", OWN)
def test_warm_replay_starts_at_the_encoder_and_leaves_it_alone(loss, X):
    net = encoder()
    before = copy.deepcopy(net.state_dict())
    steps = warm_steps(net, ViewStream(X, GaussianNoise(0.2)), loss, lr=0.01, steps=3)
    assert all(torch.equal(steps.start()[f"encoder.{name}"], x) for name, x in before.items())
    measure = outcomes_of(X, net)
    found = differentiate(steps, measure, progress=False).dw
    expected = by_differences(steps, measure, 1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert all(torch.equal(net.state_dict()[name], x) for name, x in before.items())


def test_convolutions_with_batch_norm_are_replayed(generator):
    """Running statistics are carried and differentiated too: the outcome sees them in eval mode."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    net = nn.Sequential(*layers, nn.Linear(2, 3)).double()
    X = torch.randn(12, 1, 6, 6, generator=generator, dtype=torch.float64)

    def views(t):
        draw = torch.Generator().manual_seed(t)
        chosen = torch.randperm(12, generator=draw)[:8]
        return chosen, X[chosen] + 0.3 * torch.randn(2, 8, 1, 6, 6, generator=draw, dtype=torch.float64)

    twins = Twins(net, torch.empty(1, 3), (), LOSSES["barlow_twins"]).train()
    steps = Steps(twins, views, SGD(0.05), 4, 12)
    measure = outcomes_of(X, net)
    found = differentiate(steps, measure, progress=False).dw
    expected = by_differences(steps, measure, 1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    last = forward(steps, steps.start(), torch.ones(12).double(), 99)[-1]
    assert not torch.equal(last["encoder.1.running_mean"], steps.start()["encoder.1.running_mean"])


class Tokens(nn.Module):
    """Five numbers as tokens of one, by a function of tokens and then their mean."""

    def __init__(self, layer):
        super().__init__()
        self.lift, self.layer, self.out = nn.Linear(1, 4), layer, nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.layer(self.lift(x[..., None])).mean(1))


def used(net, X):
    """A pass with gradients leaves values with their graph behind in some layers."""
    net(X).sum().backward()
    return net


def test_attention_and_normed_weights_are_replayed(X):
    """Fused attention has no second derivative, and a weight that a norm has made cannot be copied."""
    torch.manual_seed(0)
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    with pytest.warns(FutureWarning, match="weight_norm"):
        attention.linear1 = nn.utils.weight_norm(attention.linear1)
    net = used(Tokens(attention).double().eval(), X)
    steps = warm_steps(net, ViewStream(X, GaussianNoise(0.2)), "barlow_twins", lr=0.01, steps=3)
    measure = outcomes_of(X, duplicate(net))
    found = differentiate(steps, measure, progress=False).dw
    expected = by_differences(steps, measure, 1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_a_layer_without_a_second_derivative_is_refused_by_name(X):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(5, 4)

        def forward(self, x):
            return self.bag(x.argsort(1)) * x.mean()

    steps = warm_steps(Bag().double(), ViewStream(X, GaussianNoise(0.2)), "barlow_twins", lr=0.01, steps=3)
    with pytest.raises(
        UnsupportedEncoderError, match=r"no second derivative of a layer \(_embedding_bag_backward\).*method lazy"
    ):
        differentiate(steps, lambda state: state["encoder.bag.weight"].sum()[None], progress=False)
