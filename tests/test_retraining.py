"""An encoder of a run trained again on some of its samples, by the run's own recipe."""

import pytest
import torch

from krepes.encoders import MLP, save_weights
from krepes.errors import InvalidInputError
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.retraining import require_recipe, retrained
from krepes.runs.settings import Settings

SMALL = {
    "data": "digits",
    "max_rows": 80,
    "holdout": 0.25,
    "encoder": "mlp",
    "encoder_options": {"width": 12, "depth": 1, "out": 6},
    "projector": (8,),
    "augment": "crops",
    "epochs": 2,
    "batch_size": 20,
    "m": 12,
    "h": 4,
    "loss": "vicreg",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retraining") / "run"
    fit(Settings(**SMALL), folder, progress=False)
    return folder


def weights(encoder):
    return torch.cat([x.flatten() for x in encoder.state_dict().values()])


def test_all_places_and_the_runs_own_seed_give_the_encoder_of_the_run(run):
    space = open_run(run)
    again = retrained(space, torch.arange(len(space.train)), space.settings.seed)
    assert torch.equal(weights(again), weights(space.model.kernel)) and not again.training


def test_weights_follow_from_places_and_seed_alone(run):
    space, half = open_run(run), torch.arange(30)
    before = torch.random.get_rng_state()
    first, same, other = (weights(retrained(space, half, seed)) for seed in (5, 5, 6))
    assert torch.equal(first, same) and not torch.equal(first, other)
    assert not torch.equal(first, weights(retrained(space, half + 1, 5)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_weights_of_unknown_training_are_refused_with_what_to_give(tmp_path):
    save_weights(MLP(64, 12, 1, 6), tmp_path / "own.safetensors")
    space = fit(Settings(**SMALL, weights=str(tmp_path / "own.safetensors")), tmp_path / "run", progress=False)
    with pytest.raises(InvalidInputError, match="krepes pretrain"):
        require_recipe(space)
    with pytest.raises(InvalidInputError, match="krepes pretrain"):
        retrained(open_run(tmp_path / "run"), torch.arange(20), 0)


def test_a_kernel_and_a_module_without_factory_are_refused(run, tmp_path):
    kernel = fit(Settings(**{**SMALL, "kernel": "rbf", "encoder": None}), tmp_path / "run", progress=False)
    with pytest.raises(InvalidInputError, match="no training to repeat"):
        require_recipe(kernel)
    with pytest.raises(InvalidInputError, match="module:factory"):
        require_recipe(open_run(run, encoder=MLP(64, 12, 1, 6)))
