"""Real classes of timm, open_clip and transformers with tiny random weights, where they are installed; else skipped."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from krepes import Krepes
from krepes.encoders import from_huggingface, from_openclip, from_sentence_transformers, from_timm, load_encoder
from krepes.views import RandomResizedCrop
from test_docs import NEEDS, ROOT, blocks, without_numbers

PAGE = ROOT / "docs" / "real_encoders.md"
TINY = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32)
SIZES = dict(img_size=32, depth=2, embed_dim=24, num_heads=3)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a cat sat on the mat dog ran far away".split()]
SMALLER = {'"dino.pth")': '"dino.pth", img_size=32, depth=2, embed_dim=24, num_heads=3)'}
X = torch.rand(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def make_dino(timm):
    torch.manual_seed(0)
    model = timm.create_model("vit_small_patch16_224.dino", **SIZES).eval()
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("head.")}
    head = {"module.head.mlp.0.weight": torch.zeros(4, 24)}
    torch.save({"student": {f"module.backbone.{key}": value for key, value in state.items()} | head}, "dino.pth")
    return model


def make_clip(transformers):
    torch.manual_seed(0)
    text = dict(vocab_size=99, max_position_embeddings=16, bos_token_id=1, eos_token_id=2, **TINY)
    vision = dict(image_size=32, patch_size=8, **TINY)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = transformers.CLIPModel(config).eval()
    model.save_pretrained("clip-folder")
    about = {"image_mean": [0.5] * 3, "image_std": [0.2] * 3, "crop_size": {"height": 32, "width": 32}}
    Path("clip-folder", "preprocessor_config.json").write_text(json.dumps(about))
    return model


def make_bert(transformers):
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **TINY)
    model = transformers.BertForMaskedLM(config).eval()
    model.save_pretrained("bert-folder")
    tokenizer = transformers.BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)})
    tokenizer.save_pretrained("bert-folder")
    return model


def make_photos():
    os.mkdir("photos")
    for i in range(24):
        pixels = np.random.default_rng(i).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{i}.png")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        yield tmp_path


def examples():
    """Blocks of the page that need a package, with the text block that follows each."""
    found = blocks(PAGE)
    return [(a, b) for a, b in zip(found, found[1:], strict=False) if a.note.startswith(NEEDS)]


@pytest.mark.parametrize("block, shown", examples(), ids=lambda block: str(block.line))
def test_the_page_keeps_its_word(block, shown, capsys, real):
    package = real(block.note.removeprefix(NEEDS))
    make_photos()
    for make in (make_dino,) if package.__name__ == "timm" else (make_clip, make_bert):
        make(package)
    text = block.text
    for long, short in SMALLER.items():
        text = text.replace(long, short)
    capsys.readouterr()
    exec(compile("\n" * block.line + text, str(PAGE), "exec"), {"__name__": "document"})
    assert without_numbers(capsys.readouterr().out) == without_numbers(shown.text)


def test_the_page_has_an_example_of_each():
    assert sorted(block.note for block, _ in examples()) == [
        "needs: timm",
        "needs: transformers",
        "needs: transformers",
    ]
    assert all(shown.language == "text" for _, shown in examples())


def test_dino_of_timm(real):
    timm = real("timm")
    model = make_dino(timm)
    adapted = from_timm("vit_small_patch16_224.dino", "dino.pth", **SIZES)
    assert adapted.output == "cls" and adapted.size == 32 and len(adapted.mean) == 3
    torch.testing.assert_close(adapted.encoder(X), model.forward_features(X)[:, 0])
    assert from_timm(model).encoder(X).shape == (24, 24)
    mean = from_timm("vit_small_patch16_224.dino", "dino.pth", output="mean", **SIZES)
    assert mean.output == "mean"
    torch.testing.assert_close(mean.encoder(X), model.forward_features(X)[:, 1:].mean(1))
    assert from_timm(timm.create_model("resnet18", num_classes=3)).output == "mean"


def test_clip_and_bert_of_transformers(real):
    transformers = real("transformers")
    clip, adapted = make_clip(transformers), None
    adapted = from_huggingface("clip-folder")
    wanted = clip.visual_projection(clip.vision_model(X).pooler_output)
    torch.testing.assert_close(adapted.encoder(X), wanted)
    save_file({key: value.contiguous() for key, value in adapted.encoder.state_dict().items()}, "run.safetensors")
    assert torch.equal(load_encoder("hf:clip-folder", "run.safetensors").encoder(X), adapted.encoder(X))
    bert, text = make_bert(transformers), from_huggingface("bert-folder")
    tokens = text.tokens(["a cat sat", "dog"])
    H = bert.bert(**tokens).last_hidden_state
    torch.testing.assert_close(text.encoder(**tokens), torch.stack([H[0].mean(0), H[1, :3].mean(0)]))


@pytest.mark.parametrize("kind", ["T5EncoderModel", "T5Model"])
def test_of_a_t5_the_encoder_is_taken_alone(kind, real):
    transformers = real("transformers")
    make_bert(transformers)  # its tokenizer serves here
    torch.manual_seed(0)
    sizes = dict(vocab_size=len(WORDS), d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3)
    model = getattr(transformers, kind)(transformers.T5Config(**sizes)).eval()
    model.save_pretrained("t5-folder")
    transformers.AutoTokenizer.from_pretrained("bert-folder").save_pretrained("t5-folder")
    adapted = from_huggingface("t5-folder")
    tokens = adapted.tokens(["a cat sat", "dog"])
    H = model.encoder(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state
    torch.testing.assert_close(adapted.encoder(**tokens), torch.stack([H[0].mean(0), H[1, :3].mean(0)]))
    assert not any("decoder" in name for name, _ in adapted.encoder.named_parameters())


def test_a_sentence_encoder_gives_what_its_own_package_gives(real):
    transformers = real("transformers")
    package = real("sentence_transformers")
    make_bert(transformers)
    modules = real("sentence_transformers.sentence_transformer.modules")
    steps = [modules.Transformer("bert-folder"), modules.Pooling(24, pooling_mode="mean"), modules.Dense(24, 8)]
    model = package.SentenceTransformer(modules=[*steps, modules.Normalize()], device="cpu")
    model.save_pretrained("sentences")
    texts = ["a cat sat on the mat", "the dog"]
    adapted = from_sentence_transformers("sentences")
    torch.testing.assert_close(adapted.encoder(**adapted.tokens(texts)).detach(), torch.tensor(model.encode(texts)))


def test_an_image_tower_of_openclip(real):
    open_clip = real("open_clip")
    vision = dict(image_size=32, layers=2, width=64, patch_size=8, head_width=32)
    text = dict(context_length=8, vocab_size=99, width=32, heads=2, layers=1)
    Path("tiny-clip.json").write_text(json.dumps({"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config("tiny-clip.json")
    model = open_clip.create_model("tiny-clip").eval()
    torch.save({"state_dict": {f"module.{key}": value for key, value in model.state_dict().items()}}, "clip.pt")
    adapted = from_openclip("tiny-clip", "clip.pt")
    torch.testing.assert_close(adapted.encoder(X), model.encode_image(X))
    assert adapted.size == 32 and adapted.mean == open_clip.OPENAI_DATASET_MEAN
    augment = adapted.normalised(RandomResizedCrop())
    fitted = Krepes(adapted.encoder, m=4, h=2, augment=augment, parameters="last", progress=False).fit(X)
    assert fitted.transform(X).shape == (24, 2)
