"""Loading encoders: checkpoints fabricated in the layouts of others, files that do not fit, files that bite."""

import argparse
import os
import re
import sys
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from krepes.encoders import (
    MLP,
    ConvNet,
    ResMLP,
    UnsafeCheckpointError,
    build_encoder,
    load_encoder,
    resnet18,
    save_weights,
)
from krepes.errors import InvalidInputError
from krepes.storage.tensorfile import write_tensors

SIZE = dict(width=4, in_channels=1)


def weights_of(seed, **settings):
    """A small ResNet-18's state dict, whose statistics are not those of a fresh network."""
    torch.manual_seed(seed)
    encoder = resnet18(**{**SIZE, **settings})
    encoder(torch.rand(8, 1, 16, 16))
    return encoder.state_dict()


def prefixed(prefix, state):
    return {f"{prefix}{key}": value for key, value in state.items()}


def numbered(state, first_layer):
    """Names as in ``nn.Sequential(*resnet.children())``, whose child 0 is conv1, 1 is bn1."""
    number = {"conv1": 0, "bn1": 1, **{f"layer{k}": first_layer + k - 1 for k in range(1, 5)}}
    return {f"{number[key.split('.')[0]]}.{key.partition('.')[2]}": value for key, value in state.items()}


def shortcuts(state):
    return {key.replace("downsample", "shortcut"): value for key, value in state.items()}


FC = {"fc.weight": torch.zeros(10, 32), "fc.bias": torch.zeros(10)}
PROJECTOR = prefixed("projector.", {"0.weight": torch.zeros(8, 32), "1.running_mean": torch.zeros(8)})


def torchvision(state, _):
    return {**state, **FC}


def timm(state, average):
    return {"epoch": 9, "arch": "resnet18", "state_dict": {**state, **FC}, "state_dict_ema": {**average, **FC}}


def solo_learn(state, average):
    networks = {**prefixed("backbone.", state), **prefixed("momentum_backbone.", average)}
    heads = {**PROJECTOR, "classifier.weight": torch.zeros(10, 32), **prefixed("momentum_", PROJECTOR)}
    adam = {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}
    return {"state_dict": {**networks, **heads}, "optimizer_states": [adam], "global_step": 7}


def solo_learn_of_2021(state, average):
    return {"state_dict": {**prefixed("encoder.", state), **prefixed("momentum_encoder.", average), **PROJECTOR}}


def lightly(state, average):
    online, target = numbered(state, 4), numbered(average, 4)
    return {"state_dict": {**prefixed("backbone.", online), **prefixed("backbone_momentum.", target)}}


def distributed_and_compiled(state, _):
    return {"model": prefixed("module._orig_mod.backbone.", state)}


def dino(state, average):
    return {"student": prefixed("module.backbone.", state), "teacher": prefixed("backbone.", average), "epoch": 1}


def moco(state, average):
    heads = {"module.encoder_q.fc.0.weight": torch.zeros(32, 32), "module.queue": torch.zeros(8, 32)}
    networks = {**prefixed("module.encoder_q.", state), **prefixed("module.encoder_k.", average)}
    return {"state_dict": {**networks, **heads}}


LAYOUTS = {
    torchvision: ("", ()),
    timm: ("state_dict/", ("state_dict_ema/",)),
    solo_learn: ("state_dict/backbone.", ("state_dict/momentum_backbone.",)),
    solo_learn_of_2021: ("state_dict/encoder.", ("state_dict/momentum_encoder.",)),
    lightly: ("state_dict/backbone.", ("state_dict/backbone_momentum.",)),
    distributed_and_compiled: ("model/module._orig_mod.backbone.", ()),
    dino: ("student/module.backbone.", ("teacher/backbone.",)),
    moco: ("state_dict/module.encoder_q.", ("state_dict/module.encoder_k.",)),
}


