"""What a solution says of several steps: the worst residual, the last step that was taken, all iterations."""

import json
import math
from dataclasses import replace

import pytest
import torch

from krepes.engine.solution import DampingTrial, Solution, Step

TRIAL = DampingTrial(damping=1.0, loss=5.0, gain=0.9, iterations=3, converged=True)
GRID = (TRIAL, TRIAL)


def step(**changed):
    settings = {
        "damping": 1.0,
        "damping_absolute": 2.0,
        "loss_before": 9.0,
        "loss_after": 8.0,
        "gain": 0.9,
        "accepted": True,
        "converged": True,
        "residual": 1e-9,
        "iterations": 4,
    }
    return Step(**settings | changed)


def solution(*steps):
    theta = torch.zeros(3, 2, dtype=torch.float64)
    return Solution(theta, theta + 1, tuple(steps), tol=1e-8)


# Four steps, the worst residual in the middle, the last one rejected with one that is worse still.
STEPS = (
    step(residual=1e-9, gain=0.9, damping=1.0, damping_absolute=10.0, loss_before=9.0, loss_after=8.0, iterations=4),
    step(residual=5e-9, gain=0.3, damping=0.5, damping_absolute=6.0, loss_before=8.0, loss_after=7.0, iterations=6),
    step(residual=2e-9, gain=0.7, damping=0.1, damping_absolute=1.5, loss_before=7.0, loss_after=6.5, grid=GRID),
    step(residual=1.0, gain=-1.0, damping=9.0, damping_absolute=99.0, loss_before=6.5, loss_after=7.5, accepted=False),
)  # fmt: skip


def test_the_residual_is_the_worst_of_the_steps_that_were_taken():
    assert solution(*STEPS).residual == 5e-9
    assert solution(*STEPS[1:]).residual == 5e-9  # the worst is the first
    assert solution(*STEPS[:2]).residual == 5e-9  # the worst is the last
    assert solution(STEPS[3]).residual == 1.0  # none was taken: that of the one that was tried


def test_gain_and_damping_are_those_of_the_last_step_that_was_taken():
    found = solution(*STEPS)
    assert (found.gain, found.damping, found.damping_absolute) == (0.7, 0.1, 1.5)
    assert (solution(STEPS[3]).gain, solution(STEPS[3]).damping) == (-1.0, 9.0)


def test_losses_span_from_the_first_step_to_the_last_that_was_taken():
    found = solution(*STEPS)
    assert (found.loss_before, found.loss_after) == (9.0, 6.5)
    assert (solution(STEPS[3]).loss_before, solution(STEPS[3]).loss_after) == (6.5, 6.5)


def test_converged_is_about_every_step_that_was_taken():
    assert solution(*STEPS).converged
    for position in range(3):
        steps = [replace(each, converged=i != position) for i, each in enumerate(STEPS)]
        assert not solution(*steps).converged
    assert solution(*STEPS[:3], replace(STEPS[3], converged=False)).converged
    assert not solution(STEPS[3]).converged  # no step was taken


def test_iterations_count_every_solve_of_a_search():
    assert solution(*STEPS).iterations == 4 + 6 + 2 * 3 + 4


@pytest.mark.parametrize("gain", [0.9, -1.0, math.inf])
def test_a_solution_survives_the_trip_through_json(gain):
    found = solution(*STEPS[:2], replace(STEPS[2], gain=gain, history=(0.5, 0.1)), STEPS[3])
    stored = json.loads(json.dumps(found.to_dict()))
    again = Solution.from_dict(stored, found.theta0, found.theta)
    assert again.steps == found.steps and again.to_dict() == found.to_dict()
    assert stored["residual"] == 5e-9 and stored["gain"] == gain
