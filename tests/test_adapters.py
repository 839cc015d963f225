"""Encoders of other packages: built, filled, pooled and described, on stand-ins with the packages' interfaces."""

import json
import os
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from krepes import EmpiricalNTK, Krepes
from krepes.data.files import foreign
from krepes.encoders import (
    build_encoder,
    from_huggingface,
    from_openclip,
    from_sentence_transformers,
    from_timm,
    from_torchvision,
    load_encoder,
    save_weights,
)
from krepes.encoders.adapters.adapted import Embedding, pooled
from krepes.encoders.adapters.packages import offline
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.views import RandomResizedCrop
from packages import FAKES, MEAN, STD, Net, Output, folder_of, weights_of

X = torch.rand(30, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def packages(monkeypatch):
    for name, make in FAKES.items():
        monkeypatch.setitem(sys.modules, name, make())


@pytest.fixture
def nothing_installed(monkeypatch):
    for name in FAKES:
        monkeypatch.setitem(sys.modules, name, None)


MADE = {"timm": (from_timm, "tiny", "head"), "torchvision": (from_torchvision, "resnet", "fc")}


@pytest.mark.parametrize("package", MADE)
def test_a_name_and_a_file_give_features_before_the_classifier(package, packages, tmp_path):
    make, name, head = MADE[package]
    torch.manual_seed(0)
    net = Net(head=head).eval()
    adapted = make(name, weights_of(net, tmp_path / "w.safetensors"))
    assert torch.equal(adapted.encoder(X), torch.tanh(net.stem(X)).mean((2, 3)))
    assert (adapted.size, adapted.mean, adapted.std) == (8, MEAN, STD)
    assert adapted.module is adapted.encoder and not adapted.encoder.training and adapted.report.complete
    augment = adapted.normalised(RandomResizedCrop())
    model = Krepes(adapted.encoder, m=6, h=3, augment=augment, progress=False).fit(X)
    normal = (X[:4] - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
    torch.testing.assert_close(augment.plain(X[:4]), normal)
    assert model.transform(normal).shape == (4, 3)


@pytest.mark.parametrize("package", MADE)
def test_a_module_is_copied_before_its_classifier_goes(package, packages):
    make, _, head = MADE[package]
    net = Net(head=head).eval()
    assert make(net).encoder(X).shape == (30, 6) and net(X).shape == (30, 10)
    with pytest.raises(InvalidInputError, match="taken as it is"):
        make(net, "w.safetensors")
    with pytest.raises(InvalidInputError, match="no model of timm|no linear layer"):
        make(nn.Tanh())


def test_timm_takes_tags_sizes_and_poolings(packages, tmp_path):
    path = weights_of(Net(head="head"), tmp_path / "w.safetensors")
    assert from_timm("tiny.dino", path, img_size=16).size == 16
    assert from_timm("tiny", path, output="cls").output == "cls" and from_timm("tiny", path).output == "mean"
    assert build_encoder("timm:tiny", output="cls").global_pool == "token"
    assert from_timm(Net(0, head="head")).mean == MEAN
    grey = from_timm("tiny", weights_of(Net(channels=1, head="head"), tmp_path / "g.safetensors"), in_chans=1)
    assert (grey.mean, grey.std) == ((), ())  # three numbers say nothing of one channel


def test_openclip_gives_the_image_tower_out_of_the_whole_model(packages, tmp_path):
    tower = Net(0).eval()
    path = weights_of(tower, tmp_path / "w.safetensors", prefix="module.visual.")
    adapted = from_openclip("ViT-B-32", path)
    assert torch.equal(adapted.encoder(X), tower(X))
    assert (adapted.size, adapted.mean, adapted.std, adapted.output) == (8, MEAN, STD, "image_features")
    assert from_openclip("ViT-L-14", path, tag="other").mean == (0.5, 0.5, 0.5)
    with pytest.raises(InvalidInputError, match="2 normalisations: .* openai or other"):
        from_openclip("ViT-L-14", path)
    with pytest.raises(InvalidInputError, match="'opnai' is no tag of ViT-L-14.*'openai'"):
        from_openclip("ViT-L-14", path, tag="opnai")
    with pytest.raises(InvalidInputError, match="described on the network"):
        from_openclip("roberta", path)
    whole = sys.modules["open_clip"].create_model("ViT-B-32", None, False, False)
    assert from_openclip(whole).encoder is whole.visual and from_openclip(whole).size == 8
    with pytest.raises(InvalidInputError, match="no image tower"):
        from_openclip(tower)


CALLS = {
    "timm": lambda **options: from_timm("tiny", "w", **options),
    "torchvision": lambda **options: from_torchvision("resnet", "w", **options),
    "openclip": lambda **options: from_openclip("ViT-B-32", "w", **options),
}


@pytest.mark.parametrize("option", ["pretrained", "checkpoint_path", "weights_backbone", "pretrained_cfg", "cache_dir"])
@pytest.mark.parametrize("package", CALLS)
def test_options_that_download_or_unpickle_are_refused(package, option, packages):
    with pytest.raises(InvalidInputError, match=f"does not take the option '{option}'"):
        CALLS[package](**{option: "x"})


def test_unknown_names_and_absent_weights_say_what_to_do(packages, tmp_path):
    for make, wrong, near in ((from_timm, "tiyn", "tiny"), (from_torchvision, "resnt", "resnet")):
        with pytest.raises(InvalidInputError, match=f"'{wrong}' is no .* Did you mean '{near}'"):
            make(wrong, "w")
    with pytest.raises(InvalidInputError, match="Did you mean 'ViT-B-32'.*Nothing is looked for on the network"):
        from_openclip("ViT-B-23", "w")
    with pytest.raises(InvalidInputError, match="none are ever downloaded.*pretrained=True"):
        from_timm("tiny")
    with pytest.raises(InvalidInputError, match="no file of this name"):
        from_timm("tiny", tmp_path / "nothing.pth")
    with pytest.raises(InvalidInputError, match="'hf-hub:a/b' is no model of timm"):
        from_timm("hf-hub:a/b", "w")
    with pytest.raises(InvalidInputError, match="'sum' is no pooling of timm"):
        from_timm("tiny", "w", output="sum")


def test_pickled_weights_are_not_run(packages, tmp_path):
    class Bite:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "bitten"),)

    torch.save({"state_dict": Bite()}, tmp_path / "w.pth")
    with pytest.raises(InvalidInputError, match="could run code"):
        from_timm("tiny", tmp_path / "w.pth")
    assert not (tmp_path / "bitten").exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(nothing_installed, tmp_path):
    folder_of(tmp_path / "bert", text=True)
    calls = {**CALLS, "huggingface": lambda: from_huggingface(tmp_path / "bert")}
    for extra, make in calls.items():
        with pytest.raises(InvalidInputError, match=rf"is not installed. .* pip install 'krepes\[{extra}\]'"):
            make()


