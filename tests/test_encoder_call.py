"""Whatever an encoder takes and returns, it goes through fit, audits, influence, report and training as a plain one."""

import ast
import copy
import json
import threading
import warnings
from collections import UserDict, namedtuple
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import krepes
from callings import CALLINGS, WIDTH, BatchEncoding, Heads, Jitter, assert_untouched, core, make, state
from krepes import batches
from krepes.attribution import attribute
from krepes.audit import (
    FeatureSpace,
    alignment_gap,
    confidence_drop,
    confidence_drop_of,
    faithfulness,
    faithfulness_of,
    label_consistency,
    rankings,
)
from krepes.encoders import FrozenEncoder, pretrain
from krepes.encoders.call import evaluation
from krepes.encoders.outputs import pick
from krepes.errors import InvalidInputError, PrecisionWarning, RunFolderError, UnsupportedEncoderError
from krepes.influence import influence_of, similarity
from krepes.kernels import RBF, EmpiricalNTK, SketchedNTK, tangent_kernel
from krepes.model import Krepes
from krepes.report import build_report, render
from krepes.views import GaussianNoise, ViewStream
from networks import Lambda

N, T, M = 90, 40, 24
HALF = ("bfloat16", "float16")

pytestmark = pytest.mark.filterwarnings("ignore::krepes.errors.PrecisionWarning")


