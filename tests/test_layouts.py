"""Checkpoints of vision transformers and of frameworks around encoders, each made by hand in its project's layout."""

import argparse

import pytest
import torch
from torch import nn

from krepes.encoders import load_encoder
from krepes.errors import InvalidInputError


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d), nn.Module()
        self.attn.qkv, self.attn.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.attn.qkv(self.norm1(x)).chunk(3, -1)
        return x + self.attn.proj((q @ k.mT).softmax(-1) @ v)


class Transformer(nn.Module):
    """A vision transformer with the names of timm and DINO; with registers, those of timm."""

    def __init__(self, d=6, registers=0):
        super().__init__()
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 5, d))
        if registers:
            self.reg_token = nn.Parameter(torch.randn(1, registers, d))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, d, 4, stride=4)
        self.blocks, self.norm = nn.ModuleList([Block(d), Block(d)]), nn.LayerNorm(d)

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]


def prefixed(prefix, state):
    return {f"{prefix}{key}": value for key, value in state.items()}


HEAD = {"head.mlp.0.weight": torch.zeros(4, 6), "head.last_layer.weight_g": torch.zeros(9, 1)}


def dino(state, average):
    student, teacher = {**prefixed("backbone.", state), **HEAD}, {**prefixed("backbone.", average), **HEAD}
    loss = {"center": torch.zeros(1, 9)}
    args = argparse.Namespace(arch="vit_small", lr=0.0005, local_crops_scale=(0.05, 0.4))  # as its training writes them
    return {"student": prefixed("module.", student), "teacher": teacher, "dino_loss": loss, "epoch": 3, "args": args}


def dino_backbone_alone(state, _):
    return state


def ibot(state, average):
    masked = {"masked_embed": torch.zeros(1, 6)}
    return {
        "student": prefixed("module.backbone.", {**state, **masked}),
        "teacher": prefixed("backbone.", {**average, **masked}),
    }


def dinov2(_, average):
    masked = {"backbone.mask_token": torch.zeros(1, 6), "dino_head.mlp.0.weight": torch.zeros(4, 6)}
    return {"teacher": {**prefixed("backbone.", average), **masked}}


def mae(state, _):
    decoder = {"mask_token": torch.zeros(1, 1, 4), "decoder_pos_embed": torch.zeros(1, 5, 4)}
    decoder |= {"decoder_blocks.0.norm1.weight": torch.zeros(4), "decoder_pred.weight": torch.zeros(48, 4)}
    return {"model": {**state, **decoder}, "epoch": 1}


def moco_v3(state, average):
    heads = {"module.predictor.0.weight": torch.zeros(4, 6)}
    networks = {**prefixed("module.base_encoder.", state), **prefixed("module.momentum_encoder.", average)}
    return {"state_dict": {**networks, **heads}, "arch": "vit_small"}


def lightning(state, _):
    about = {"pytorch-lightning_version": "2.5.0", "hyper_parameters": {"lr": 0.1}, "loops": {"fit_loop": {"n": 3}}}
    return {**about, "state_dict": {**prefixed("model.encoder.", state), "model.projector.0.weight": torch.zeros(4, 6)}}


def lightly(state, average):
    networks = {**prefixed("student_backbone.vit.", state), **prefixed("teacher_backbone.vit.", average)}
    masked = {"student_backbone.mask_token": torch.zeros(1, 1, 6)}
    heads = {**prefixed("student_", HEAD), **prefixed("teacher_", HEAD), "criterion.center": torch.zeros(1, 9)}
    return {"state_dict": {**networks, **masked, **heads}}


def solo_learn(state, average):
    heads = {"projector.0.weight": torch.zeros(4, 6), "classifier.weight": torch.zeros(2, 6)}
    networks = {**prefixed("backbone.", state), **prefixed("momentum_backbone.", average)}
    return {"state_dict": {**networks, **heads}, "optimizer_states": [{"state": {}}]}


def vissl(state, _):
    heads = {"0.clf.0.weight": torch.zeros(4, 6)}
    model = {"trunk": prefixed("_feature_blocks.", state), "heads": heads}
    return {"phase_idx": 4, "classy_state_dict": {"base_model": {"model": model, "meta": {"n": 1}}}}


def i_jepa(state, average):
    predictor = {"module.mask_token": torch.zeros(1, 1, 4), "module.predictor_norm.weight": torch.zeros(4)}
    encoders = {"encoder": prefixed("module.", state), "target_encoder": prefixed("module.", average)}
    return {**encoders, "predictor": predictor, "epoch": 1}


LAYOUTS = {
    dino: ("student/module.backbone.", ("teacher/backbone.",)),
    dino_backbone_alone: ("", ()),
    ibot: ("student/module.backbone.", ("teacher/backbone.",)),
    dinov2: ("teacher/backbone.", ()),
    mae: ("model/", ()),
    moco_v3: ("state_dict/module.base_encoder.", ("state_dict/module.momentum_encoder.",)),
    lightning: ("state_dict/model.encoder.", ()),
    lightly: ("state_dict/student_backbone.vit.", ("state_dict/teacher_backbone.vit.",)),
    solo_learn: ("state_dict/backbone.", ("state_dict/momentum_backbone.",)),
    vissl: ("classy_state_dict/base_model/model/trunk/_feature_blocks.", ()),
    i_jepa: ("encoder/module.", ("target_encoder/module.",)),
}


def networks(**sizes):
    torch.manual_seed(0)
    return Transformer(**sizes).state_dict(), Transformer(**sizes).state_dict()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_checkpoint_loads_whole_from_where_its_project_keeps_it(layout, tmp_path):
    state, average = networks()
    torch.save(layout(state, average), tmp_path / "c.pth")
    loaded = load_encoder(Transformer, tmp_path / "c.pth")
    assert (loaded.report.prefix, loaded.report.alternatives) == LAYOUTS[layout]
    assert loaded.report.complete
    wanted = average if layout is dinov2 else state
    assert all(torch.equal(value, wanted[key]) for key, value in loaded.encoder.state_dict().items())
    for prefix in LAYOUTS[layout][1]:
        other = load_encoder(Transformer, tmp_path / "c.pth", prefix=prefix).encoder.state_dict()
        assert all(torch.equal(value, average[key]) for key, value in other.items())


def test_registers_of_dinov2_are_those_of_timm(tmp_path):
    state, _ = networks(registers=2)
    theirs = {key.replace("reg_token", "register_tokens"): value for key, value in state.items()}
    torch.save(theirs | {"mask_token": torch.zeros(1, 6)}, tmp_path / "c.pth")
    loaded = load_encoder(Transformer, tmp_path / "c.pth", registers=2)
    assert loaded.report.layout == "DINOv2" and torch.equal(loaded.encoder.reg_token, state["reg_token"])


def test_a_part_of_the_network_is_not_taken_for_a_head(tmp_path):
    state, _ = networks()
    torch.save(state | {"blocks.2.norm1.weight": torch.zeros(6)}, tmp_path / "c.pth")
    with pytest.raises(InvalidInputError, match=r"1 unexpected: blocks.2.norm1.weight"):
        load_encoder(Transformer, tmp_path / "c.pth")