def assert_holds(encoder, state):
    own = encoder.state_dict()
    assert own.keys() == state.keys()
    for key in own:
        torch.testing.assert_close(own[key], state[key], rtol=0, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_checkpoints_of_other_projects_load_into_the_trained_network(layout, tmp_path):
    state, average = weights_of(1), weights_of(2)
    path = tmp_path / "checkpoint.ckpt"
    torch.save(layout(state, average), path)
    loaded = load_encoder("resnet18", path, **SIZE)
    assert_holds(loaded.encoder, state)
    assert not loaded.encoder.training
    assert (loaded.report.prefix, loaded.report.alternatives) == LAYOUTS[layout]
    assert loaded.report.complete and len(loaded.report.loaded) == len(state)


@pytest.mark.parametrize("prefix", ["momentum_backbone.", "momentum_backbone", "state_dict/momentum_backbone."])
def test_a_named_prefix_chooses_the_momentum_encoder(prefix, tmp_path):
    torch.save(solo_learn(weights_of(1), weights_of(2)), tmp_path / "c.ckpt")
    loaded = load_encoder("resnet18", tmp_path / "c.ckpt", prefix=prefix, **SIZE)
    assert_holds(loaded.encoder, weights_of(2))
    with pytest.raises(InvalidInputError, match=r"prefix='online.' .* names behind 'state_dict/backbone.'"):
        load_encoder("resnet18", tmp_path / "c.ckpt", prefix="online.", **SIZE)


def test_an_empty_prefix_means_the_names_themselves_in_their_container(tmp_path):
    torch.save(timm(weights_of(1), weights_of(2)), tmp_path / "c.pth")
    assert load_encoder("resnet18", tmp_path / "c.pth", prefix="", **SIZE).report.prefix == "state_dict/"
    ema = load_encoder("resnet18", tmp_path / "c.pth", prefix="state_dict_ema/", **SIZE)
    assert_holds(ema.encoder, weights_of(2))


@pytest.mark.parametrize("rename", [shortcuts, lambda state: numbered(shortcuts(state), 2)], ids=["names", "numbers"])
def test_lightly_resnet_needs_the_padding_it_was_trained_with(rename, tmp_path):
    state = weights_of(1, cifar_padding=1)
    save_file(prefixed("backbone.", rename(state)), tmp_path / "c.safetensors")
    with pytest.raises(InvalidInputError, match="pads its stem by 1, this encoder by 2. Pass cifar_padding=1"):
        load_encoder("resnet18", tmp_path / "c.safetensors", **SIZE)
    loaded = load_encoder("resnet18", tmp_path / "c.safetensors", cifar_padding=1, **SIZE)
    assert_holds(loaded.encoder, state)


def test_weights_are_used_by_the_loaded_encoder_as_by_the_saved_one(tmp_path, generator):
    encoder = build_encoder("resnet18", **SIZE)
    encoder.load_state_dict(weights_of(3))
    x = torch.rand(2, 1, 12, 12, generator=generator)
    torch.save(solo_learn(weights_of(3), weights_of(4)), tmp_path / "c.ckpt")
    loaded = load_encoder("resnet18", tmp_path / "c.ckpt", **SIZE).encoder
    torch.testing.assert_close(loaded(x), encoder.eval()(x), rtol=0, atol=0)


def test_old_checkpoints_without_batch_counters_are_complete(tmp_path):
    state = {key: value for key, value in weights_of(1).items() if "num_batches" not in key}
    torch.save(state, tmp_path / "c.pth")
    assert load_encoder("resnet18", tmp_path / "c.pth", **SIZE).report.complete


# Files that do not fit


def drop_and_add(state):
    return {k: v for k, v in state.items() if not k.startswith("layer4.1")} | {"layer5.weight": torch.ones(2)}


UNFIT = {
    "another width": (lambda s: weights_of(1, width=8), r"of other shape: conv1.weight is \(8, 1, 3, 3\) in the file"),
    "another stem": (lambda s: weights_of(1, cifar_stem=False), "The file's stem is 7x7: pass cifar_stem=False"),
    "missing": (drop_and_add, "10 missing: layer4.1.conv1.weight"),
    "unexpected": (drop_and_add, "1 unexpected: layer5.weight"),
    "deeper": (
        lambda s: {**s, "layer1.2.conv1.weight": torch.zeros(4, 4, 3, 3)},
        "1 unexpected: layer1.2.conv1.weight",
    ),
    "nothing in common": (
        lambda s: {"vit.cls_token": torch.zeros(1)},
        "no name in .* holds vit.cls_token; the encoder",
    ),
    "not finite": (lambda s: {**s, "bn1.bias": torch.full((4,), torch.nan)}, "bn1.bias in .* holds 4 NaN"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(name, tmp_path):
    change, message = UNFIT[name]
    torch.save(change(weights_of(1)), tmp_path / "c.pth")
    encoder = resnet18(**SIZE)
    encoder.load_state_dict(weights_of(5))
    with pytest.raises(InvalidInputError, match=message):
        load_encoder(encoder, tmp_path / "c.pth")
    assert_holds(encoder, weights_of(5))


def test_not_strict_loads_what_fits_and_warns(tmp_path):
    state = weights_of(1)
    state["conv1.weight"] = torch.zeros(4, 1, 7, 7)
    torch.save(drop_and_add(state), tmp_path / "c.pth")
    encoder = resnet18(**SIZE)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    with pytest.warns(UserWarning, match="do not fit"):
        report = load_encoder(encoder, tmp_path / "c.pth", strict=False).report
    assert report.mismatched == (("conv1.weight", (4, 1, 7, 7), (4, 1, 3, 3)),)
    assert report.unexpected == ("layer5.weight",)
    assert all(key.startswith("layer4.1.") for key in report.missing) and len(report.missing) == 10
    kept = {"conv1.weight", *(key for key in before if key.startswith("layer4.1."))}
    expected = {key: before[key] if key in kept else state[key] for key in before}
    assert_holds(encoder, expected)


def test_report_reads_as_a_summary(tmp_path):
    torch.save(solo_learn(weights_of(1), weights_of(2)), tmp_path / "c.ckpt")
    lines = str(load_encoder("resnet18", tmp_path / "c.ckpt", **SIZE).report).splitlines()
    assert lines[0].endswith("c.ckpt fit, prefix 'state_dict/backbone.', own names")
    assert lines[1] == "as good: prefix 'state_dict/momentum_backbone.'"
    assert re.search(r"\d+ left out: state_dict/momentum_backbone.conv1.weight, .* and \d+ more", lines[2])


# Files that bite


class Bites:
    """Unpickling this makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Harmless:
    """A class of the training script, as checkpoints of whole modules hold."""


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in options"])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_malicious_checkpoint_is_refused_and_not_executed(legacy, inside, tmp_path):
    bitten, path = tmp_path / "bitten", tmp_path / "c.ckpt"
    extra = argparse.Namespace(lr=Bites(bitten)) if inside else Bites(bitten)
    torch.save({"state_dict": weights_of(1), "extra": extra}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UnsafeCheckpointError, match=r"object \w+.mkdir: .*was not read.*weights_only=False"):
        load_encoder("resnet18", path, **SIZE)
    assert not bitten.exists()
    torch.load(path, weights_only=False)  # the trap is live: this is what was not done
    assert bitten.exists()


@pytest.mark.parametrize("content", [{"hyper_parameters": Harmless()}, nn.Linear(2, 2)], ids=["settings", "module"])
def test_a_checkpoint_with_python_objects_is_refused(content, tmp_path):
    torch.save(content, tmp_path / "c.ckpt")
    with pytest.raises(UnsafeCheckpointError, match="needs the Python object (test_load|tests|torch)"):
        load_encoder("resnet18", tmp_path / "c.ckpt", **SIZE)


def test_a_file_cannot_name_a_factory_of_its_own(user_module, tmp_path):
    path = tmp_path / "w.safetensors"
    write_tensors(path, {"body.weight": torch.zeros(3, 2)}, {"encoder": {"name": f"{user_module}:Net", "width": 3}})
    with pytest.raises(InvalidInputError, match="does not name an encoder of this package .'users_own_nets:Net'"):
        load_encoder(weights=path)
    assert user_module not in sys.modules


DAMAGED = {
    "absent": (None, "there is no file"),
    "text": (b"not a checkpoint at all", "is no pickle of tensors"),
    "empty": (b"", "is empty"),
    "zip": (b"PK\x03\x04 and then nothing", "cannot be read as a checkpoint"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name, tmp_path):
    content, message = DAMAGED[name]
    path = tmp_path / "c.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        load_encoder("resnet18", path, **SIZE)


def test_truncated_safetensors_and_files_without_tensors_are_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    save_weights(resnet18(**SIZE), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InvalidInputError, match="not a whole safetensors file"):
        load_encoder(weights=path)
    torch.save({"epoch": 3}, tmp_path / "c.pth")
    with pytest.raises(InvalidInputError, match="holds no tensor"):
        load_encoder("resnet18", tmp_path / "c.pth")


def hollow(state, form):
    state = dict(state)
    state["bn1.weight"] = form(state["bn1.weight"])
    return state


NO_NUMBERS = {
    "sparse": (lambda w: w.to_sparse(), "bn1.weight in .* is torch.sparse_coo, not one dense block"),
    "complex": (lambda w: w.to(torch.complex64), "bn1.weight in .* has type torch.complex64"),
    "codes": (lambda w: w.to(torch.int8), "bn1.weight in .* has type torch.int8"),
    "flags": (lambda w: w > 0, "bn1.weight in .* has type torch.bool"),
    "meta": (lambda w: w.to("meta"), "bn1.weight in .* is empty .meta."),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_tensors_that_are_no_dense_real_numbers_are_refused(name, tmp_path):
    form, message = NO_NUMBERS[name]
    torch.save(hollow(weights_of(1), form), tmp_path / "c.pth")
    with pytest.raises(InvalidInputError, match=message):
        load_encoder("resnet18", tmp_path / "c.pth", **SIZE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_weights_of_other_precision_are_loaded(dtype, tmp_path):
    state = {key: value.to(dtype) if value.is_floating_point() else value for key, value in weights_of(1).items()}
    torch.save(state, tmp_path / "c.pth")
    loaded = load_encoder("resnet18", tmp_path / "c.pth", **SIZE).encoder
    torch.testing.assert_close(loaded.conv1.weight.data, state["conv1.weight"].float(), rtol=0, atol=0)


def test_dicts_without_end_are_refused(tmp_path):
    endless = {}
    endless["again"] = endless
    many = {"leaf": torch.zeros(1)}
    for _ in range(40):
        many = {"a": many, "b": many}
    for content in (endless, many):
        torch.save(content, tmp_path / "c.pth")
        with pytest.raises(InvalidInputError, match="is no state dict"):
            load_encoder("resnet18", tmp_path / "c.pth", **SIZE)


def test_claims_are_compared_with_what_a_file_holds(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(InvalidInputError, match="claims a header of 1,152,921,504,606,846,976"):
        load_encoder("mlp", path, d=4)
    write_tensors(path, {"layers.1.weight": torch.zeros(2, 4)}, {"encoder": {"name": "mlp", "d": 10**9, "depth": 0}})
    with pytest.raises(InvalidInputError, match="says d=1,000,000,000, but all its tensors together hold 8 numbers"):
        load_encoder(weights=path)
    write_tensors(path, {"layers.1.weight": torch.zeros(2, 4)}, {"encoder": ["mlp"]})
    with pytest.raises(InvalidInputError, match="does not name an encoder of this package"):
        load_encoder(weights=path)
    with zipfile.ZipFile(tmp_path / "c.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 10**6)
    with pytest.raises(InvalidInputError, match="parts must not be packed"):
        load_encoder("mlp", tmp_path / "c.pth", d=4)


# Our own files

BUILT = {
    "mlp": lambda: MLP(6, width=5, depth=1, out=3),
    "resmlp": lambda: ResMLP(6, out=3, width=8, B=1, r=2),
    "convnet": lambda: ConvNet(width=4, out=5),
    "resnet18": lambda: resnet18(cifar_stem=False, **SIZE),
    "resnet34": lambda: build_encoder("resnet34", cifar_padding=1, **SIZE),
    "resnet50": lambda: build_encoder("resnet50", **SIZE),
}


@pytest.mark.parametrize("name", BUILT)
def test_saved_encoders_rebuild_themselves(name, tmp_path):
    encoder = BUILT[name]()
    save_weights(encoder, tmp_path / "new" / "w.safetensors")
    loaded = load_encoder(weights=tmp_path / "new" / "w.safetensors")
    assert type(loaded.encoder) is type(encoder) and loaded.encoder.config == encoder.config
    assert str(loaded.encoder) == str(encoder.eval())
    assert_holds(loaded.encoder, encoder.state_dict())


def test_equal_weights_are_equal_bytes_and_nothing_else_is_left(tmp_path):
    for name in ("a", "b"):
        torch.manual_seed(0)
        save_weights(MLP(4), tmp_path / f"{name}.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_tied_and_foreign_modules_are_saved_and_need_their_factory(tmp_path):
    def tied():
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        b.weight = a.weight
        return nn.Sequential(a, b)

    encoder = tied()
    save_weights(encoder, tmp_path / "w.safetensors")
    with pytest.raises(InvalidInputError, match="does not name an encoder of this package"):
        load_encoder(weights=tmp_path / "w.safetensors")
    assert_holds(load_encoder(tied, tmp_path / "w.safetensors").encoder, encoder.state_dict())


# Factories

USER_MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.body = torch.nn.Linear(2, width)

    @classmethod
    def wide(cls):
        return cls(width=30)

READY = Net(7)
NUMBER = 3

def no_module():
    return 5

def breaks(width=1):
    raise RuntimeError("the\\x1b[31m disk is on fire")

def leaves():
    raise SystemExit(7)
"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    (tmp_path / "users_own_nets.py").write_text(USER_MODULE)
    (tmp_path / "breaking_module.py").write_text("import torch\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    yield "users_own_nets"
    sys.modules.pop("users_own_nets", None)


@pytest.mark.parametrize(
    ("name", "arguments", "width"), [("Net", dict(width=4), 4), ("Net.wide", {}, 30), ("READY", {}, 7)]
)
def test_factories_of_the_current_directory_are_found(user_module, name, arguments, width):
    path = list(sys.path)
    loaded = load_encoder(f"{user_module}:{name}", **arguments)
    assert loaded.encoder.body.out_features == width and loaded.report is None
    assert sys.path == path


def test_users_encoder_is_filled_behind_any_prefix(user_module, tmp_path):
    W, b = torch.ones(4, 2), torch.arange(4.0)
    torch.save({"net": {"wrapped.inner.body.weight": W, "wrapped.inner.body.bias": b}}, tmp_path / "c.pt")
    loaded = load_encoder(f"{user_module}:Net", tmp_path / "c.pt", width=4)
    assert loaded.report.prefix == "net/wrapped.inner."
    torch.testing.assert_close(loaded.encoder.body.bias, b, rtol=0, atol=0)


FACTORIES = {
    "unknown": ("vgg", {}, r"'vgg' is no encoder of this package \(mlp, .*'module:factory'"),
    "no module": ("absent_module:Net", {}, "no module 'absent_module' was found .* nor in"),
    "no attribute": ("users_own_nets:Nothing", {}, "module 'users_own_nets' has no 'Nothing'"),
    "not callable": ("users_own_nets:NUMBER", {}, "is a int"),
    "no module made": ("users_own_nets:no_module", {}, "returned a int, not a torch module"),
    "argument": ("users_own_nets:Net", dict(depth=2), r"cannot be called with depth: .* signature is \(width=3\)"),
    "built already": ("users_own_nets:READY", dict(width=2), "width cannot be passed to an encoder that is already"),
    "built-in argument": ("mlp", {}, "'mlp' cannot be called with no arguments: missing a required argument: 'd'"),
    "a builtin": ("builtins:dict", {}, "no factory of encoders|returned a dict"),
    "a function that breaks": ("users_own_nets:breaks", {}, r"failed \(the\\x1b\[31m disk is on fire\)"),
    "a function that leaves": ("users_own_nets:leaves", {}, "tried to end the program"),
    "a module that breaks": ("breaking_module:Net", {}, "importing 'breaking_module' failed"),
    "relative": (".:Net", {}, "does not read 'module:factory'"),
    "a path": ("../evil:Net", {}, "does not read 'module:factory'"),
    "escapes": ("a\x1b[31m:b", {}, r"a\\x1b\[31m:b"),
    "a size that is none": ("mlp", dict(d=4, width="wide"), "width='wide' must be a whole number"),
    "a size beyond memory": ("mlp", dict(d=10**6, width=10**6), "parameters, more than 2,000,000,000"),
    "layers without end": ("mlp", dict(d=4, depth=10**9), "depth='1000000000' must be .* at most 1,000"),
    "neither": (None, {}, "neither a factory nor weights"),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_unusable_factories_are_refused(name, user_module):
    factory, arguments, message = FACTORIES[name]
    with pytest.raises(InvalidInputError, match=message):
        load_encoder(factory, **arguments)