@pytest.fixture(scope="module")
def rows():
    """Two groups apart from each other, and which is which."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(N + T) % 2
    return torch.randn(N + T, WIDTH, generator=draw) + 1.5 * y[:, None], y.numpy()


def fit(name, encoder, X, **settings):
    return Krepes(encoder, m=M, h=4, augment=Jitter(name), progress=False, **settings).fit(X)


def plain_fit(name, X):
    """Return the model of the plain network: the oracle, called in no special way."""
    calling = CALLINGS[name]
    return fit("tensor", calling.truth(), X.to(calling.dtype))


def assert_same_numbers(found, wanted):
    """Compare the rows that both tables have; where samples are single tensors there is one baseline more."""
    keys = [column for column in found if not pd.api.types.is_float_dtype(found[column])]
    both = found.merge(wanted, on=[key for key in keys if key != "note"], suffixes=("", " wanted"))
    assert len(both) == len(found)
    for column in set(found) - set(keys):
        # A swapped near tie moves a mean over samples by a few hundredths at most.
        np.testing.assert_allclose(both[column], both[f"{column} wanted"], atol=0.03, err_msg=column)


# Through everything


@pytest.mark.parametrize("name", CALLINGS)
def test_every_way_to_call_gives_the_model_of_the_plain_network(name, rows):
    calling, X = CALLINGS[name], rows[0]
    encoder = make(name)
    before = state(encoder)
    model, expected = fit(name, encoder, calling.pack(X[:N]), output=calling.output), plain_fit(name, X[:N])
    assert model.landmarks_.tolist() == expected.landmarks_.tolist()
    # The same weights in the same order of operations; views of a float64 encoder are of float32 data here, too.
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert_close(model.kernel_rows(calling.pack(X[N:])), expected.kernel_rows(X[N:]), **close)
    assert_close(model.transform(calling.pack(X[N:])), expected.transform(X[N:]), **close)
    assert_close(model.encoder_.encode(calling.pack(X[N:])), expected.encoder_.encode(X[N:]), rtol=1e-6, atol=1e-7)
    assert_untouched(encoder, before)


@pytest.mark.parametrize("name", CALLINGS)
def test_every_way_to_call_goes_through_audits_influence_and_report(name, rows, tmp_path):
    calling, (X, y) = CALLINGS[name], rows
    encoder = make(name)
    before = state(encoder)
    model = fit(name, encoder, calling.pack(X[:N]), output=calling.output)
    expected = plain_fit(name, X[:N])
    test, landmark_labels = calling.pack(X[N:]), y[:N][model.landmarks_]

    with torch.no_grad():
        E = calling.truth().eval()(X.to(calling.dtype))  # the very network, called by hand
    ranked, wanted = rankings(model, test, k=8), rankings(expected, X[N:], k=8)
    assert list(ranked) == [method for method in wanted if method in ranked] and "latent cosine" in ranked
    agree = [float((ranked[method] == wanted[method]).double().mean()) for method in ranked]
    assert min(agree) > 0.95  # float32: near ties may swap
    frame = pd.DataFrame(X.numpy(), columns=[f"c{i}" for i in range(WIDTH)])
    landmark_rows, space = frame.iloc[model.landmarks_.numpy()], FeatureSpace.of(frame[:N])
    for of_model, of_plain in (
        (label_consistency(ranked, landmark_labels, y[N:]), label_consistency(wanted, landmark_labels, y[N:])),
        (
            faithfulness(model, calling.pack(X[:N]), y[:N], test, y[N:]),
            faithfulness_of((expected.transform(X[:N]), expected.transform(X[N:])), (E[:N], E[N:]), y[:N], y[N:]),
        ),
        (
            confidence_drop(model, test, landmark_labels, k=5, delete=5),
            confidence_drop_of(wanted, E[N:], E[model.landmarks_], landmark_labels, k=5, delete=5),
        ),
        (
            alignment_gap(model, test, frame[N:], landmark_rows, space, k=4).frame,
            alignment_gap(expected, X[N:], frame[N:], landmark_rows, space, k=4).frame,
        ),
    ):
        assert_same_numbers(of_model, of_plain)
    one = calling.pack(X[N : N + 1]), calling.pack(X[N + 1 : N + 2])
    values = influence_of(model, similarity(model, *one), progress=False).values
    again = influence_of(expected, similarity(expected, X[N : N + 1], X[N + 1 : N + 2]), progress=False).values
    assert np.corrcoef(values[:, 0], again[:, 0])[0, 1] > 0.999

    report = build_report(model, X_test=test, labels=(y[:N], y[N:]), tables=(frame[:N], frame[N:]), shown=2, k=2)
    assert not any(section.missing for section in report.parts[0].sections if section.key in {"trust", "spectrum"})
    assert "encoder (baseline)" in render(report)
    assert_untouched(encoder, before)


@pytest.mark.parametrize("name", CALLINGS)
def test_every_way_to_call_is_saved_and_loaded(name, rows, tmp_path):
    calling, X = CALLINGS[name], rows[0]
    encoder = make(name)
    model = fit(name, encoder, calling.pack(X[:N]), output=calling.output, heads=2, parameters=["*weight"])
    model.save(tmp_path / "run")
    given = {"output": calling.output} if callable(calling.output) else {}
    loaded = Krepes.load(tmp_path / "run", encoder, **given)
    assert (loaded.heads, loaded.parameters) == (2, ["*weight"])
    assert_close(loaded.transform(calling.pack(X[N:])), model.transform(calling.pack(X[N:])))


def test_wrapped_or_not_and_lifted_or_not_the_weights_have_one_fingerprint():
    assert FrozenEncoder(nn.DataParallel(core())).describe() == FrozenEncoder(core()).describe()
    assert FrozenEncoder(core().half()).describe() == FrozenEncoder(core().half().float()).describe()
    assert FrozenEncoder(core().half()).describe() != FrozenEncoder(core()).describe()


def test_a_run_with_a_function_as_output_asks_for_it(rows, tmp_path):
    encoder, X = make("function"), rows[0]
    fit("function", encoder, X[:N], output=CALLINGS["function"].output).save(tmp_path / "run")
    assert (
        "<lambda>" in json.loads((tmp_path / "run" / "manifest.json").read_text())["parameters"]["output"]["function"]
    )
    with pytest.raises(RunFolderError, match=r"fitted with output=callings.*<lambda>, a function.*output=\.\.\."):
        Krepes.load(tmp_path / "run", encoder)


def test_another_output_is_another_kernel(rows, tmp_path):
    encoder = Lambda(lambda self, x: (self.core(x), self.core(x).tanh()), core=core())
    fit("tensor", encoder, rows[0][:N], output=0).save(tmp_path / "run")
    with pytest.raises(RunFolderError, match="is not that of"):
        Krepes.load(tmp_path / "run", encoder, output=1)


def test_settings_of_an_encoder_are_refused_beside_a_kernel(rows):
    with pytest.raises(InvalidInputError, match="belong to an encoder, and the kernel is a RBF"):
        fit("tensor", RBF(2.0), rows[0][:N], heads=2)


def test_a_given_tangent_kernel_lends_its_encoder_to_the_audits(rows):
    X, y = rows
    model = fit("tensor", EmpiricalNTK(core(), heads=2), X[:N])
    assert "latent cosine" in rankings(model, X[N:], k=3)
    assert fit("tensor", RBF(2.0), X[:N]).encoder_ is None


# The call itself


def test_nobody_else_calls_an_encoder():
    """Only encoders/call.py writes ``encoder(...)`` or ``something.encoder(...)``; the rest goes through it."""
    package = Path(krepes.__file__).parent
    found = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and "encoder" in {getattr(node.func, "id", None), getattr(node.func, "attr", None)}
    ]
    assert found == [str(Path("encoders", "call.py"))]


def test_state_is_restored_module_by_module_also_after_an_error():
    encoder = make("tensor")
    encoder.append(Lambda(lambda self, x: 1 / 0 if x.isnan().any() else x))
    before = state(encoder)
    FrozenEncoder(encoder).encode(torch.zeros(3, WIDTH))
    assert_untouched(encoder, before)
    with pytest.raises(ZeroDivisionError):
        FrozenEncoder(encoder).encode(torch.full((3, WIDTH), torch.nan))
    assert_untouched(encoder, before)
    assert torch.backends.mha.get_fastpath_enabled()


def test_evaluation_nests_and_is_eval_inside():
    encoder = make("tensor")
    before, frozen = state(encoder), FrozenEncoder(encoder)
    with evaluation(encoder), frozen.evaluating(), frozen.evaluating():
        assert not any(part.training for part in encoder.modules())
        assert not any(parameter.requires_grad for parameter in encoder.parameters())
        frozen.embed(torch.zeros(2, WIDTH))
        assert not encoder.training
    assert_untouched(encoder, before)


def test_embeddings_carry_a_graph_to_given_parameters(generator):
    net, X = core().double().eval(), torch.randn(4, WIDTH, generator=generator, dtype=torch.float64)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in net.named_parameters()}
    found = torch.autograd.grad(FrozenEncoder(net).embed(X, leaves).square().sum(), list(leaves.values()))
    expected = torch.autograd.grad(net(X).square().sum(), list(net.parameters()))
    assert_close(found, expected)
    assert not FrozenEncoder(net).embed(X).requires_grad


def test_encode_streams_arrays_and_data_sets(tmp_path, generator):
    X = torch.randn(10, WIDTH, generator=generator)
    np.save(tmp_path / "X.npy", X.numpy())
    frozen, expected = FrozenEncoder(core()), core().eval()(X).double()
    samples = [X, X.double(), np.load(tmp_path / "X.npy", mmap_mode="r"), torch.utils.data.TensorDataset(X)]
    for given in samples:
        assert_close(frozen.encode(given, size=3), expected.detach(), rtol=1e-6, atol=1e-6)
    assert frozen.encode(X).dtype == torch.float64
    items = [BatchEncoding(x=x) for x in X]  # a Dataset of mappings, as tokenizers fill them

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return len(items)

        def __getitem__(self, i):
            return items[i]

    keyed = FrozenEncoder(Lambda(lambda self, x: self.core(x), core=core()))
    assert_close(keyed.encode(Items(), size=4), expected.detach(), rtol=1e-6, atol=1e-6)


def test_padded_tokens_mean_the_same_with_and_without_gradients(generator):
    """Attention's fused path puts zeros at padded tokens; it is taken without gradients only, and never here."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = Lambda(
        lambda self, x, padding: self.body(x, src_key_padding_mask=padding).mean(1),
        body=nn.TransformerEncoder(layer, 2),
    )
    X = {"x": torch.randn(5, 4, 8, generator=generator), "padding": torch.arange(4) >= torch.tensor([[2]] * 5)}
    plain = encoder.eval()(**X)
    with torch.no_grad():
        assert float((encoder(**X) - plain).abs().max()) > 0.1
    for found in (FrozenEncoder(encoder).encode(X).float(), FrozenEncoder(encoder).embed(X)):
        assert_close(found, plain.detach(), rtol=1e-6, atol=1e-6)


