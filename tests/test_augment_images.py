"""Image augmentations against per-image oracles, exact at the ends of their ranges, right in their rates."""

from dataclasses import replace

import pytest
import torch

from krepes.errors import InvalidInputError
from krepes.views import (
    ColourJitter,
    GaussianBlur,
    Grey,
    HorizontalFlip,
    Noise,
    Normalise,
    RandomResizedCrop,
    Solarize,
    ViewStream,
    asymmetric_cifar,
    symmetric_cifar,
)
from krepes.views.colour import CHANGES, adjust_contrast, adjust_hue, adjust_saturation, grey
from krepes.views.crop import crop_and_resize
from krepes.views.images import blur
from oracles import views as oracle

EXACT = dict(rtol=0, atol=0)
# float64 against float64: the oracle adds in another order, nothing more.
TIGHT = dict(rtol=0, atol=1e-12)


def images(b, C=3, H=8, W=10, seed=0):
    return torch.rand(b, C, H, W, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noise(b, seed=0):
    return Noise(torch.arange(b), view=0, seed=seed)


# Crop and flip


@pytest.mark.parametrize("size", [(8, 10), (20, 13), (5, 4), (3, 17)], ids=str)
def test_crop_equals_cutting_and_resizing_image_by_image(size):
    X = images(6)
    box = torch.tensor([[0, 0, 8, 10], [1, 2, 5, 3], [7, 9, 1, 1], [0, 4, 8, 2], [3, 0, 2, 10], [2, 3, 4, 4]])
    torch.testing.assert_close(crop_and_resize(X, box, size), oracle.crop_and_resize(X, box, size), **TIGHT)


def test_crop_of_the_whole_image_is_the_image():
    X = images(5, H=9, W=9)
    torch.testing.assert_close(RandomResizedCrop(scale=(1, 1), ratio=(1, 1))(X, noise(5)), X, **EXACT)


def test_boxes_fit_and_keep_to_area_and_ratio():
    crop = RandomResizedCrop(scale=(0.2, 0.5))
    top, left, height, width = crop.boxes(noise(5000), 200, 300).unbind(1)
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 200).all() and (left + width <= 300).all()
    area, ratio = height * width / (200 * 300), width / height
    # Rounding to whole pixels moves a side of about 100 by at most half a pixel.
    assert area.min() > 0.2 - 0.01 and area.max() < 0.5 + 0.01
    assert ratio.min() > 3 / 4 - 0.02 and ratio.max() < 4 / 3 + 0.02
    # Uniform area: mean 0.35, standard error 0.0012; log-ratio symmetric about zero, standard error 0.0024.
    assert abs(float(area.mean()) - 0.35) < 0.01 and abs(float(ratio.log().mean())) < 0.015


def test_boxes_reach_every_corner():
    top, left, height, width = RandomResizedCrop(scale=(0.3, 0.3), ratio=(1, 1)).boxes(noise(5000), 10, 10).unbind(1)
    assert set(height.tolist()) == set(width.tolist()) == {5}
    assert set(top.tolist()) == set(left.tolist()) == set(range(6))


def test_box_that_never_fits_falls_back_to_the_centre():
    boxes = RandomResizedCrop(scale=(1, 1), ratio=(1, 1)).boxes(noise(50), 4, 10)
    torch.testing.assert_close(boxes, torch.tensor([0, 3, 4, 4]).expand(50, 4), **EXACT)


def test_plain_images_are_resized_whole():
    X = images(2)
    whole = torch.tensor([[0, 0, 8, 10]] * 2)
    torch.testing.assert_close(RandomResizedCrop(5).plain(X), oracle.crop_and_resize(X, whole, (5, 5)), **TIGHT)
    torch.testing.assert_close(RandomResizedCrop().plain(X), X, **EXACT)


def test_flip_mirrors_exactly_half_of_the_images():
    X = images(1000, H=2, W=3)
    Y = HorizontalFlip()(X, noise(1000))
    same, mirrored = (Y == X).all((1, 2, 3)), (Y == X.flip(3)).all((1, 2, 3))
    # Five standard errors of a fair coin.
    assert (same | mirrored).all() and abs(int(mirrored.sum()) - 500) < 80


# Colour


