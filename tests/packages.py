"""Stand-ins for timm, torchvision, open_clip and transformers: their interfaces as far as the adapters use them."""

import json
import types
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from torch import nn

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.2, 0.1)


class Net(nn.Module):
    """Pixels to features to classes, with the names and attributes that the packages give."""

    def __init__(self, classes=10, size=8, channels=3, head="fc"):
        super().__init__()
        self.stem = nn.Conv2d(channels, 6, 4, stride=4)
        self.num_classes, self.global_pool, self.name = classes, "avg", head
        self.pretrained_cfg = {"input_size": (3, size, size), "mean": MEAN, "std": STD}
        setattr(self, head, nn.Linear(6, classes) if classes else nn.Identity())

    def forward(self, x):
        return getattr(self, self.name)(torch.tanh(self.stem(x)).mean((2, 3)))

    def reset_classifier(self, classes, global_pool=None):
        self.num_classes, self.global_pool = classes, global_pool or self.global_pool
        setattr(self, self.name, nn.Identity())


def timm():
    made = types.ModuleType("timm")

    def create_model(name, pretrained, num_classes, img_size=8, in_chans=3):
        assert pretrained is False
        return Net(num_classes, img_size, in_chans, head="head")

    made.list_models = lambda pretrained=False: ["tiny.dino"] if pretrained else ["tiny", "small"]
    made.get_pretrained_cfg = lambda name, allow_unregistered: SimpleNamespace(to_dict=lambda: Net().pretrained_cfg)
    made.create_model = create_model
    return made


def torchvision():
    made, models = types.ModuleType("torchvision"), types.ModuleType("torchvision.models")
    prepare = SimpleNamespace(crop_size=[8], mean=MEAN, std=STD)

    def get_model(name, weights):
        assert weights is None
        return Net(head={"resnet": "fc", "convnext": "classifier"}[name])

    models.list_models = lambda module: ["resnet", "convnext"]
    models.get_model = get_model
    models.get_model_weights = lambda name: SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: prepare))
    made.models = models
    return made


def open_clip():
    made = types.ModuleType("open_clip")
    tags = {"openai": (MEAN, STD), "other": ((0.5,) * 3, (0.5,) * 3)}

    def create_model(name, pretrained, pretrained_image, pretrained_text, force_image_size=8):
        assert (pretrained, pretrained_image, pretrained_text) == (None, False, False)
        model = nn.Module()
        model.visual, model.logit_scale = Net(0, force_image_size), nn.Parameter(torch.zeros(()))
        model.visual.image_size, model.visual.image_mean, model.visual.image_std = (8, 8), MEAN, STD
        return model

    made.OPENAI_DATASET_MEAN, made.OPENAI_DATASET_STD = MEAN, STD
    made.list_models = lambda: ["ViT-B-32", "ViT-L-14", "roberta"]
    made.list_pretrained_tags_by_model = lambda name: list(tags) if name == "ViT-L-14" else ["openai"]
    made.get_pretrained_cfg = lambda name, tag: dict(zip(("mean", "std"), tags[tag], strict=True))
    made.get_model_config = lambda name: {
        "vision_cfg": {"image_size": 8},
        "text_cfg": {"hf_model_name": "roberta-base"} if name == "roberta" else {},
    }
    made.create_model = create_model
    return made


class Output(OrderedDict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Transformer(nn.Module):
    """Tokens (of text) or patches (of images), states of each, and a pooler of the first."""

    def __init__(self, config):
        super().__init__()
        self.config, self.main_input_name = SimpleNamespace(**config), config["main_input_name"]
        text = self.main_input_name == "input_ids"
        self.embed = nn.Embedding(20, 6, padding_idx=0) if text else nn.Conv2d(3, 6, 4, stride=4)
        self.dense, self.pooler = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x=None, input_ids=None, attention_mask=None):
        x = self.embed(input_ids) if x is None else self.embed(x).flatten(2).mT
        states = torch.tanh(self.dense(x))
        found = Output(last_hidden_state=states)
        if self.pooler is not None:
            found["pooler_output"] = self.pooler(states[:, 0])
        return found


class Tokenizer:
    """Words of a fixed list by number, padded by zeros."""

    model_max_length = 5

    def __call__(self, texts, padding, truncation, return_tensors):
        assert padding and truncation and return_tensors == "pt"
        rows = [[1 + len(word) for word in text.split()][: self.model_max_length] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def transformers():
    made = types.ModuleType("transformers")

    def require_safe(kwargs):
        assert kwargs["local_files_only"] is True and kwargs["trust_remote_code"] is False

    class AutoConfig:
        @staticmethod
        def from_pretrained(folder, **kwargs):
            require_safe(kwargs)
            found = json.loads(Path(folder, "config.json").read_text())
            if found.get("model_type") != "tiny":
                raise ValueError("unknown model")
            return found

    class AutoModel:
        @staticmethod
        def from_config(config):
            return Transformer(config)

        @staticmethod
        def from_pretrained(folder, config, use_safetensors, output_loading_info, ignore_mismatched_sizes, **kwargs):
            require_safe(kwargs)
            assert use_safetensors and output_loading_info and ignore_mismatched_sizes
            model, state = Transformer(config), load_file(Path(folder, "model.safetensors"))
            own = model.state_dict()
            other = [key for key in state if key in own and state[key].shape != own[key].shape]
            fits = {key: state[key] for key in state if key in own and key not in other}
            missing = model.load_state_dict(fits, strict=False).missing_keys
            return model, {"missing_keys": set(missing) - set(other), "mismatched_keys": {(key,) for key in other}}

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(folder, **kwargs):
            require_safe(kwargs)
            return Tokenizer()

    made.AutoConfig, made.AutoModel, made.AutoTokenizer = AutoConfig, AutoModel, AutoTokenizer
    bars = SimpleNamespace(is_progress_bar_enabled=lambda: False, disable_progress_bar=lambda: None)
    made.utils = SimpleNamespace(logging=bars)
    return made


def weights_of(module, path, prefix=""):
    save_file({f"{prefix}{key}": value.contiguous() for key, value in module.state_dict().items()}, path)
    return path


def folder_of(path, text=False, without=(), **config):
    """A folder as ``save_pretrained`` writes it."""
    path.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "tiny", "main_input_name": "input_ids" if text else "pixel_values", **config}
    torch.manual_seed(3)
    model = Transformer(config).eval()
    state = {key: value for key, value in model.state_dict().items() if not key.startswith(tuple(without) or "/")}
    save_file(state, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return model


FAKES = {"timm": timm, "torchvision": torchvision, "open_clip": open_clip, "transformers": transformers}