def test_samples_that_do_not_fit_are_refused_by_name():
    encoder = FrozenEncoder(nn.Bilinear(4, 2, 3))
    with pytest.raises(InvalidInputError, match=r"input2.* was given the keywords input1, wrong.*a dict by keyword"):
        encoder.encode({"input1": torch.zeros(2, 4), "wrong": torch.zeros(2, 2)})
    with pytest.raises(InvalidInputError, match="was given 1 by position.*missing a required argument: 'input2'"):
        encoder.encode(torch.zeros(2, 4))
    with pytest.raises(TypeError, match="inside"):  # the encoder's own

        def inside(self, x):
            raise TypeError("inside")

        FrozenEncoder(Lambda(inside, core=core())).encode(torch.zeros(2, 6))


def test_a_compiled_module_is_looked_into():
    net = core()
    wrapper = Lambda(lambda self, x: pytest.fail("the compiled forward pass was called"))
    wrapper._orig_mod = net
    assert FrozenEncoder(nn.DataParallel(wrapper)).module is net


# Where the embedding is

Pair = namedtuple("Pair", "first second")
TENSOR = torch.ones(2, 3)
RETURNED = {
    "the result": (TENSOR, None),
    "position": ((1, TENSOR), 1),
    "last position": ([1, TENSOR], -1),
    "key": ({"z": TENSOR}, "z"),
    "key with a dot": ({"layer.4": TENSOR, "layer": 0}, "layer.4"),
    "position of a mapping": ({"loss": 0, "z": TENSOR}, 1),
    "integer key before position": ({1: TENSOR, 0: 0}, 1),
    "mapping that is no dict": (UserDict(z=TENSOR), "z"),
    "key before attribute": ({"values": TENSOR}, "values"),
    "attribute": (Heads(TENSOR), "pooled"),
    "dotted": ((Heads({"z": [0, TENSOR]}), 0), "0.pooled.z.1"),
    "named tuple": (Pair(0, TENSOR), "second"),
    "function": ({"z": 2 * TENSOR}, lambda result: result["z"] / 2),
}
REFUSED = {
    "a dict": ({"z": TENSOR, "n": torch.arange(2)}, None, r"returned a dict with z \(2, 3\), n \(2,\) of torch.int64"),
    "what to pass": ({"z": TENSOR}, None, r"Pass output='z', output=lambda result: \.\.\. to pick the embedding"),
    "a tuple": ((TENSOR, None, [TENSOR]), None, r"a tuple with 0 \(2, 3\), 2\.0 \(2, 3\).*output=0, output='2\.0'"),
    "a dataclass": (Heads(TENSOR), None, r"a Heads with pooled \(2, 3\).*output='pooled'"),
    "no such key": ({"z": TENSOR}, "y", r"output='y' is not among what the encoder returned: a dict with z \(2, 3\)"),
    "no such position": ((TENSOR,), 3, "output=3 is not among"),
    "samples are no positions": (TENSOR, 0, r"output=0 is not among what the encoder returned: \(2, 3\)"),
    "no tensor": ({"z": [1]}, "z", r"output='z' of the encoder is a list with 0 \(int\)"),
    "one number each": (TENSOR[:, 0], None, r"returned \(2,\), but an embedding is one floating-point tensor \(n, d"),
    "integers": (TENSOR.long(), None, r"returned \(2, 3\) of torch.int64"),
    "a function that picks wrongly": ({"z": TENSOR}, len, r"output=builtins.len of the encoder is a int"),
}