@pytest.mark.parametrize("turns", [0.0, 0.1, -0.2, 0.5, 1.0])
def test_hue_equals_the_standard_library_pixel_by_pixel(turns):
    X = images(2, H=4, W=5)
    X[0, :, 0] = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 0, 1, 1], [0, 1, 0, 0, 0]], dtype=X.dtype)  # corners of the cube
    expected = torch.stack([oracle.turn_hue(x, turns) for x in X])
    torch.testing.assert_close(adjust_hue(X, torch.full((2,), turns, dtype=X.dtype)), expected, **TIGHT)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_neutral_amount_changes_nothing(change):
    X = images(3)
    neutral = torch.full((3,), 0.0 if change is adjust_hue else 1.0, dtype=X.dtype)
    torch.testing.assert_close(change(X, neutral), X, **TIGHT)


def test_zero_contrast_is_the_mean_luma_and_zero_saturation_is_grey():
    X = images(4)
    zero = torch.zeros(4, dtype=X.dtype)
    luma = (X * torch.tensor([0.299, 0.587, 0.114], dtype=X.dtype)[:, None, None]).sum(1, keepdim=True)
    # The mean is taken in steps of 2^-32.
    expected = luma.mean((1, 2, 3), keepdim=True).expand_as(X)
    torch.testing.assert_close(adjust_contrast(X, zero), expected, rtol=0, atol=2.0**-32)
    torch.testing.assert_close(adjust_saturation(X, zero), luma.expand_as(X), **TIGHT)


def test_jitter_applies_its_changes_one_after_another_in_a_drawn_order():
    X = images(24)
    jitter = ColourJitter(0.4, 0.4, 0.2, 0.1, probability=1.0)
    order = noise(24).bits("order", 4).argsort(dim=1)
    amounts = jitter._amounts(noise(24).uniform("amount", 4, dtype=X.dtype))
    expected = X.clone()
    for i in range(24):
        for number in order[i].tolist():
            expected[i : i + 1] = CHANGES[number](expected[i : i + 1], amounts[i : i + 1, number])
    torch.testing.assert_close(jitter(X, noise(24)), expected, **EXACT)
    assert len({tuple(row) for row in order.tolist()}) > 10


def test_jitter_factors_fill_their_ranges():
    u = noise(20_000).uniform("amount", 4)
    amounts = ColourJitter(0.4, 1.5, 0.2, 0.1)._amounts(u)
    low, high = torch.tensor([0.6, 0.0, 0.8, -0.1]), torch.tensor([1.4, 2.5, 1.2, 0.1])
    assert (amounts >= low - 1e-6).all() and (amounts <= high + 1e-6).all()
    torch.testing.assert_close(amounts.mean(0), (low + high) / 2, rtol=0, atol=0.03)


def test_solarize_inverts_from_the_threshold_on():
    X = torch.tensor([0.0, 0.4, 0.5, 0.9]).reshape(1, 1, 2, 2)
    expected = torch.tensor([0.0, 0.4, 0.5, 0.1]).reshape(1, 1, 2, 2)
    torch.testing.assert_close(Solarize(1.0)(X, noise(1)), expected)


# A blur narrower than a third of a pixel may leave every bit as it was.
RANDOM = [ColourJitter(), Grey(), Solarize(), GaussianBlur(sigma=(0.5, 1.0))]


@pytest.mark.parametrize("augment", RANDOM, ids=lambda augment: type(augment).__name__)
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_changes_come_at_their_probability(augment, probability):
    X = images(1000, H=3, W=3)
    changed = (replace(augment, probability=probability)(X, noise(1000)) != X).any(3).any(2).any(1)
    # Five standard errors of 1000 draws; nothing to spare at zero and one.
    bound = 5 * (probability * (1 - probability) * 1000) ** 0.5
    assert abs(int(changed.sum()) - 1000 * probability) <= bound


def test_one_channel_keeps_brightness_and_contrast_and_skips_colour():
    X = images(5, C=1)
    for skipped in (ColourJitter(0, 0, 0.5, 0.5, probability=1.0), Grey(1.0)):
        torch.testing.assert_close(skipped(X, noise(5)), X, **TIGHT)
    assert (ColourJitter(0.4, 0.4, probability=1.0)(X, noise(5)) != X).any()
    as_three = ColourJitter(probability=1.0)(X.expand(5, 3, 8, 10), noise(5))
    # A grey image of three equal channels is the same image; luma weights sum to one up to a rounding.
    torch.testing.assert_close(ColourJitter(probability=1.0)(X, noise(5)), as_three[:, :1], rtol=0, atol=2.0**-32)