def test_packages_are_told_that_there_is_no_network(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    with offline():
        assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
    assert os.environ["HF_HUB_OFFLINE"] == "0" and "TRANSFORMERS_OFFLINE" not in os.environ


def test_pooling_counts_only_tokens_that_the_mask_keeps():
    H = torch.randn(2, 4, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    torch.testing.assert_close(pooled(H, "mean", mask), torch.stack([H[0, :2].mean(0), H[1].mean(0)]))
    torch.testing.assert_close(pooled(H, "max", mask), torch.stack([H[0, :2].amax(0), H[1].amax(0)]))
    assert torch.equal(pooled(H, "cls", mask), H[:, 0]) and torch.equal(pooled(H, "mean"), H.mean(1))
    maps = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(pooled(maps, "mean"), maps.mean((2, 3)))


def test_an_image_folder_has_its_own_pooler_and_normalisation(packages, tmp_path):
    model = folder_of(tmp_path / "vit")
    about = {"image_mean": MEAN, "image_std": STD, "size": {"shortest_edge": 9}, "crop_size": {"height": 8, "width": 8}}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(about))
    adapted = from_huggingface(tmp_path / "vit")
    assert (adapted.size, adapted.mean, adapted.std, adapted.output) == (8, MEAN, STD, "pooler_output")
    assert torch.equal(adapted.encoder(X), model(X).pooler_output)
    mean = from_huggingface(str(tmp_path / "vit"), output="mean")
    torch.testing.assert_close(mean.encoder(X), model(X).last_hidden_state.mean(1))
    with pytest.raises(InvalidInputError, match="no tokenizer"):
        mean.tokens(["a"])


def test_a_pooler_that_the_weights_lack_is_noise_and_goes(packages, tmp_path):
    model = folder_of(tmp_path / "dino", without=["pooler."])
    adapted = from_huggingface(tmp_path / "dino")
    assert adapted.output == "cls" and not any("pooler" in key for key in adapted.encoder.state_dict())
    assert torch.equal(adapted.encoder(X), model(X).last_hidden_state[:, 0])
    with pytest.raises(InvalidInputError, match=r"lack 2 tensors of Transformer, such as pooler.0.bias"):
        from_huggingface(tmp_path / "dino", output="pooler_output")
    folder_of(tmp_path / "broken", without=["dense."])
    with pytest.raises(InvalidInputError, match="lack 2 tensors .* dense.bias"):
        from_huggingface(tmp_path / "broken", output="mean")


def test_a_folder_is_built_again_from_its_configuration_and_filled_from_a_run(packages, tmp_path):
    folder_of(tmp_path / "vit", without=["pooler."])
    adapted = from_huggingface(tmp_path / "vit")
    save_weights(adapted.encoder, tmp_path / "run.safetensors")
    again = load_encoder(f"hf:{tmp_path / 'vit'}", tmp_path / "run.safetensors", output=adapted.output).encoder
    assert torch.equal(again(X), adapted.encoder(X))


def test_text_is_pooled_over_its_tokens_and_goes_through_the_kernel(packages, tmp_path):
    model = folder_of(tmp_path / "bert", text=True)
    adapted = from_huggingface(tmp_path / "bert")
    T = adapted.tokens(["a bb ccc", "dddd", "ee ffffff a bb ccc dd"])
    assert adapted.output == "mean" and T["input_ids"].shape == (3, 5)
    H = model(input_ids=T["input_ids"]).last_hidden_state
    torch.testing.assert_close(adapted.encoder(**T)[1], H[1, 0])
    K = EmpiricalNTK(adapted.encoder)(T, T)
    assert K.shape == (3, 3) and torch.linalg.eigvalsh(K.double())[0] > -1e-5


def test_sentences_go_through_pooling_dense_layers_and_normalisation(packages, tmp_path):
    root = tmp_path / "st"
    model = folder_of(root, text=True)
    dense = nn.Linear(6, 4)
    steps = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in steps.items()]
    for path in list(steps)[1:]:
        (root / path).mkdir()
    (root / "modules.json").write_text(json.dumps(listed))
    (root / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}'
    )
    about = {"in_features": 6, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"}
    (root / "2_Dense" / "config.json").write_text(json.dumps(about))
    weights_of(dense, root / "2_Dense" / "model.safetensors", prefix="linear.")
    (root / "sentence_bert_config.json").write_text('{"max_seq_length": 3}')
    adapted = from_sentence_transformers(root)
    T = adapted.tokens(["a bb", "ccc dd e ffff g"])
    assert T["input_ids"].shape == (2, 3)
    Y = torch.tanh(dense(pooled(model(**T).last_hidden_state, "mean", T["attention_mask"])))
    torch.testing.assert_close(adapted.encoder(**T), Y / Y.norm(dim=1, keepdim=True))
    hostile = {
        "subprocess.Popen": "none of sentence-transformers",
        "sentence_transformers.models.LSTM": "Dense, Dropout and Normalize are understood",
    }
    for kind, problem in hostile.items():
        (root / "modules.json").write_text(json.dumps([*listed[:2], {"path": "2_Dense", "type": kind}]))
        with pytest.raises(InvalidInputError, match=problem):
            from_sentence_transformers(root)
    (root / "modules.json").write_text(json.dumps([{**listed[0], "path": "../elsewhere"}]))
    with pytest.raises(InvalidInputError, match="outside of its own"):
        from_sentence_transformers(root)


def spoiled(root):
    """Folders that cannot be used, and what is said of each."""
    made = {}
    for name in ("no config", "no json", "a list", "adapter", "pickle", "no weights", "decoder", "unknown", "sizes"):
        folder_of(root / name)
        made[name] = root / name
    (made["no config"] / "config.json").unlink()
    (made["no json"] / "config.json").write_text("{'model_type': ")
    (made["a list"] / "config.json").write_text("[]")
    (made["adapter"] / "adapter_config.json").write_text("{}")
    (made["pickle"] / "model.safetensors").rename(made["pickle"] / "pytorch_model.bin")
    (made["no weights"] / "model.safetensors").unlink()
    (made["decoder"] / "config.json").write_text('{"model_type": "bart", "is_encoder_decoder": true}')
    (made["unknown"] / "config.json").write_text('{"model_type": "evil", "auto_map": {"AutoModel": "code.Evil"}}')
    save_file({"dense.weight": torch.zeros(2, 2)}, made["sizes"] / "model.safetensors")
    return made


SAID = {
    "no config": "holds no config.json",
    "no json": "is no JSON file",
    "a list": "holds a list, not a dict",
    "adapter": "merge_and_unload",
    "pickle": "only pytorch_model.bin, which is not read: model.safetensors is required",
    "no weights": "holds no weights",
    "decoder": "an encoder and a decoder",
    "unknown": "does not know the model 'evil'",
    "sizes": "1 tensors of .* have other shapes .* dense.weight",
}


def test_a_part_that_cannot_be_imported_says_what_broke():
    """Packages import their parts late, and of torchvision for another torch they tell only that a model is missing."""
    with pytest.raises(
        InvalidInputError, match=r"cannot load it \(no BertModel; operator nms does not exist\)\. Do this"
    ):
        with foreign("cannot load it", "Do this."):
            try:
                raise RuntimeError("operator nms does not exist")
            except RuntimeError as error:
                raise ModuleNotFoundError("no BertModel") from error


def test_folders_that_cannot_be_used_say_why(packages, tmp_path):
    for name, folder in spoiled(tmp_path).items():
        with pytest.raises(InvalidInputError, match=SAID[name]):
            from_huggingface(folder)
    with pytest.raises(InvalidInputError, match="not a local folder, and nothing is looked for on the network"):
        from_huggingface("google/vit-base-patch16-224")
    with pytest.raises(InvalidInputError, match="no modules.json"):
        from_sentence_transformers(tmp_path)
    folder_of(tmp_path / "odd")
    (tmp_path / "odd" / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [0, 1, 1]}')
    with pytest.raises(InvalidInputError, match="image_std is"):
        from_huggingface(tmp_path / "odd")


def test_an_output_that_is_not_there_is_named():
    class Backbone(nn.Module):
        def forward(self, x):
            return Output(last_hidden_state=x)

    with pytest.raises(UnsupportedEncoderError, match="output='pooler_output' is not among .*last_hidden_state"):
        Embedding(Backbone(), "pooler_output")(X)