@pytest.mark.parametrize("case", RETURNED)
def test_output_names_a_place(case):
    result, output = RETURNED[case]
    assert torch.equal(pick(result, output), TENSOR)


@pytest.mark.parametrize("case", REFUSED)
def test_what_was_returned_is_listed(case):
    result, output, words = REFUSED[case]
    with pytest.raises(UnsupportedEncoderError, match=words):
        pick(result, output)


@pytest.mark.parametrize("output", [True, 1.5, "", "a..b", ["z"]])
def test_an_output_that_names_nothing_is_refused(output):
    with pytest.raises(InvalidInputError, match="names no place"):
        FrozenEncoder(core(), output=output)


def test_descriptions_are_plain():
    outputs = (None, 0, "a.b", pick, partial(partial(pick), output=0), nn.Tanh())
    described = [FrozenEncoder(core(), output=output).describe()["output"] for output in outputs]
    assert json.loads(json.dumps(described)) == [
        None,
        0,
        "a.b",
        {"function": "krepes.encoders.outputs.pick"},
        {"function": "krepes.encoders.outputs.pick"},
        {"function": "torch.nn.modules.activation.Tanh"},
    ]
    with pytest.raises(InvalidInputError, match="was given for a FrozenEncoder"):
        EmpiricalNTK(FrozenEncoder(core(), output=0), output=1)