# Blur and normalisation


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blur_equals_a_dense_convolution(sigma):
    X = images(2)
    expected = torch.stack([oracle.blur(x, sigma, 6) for x in X])
    torch.testing.assert_close(blur(X, torch.full((2,), sigma, dtype=X.dtype), 6), expected, **TIGHT)


def test_blur_gives_each_image_its_own_width():
    X = images(300, C=1, H=12, W=12)
    rough = GaussianBlur(1.0)(X, noise(300)).var((1, 2, 3))
    sigma = 0.1 + 1.9 * noise(300).uniform("sigma", dtype=torch.float64)
    assert rough[sigma < 0.3].min() > rough[sigma > 1.5].max()


def test_normalise_gives_mean_zero_and_deviation_one():
    X = images(50, H=20, W=20)
    mean, std = X.mean((0, 2, 3)), X.std((0, 2, 3))
    Y = Normalise(mean.tolist(), std.tolist())(X, noise(50))
    torch.testing.assert_close(Y.mean((0, 2, 3)), torch.zeros(3, dtype=X.dtype), **TIGHT)
    torch.testing.assert_close(Y.std((0, 2, 3)), torch.ones(3, dtype=X.dtype), **TIGHT)


# Recipes


def test_recipes_are_those_of_the_mathematics():
    first, second = ({part["name"]: part for part in view["parts"]} for view in asymmetric_cifar().describe()["parts"])
    jitter = dict(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, probability=0.8)
    for view in (first, second):
        assert view["RandomResizedCrop"]["scale"] == [0.08, 1.0]
        assert view["ColourJitter"].items() >= jitter.items()
        assert view["Grey"]["probability"] == 0.2 and view["HorizontalFlip"]["probability"] == 0.5
        assert "GaussianBlur" not in view
    assert "Solarize" not in first and second["Solarize"]["probability"] == 0.2
    strong = {part["name"]: part for part in symmetric_cifar().describe()["parts"]}
    assert strong["ColourJitter"].items() >= dict(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2).items()
    assert strong["GaussianBlur"] == {"name": "GaussianBlur", "probability": 0.5, "sigma": [0.1, 2.0]}
    assert "Solarize" not in strong


@pytest.mark.parametrize("recipe", [symmetric_cifar, asymmetric_cifar])
@pytest.mark.parametrize("C", [1, 3])
def test_recipes_give_two_views_of_grey_and_coloured_images(recipe, C):
    augment = recipe(mean=(0.5,) * C, std=(0.25,) * C)
    views = ViewStream(images(20, C).float(), augment).views_of(torch.arange(20))
    assert views.shape == (2, 20, C, 8, 10) and views.abs().max() <= 2
    assert (views[0] != views[1]).flatten(1).any(1).all()


# Refusals

REFUSED = {
    "bytes": (lambda: RandomResizedCrop()(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), noise(1)), "Divide bytes by 255"),
    "range": (lambda: ColourJitter()(255 * images(2), noise(2)), "values between 0 and 1, got"),
    "after normalise": (lambda: Solarize()(images(2) - 1, noise(2)), "put Normalise last"),
    "channels": (lambda: Grey()(images(2, C=4), noise(2)), "1 .grey. or 3 .red, green, blue. channels, got 4"),
    "means": (lambda: Normalise()(images(2, C=1), noise(2)), "3 means, the images 1 channels"),
    "means and deviations": (lambda: Normalise((0.5,), (0.1, 0.2)), "1 means and 2 deviations"),
    "deviation": (lambda: Normalise((0.5,), (0.0,)), "smallest of std=0"),
    "hue": (lambda: ColourJitter(hue=0.6), "hue=0.6 is out of range"),
    "scale": (lambda: RandomResizedCrop(scale=(0.5, 0.1)), "scale"),
    "sigma": (lambda: GaussianBlur(sigma=(0.0, 1.0)), "sigma"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_settings_and_images_are_refused(name):
    act, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message):
        act()


def test_grey_of_one_channel_is_itself():
    X = images(2, C=1)
    assert grey(X) is X
