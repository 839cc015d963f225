"""An encoder of a run trained again on some of its samples, by the run's own recipe."""

import pytest
import torch

from krepes.encoders import MLP, pretrain, save_weights
from krepes.errors import InvalidInputError
from krepes.influence import influence_of
from krepes.influence.members import mean_of_members
from krepes.influence.reverse import forward
from krepes.influence.rungs import recorded_steps
from krepes.runs.answers import similarity_of
from krepes.runs.encoder import fresh_encoder
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.retraining import how_to_replay, recordings, require_recipe, retrained
from krepes.runs.settings import Settings
from krepes.runs.training import pretrain_run

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


def pretrained(folder, **changes):
    pretrain_run(Settings(**{**SMALL, **changes}), folder / "w.safetensors", progress=False)
    return str(folder / "w.safetensors")


@pytest.mark.parametrize("options", [{}, {"loss": "barlow_twins", "loss_options": {"lam": 0.5}}, {"loss": "byol"}])
def test_recording_is_made_from_the_seed_and_ends_at_the_encoder_of_the_run(options, tmp_path):
    """Weights by `krepes pretrain`, other settings of the fit: the recipe is that of the weights."""
    weights_file = pretrained(tmp_path, **options)
    fit(Settings(**{**SMALL, "epochs": 7, "loss": "simclr"}, weights=weights_file), tmp_path / "run", progress=False)
    space = open_run(tmp_path / "run")
    (found,), stream = recordings(space)
    settings = Settings(**{**SMALL, **options})
    other = pretrain(
        fresh_encoder(settings, space.data, stream),
        stream,
        loss=settings.training_loss,
        loss_options=settings.loss_options,
        projector=settings.projector,
        epochs=2,
        record=True,
        progress=False,
    ).recording
    assert found.recipe.loss == other.recipe.loss and set(found.start) == set(other.start)
    assert all(torch.equal(x, other.start[name]) for name, x in found.start.items())
    steps = recorded_steps(found, space.model.kernel, stream)
    end = forward(steps, steps.start(), torch.ones(steps.n), steps.T)[-1]
    own = {f"encoder.{name}": x for name, x in space.model.kernel.state_dict().items()}
    missed, moved = (sum((at[name] - x).square().sum() for name, x in own.items()) for at in (end, found.start))
    assert missed < 0.05 * moved  # in float32, where AdamW enlarges the rounding of gradients near zero
    how, _ = how_to_replay(space, "auto", members=2, seconds=9.0)
    assert len(how.recordings) == 2 and how.loss == settings.training_loss or callable(how.loss)
    assert (tmp_path / "w.safetensors").stat().st_size < 4 * weights(space.model.kernel).numel() + 6000


def test_replay_of_a_run_averages_its_members(run):
    space = open_run(run)
    outcome = similarity_of(space, *space.test_ids[:2])
    values = []
    for members in (1, 2):
        how, stream = how_to_replay(space, "replay", members=members, seconds=9.0)
        values.append(
            influence_of(space.model, outcome, method="replay", how=how, stream=stream, progress=False).values
        )
    assert len(how.recordings) == 2 and len({one.recipe.seed for one in how.recordings}) == 2
    own = influence_of(
        space.model,
        outcome,
        method="replay",
        how=type(how)(recordings=how.recordings[1:]),
        stream=stream,
        progress=False,
    ).values
    expected, _ = mean_of_members([torch.tensor(values[0]), torch.tensor(own)])
    torch.testing.assert_close(torch.tensor(values[1]), expected)
    assert len(how_to_replay(space, "auto", members=4, seconds=9.0)[0].recordings) == 4
    assert not how_to_replay(space, "warm", members=4, seconds=9.0)[0].recordings


def test_weights_trained_on_other_samples_are_refused(tmp_path):
    weights_file = pretrained(tmp_path, seed=3)
    space = fit(Settings(**SMALL, weights=weights_file), tmp_path / "run", progress=False)
    for opened in (space, open_run(tmp_path / "run")):
        with pytest.raises(InvalidInputError, match="other samples"):
            recordings(opened)


def test_a_weights_file_names_no_code_to_import(tmp_path):
    """What the header says of the encoder is not followed; a recipe that is none is left aside."""
    settings = Settings(**SMALL)
    encoder = MLP(64, 12, 1, 6)
    for recipe, known in (
        ({"settings": {**settings.to_dict(), "encoder": "os:system"}, "stream": "x"}, True),
        ({"settings": {"data": 3}, "stream": "x"}, False),
        ({"settings": None}, False),
    ):
        save_weights(encoder, tmp_path / "w.safetensors", recipe=recipe)
        chosen = Settings(**SMALL, weights=str(tmp_path / "w.safetensors"))
        found = fit(chosen, tmp_path / "run", progress=False).recipe
        assert (found is not None) == known
        assert found is None or found.settings.encoder == "mlp"