# Precision


@pytest.mark.parametrize("name", HALF)
def test_half_precision_weights_give_the_kernel_of_their_float32_copy(name, rows):
    encoder, X = make(name), rows[0][:20]
    lifted = copy.deepcopy(encoder).float()
    for kind in (EmpiricalNTK, SketchedNTK):
        assert torch.equal(kind(encoder)(X, X), kind(lifted)(X, X))
        assert kind(encoder)(X, X).dtype == torch.float32
    assert torch.equal(
        FrozenEncoder(encoder).encode(X.to(encoder[0].weight.dtype)),
        FrozenEncoder(lifted).encode(X.to(encoder[0].weight.dtype).float()),
    )


def test_one_half_precision_weight_among_others_is_enough_to_lift_all():
    encoder = core().double()
    encoder[0].to(torch.bfloat16)
    frozen = FrozenEncoder(encoder)
    assert {p.dtype for p in frozen.parameters.values()} == {torch.float64}
    assert encoder[0].weight.dtype == torch.bfloat16 and frozen.module is not encoder


def test_the_note_on_half_precision_comes_once(rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit("bfloat16", make("bfloat16"), rows[0][:N])
        rankings(model, rows[0][N:], k=3)
        attribute(model, rows[0][N:])
    notes = [str(w.message) for w in caught if issubclass(w.category, PrecisionWarning)]
    assert len(notes) == 1 and "weights in torch.bfloat16: it is computed with in torch.float32" in notes[0]


def test_an_encoder_that_cannot_be_copied_says_what_to_do():
    encoder = core().bfloat16()
    encoder.kept = encoder(torch.zeros(2, WIDTH, dtype=torch.bfloat16))  # not a leaf: deepcopy alone refuses it
    assert FrozenEncoder(encoder).module.kept.grad_fn is None
    encoder.kept = threading.Lock()
    with pytest.raises(UnsupportedEncoderError, match=r"cannot be copied.*torch.bfloat16.*Pass it in float32"):
        FrozenEncoder(encoder)


@pytest.mark.parametrize("kernel", ["exact", "sketch", "rbf"])
def test_autocast_around_changes_no_bit(kernel, rows):
    X = rows[0]

    def run():
        base = RBF(2.0) if kernel == "rbf" else tangent_kernel(core(), X[:3], M, kernel=kernel, q=64)[0]
        model = fit("tensor", base, X[:N])
        return [model.transform(X[N:]), model.K_mm_, *(rankings(model, X[N:], k=5).values())]

    expected = run()
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.warns(PrecisionWarning, match="torch.autocast is on for cpu"),
    ):
        assert (X @ X.T).dtype == torch.bfloat16
        found = run()
        assert torch.is_autocast_enabled("cpu")
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# Batches


def test_a_mapping_is_a_batch_and_comes_out_as_a_dict():
    X = BatchEncoding(ids=torch.arange(5), more=(BatchEncoding(x=np.arange(10.0).reshape(5, 2)),))
    assert batches.count(X) == 5
    taken = batches.take(X, torch.tensor([4, 0]))
    assert type(taken) is dict and type(taken["more"][0]) is dict
    assert taken["ids"].tolist() == [4, 0] and taken["more"][0]["x"].tolist() == [[8.0, 9.0], [0.0, 1.0]]
    pieces = [piece for _, piece in batches.chunks(X, 2)]
    assert [batches.count(piece) for piece in pieces] == [2, 2, 1]
    joined = batches.concatenate([UserDict(piece) for piece in pieces])
    assert torch.equal(joined["ids"], X["ids"]) and torch.equal(
        joined["more"][0]["x"], torch.arange(10.0).reshape(5, 2).double()
    )
    assert batches.map_tensors(lambda x: x + 1, X)["ids"].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidInputError, match="holds 1 NaN"):
        batches.require_usable(UserDict(x=torch.tensor([0.0, torch.nan])), "X")
    with pytest.raises(InvalidInputError, match=r"lengths \[2, 3\]"):
        batches.count(UserDict(a=torch.zeros(2), b=torch.zeros(3)))


# Training


@pytest.mark.parametrize("loss", ["barlow_twins", "byol"])
@pytest.mark.parametrize("name", [name for name in CALLINGS if name not in HALF])
def test_every_way_to_call_trains_like_the_plain_network(name, loss, rows):
    calling, X = CALLINGS[name], rows[0][:64]
    plain = calling.truth()
    settings = {"loss": loss, "epochs": 2, "projector": (8, 8), "progress": False}
    pretrain(plain, ViewStream(X.to(calling.dtype), Jitter("tensor"), batch_size=32), **settings)
    encoder = calling.module(core())
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    stream = ViewStream(calling.pack(X.to(calling.dtype)), Jitter(name), batch_size=32)
    result = pretrain(encoder, stream, output=calling.output, **settings)
    assert result.encoder is encoder and not any(part.training for part in encoder.modules())
    trained = encoder.state_dict()
    assert any(not torch.equal(trained[key], value) for key, value in before.items())
    for key, value in plain.state_dict().items():
        found = next(other for own, other in trained.items() if own.endswith(key))
        assert_close(found, value, rtol=1e-5, atol=1e-6)  # the same steps, sums in another order at most


def test_a_float64_encoder_trains_on_float32_views(rows):
    encoder = core().double()
    pretrain(encoder, ViewStream(rows[0][:64], GaussianNoise(0.2)), epochs=1, projector=(8,), progress=False)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float64}


def test_training_in_half_precision_is_refused_and_changes_nothing(rows):
    encoder = make("bfloat16")
    before = state(encoder)
    with pytest.raises(InvalidInputError, match=r"weights are torch.bfloat16.*encoder.float\(\)"):
        pretrain(encoder, ViewStream(rows[0][:64], GaussianNoise(0.2)), epochs=1, progress=False)
    assert_untouched(encoder, before)


def test_training_under_autocast_takes_the_same_steps(rows):
    def run():
        encoder = core()
        pretrain(encoder, ViewStream(rows[0][:64], GaussianNoise(0.2)), epochs=2, projector=(8,), progress=False)
        return encoder.state_dict()

    expected = run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = run()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_a_wrong_output_stops_a_training_before_it_starts(rows):
    encoder = CALLINGS["nested"].module(core()).train()
    before = state(encoder)
    with pytest.raises(UnsupportedEncoderError, match=r"output='heads\.0\.pooled'"):
        pretrain(encoder, ViewStream(rows[0][:64], GaussianNoise(0.2)), epochs=1, progress=False)
    assert_untouched(encoder, before)
