r"""Populations with a planted truth: one column drives the latent space, one is its proxy, the others are noise.

    group      ~ uniform over 4 levels                           the driver
    district   = that of the group with probability strength, else uniform      its proxy
    age, income, hours, savings, education, housing              independent of both, and of each other

In the encoded ``X`` the driver stands at a scale of 2, the proxy at 1 and the noise at 0.3, so that samples of one
group form a cluster; noise of the size `Population.jitter` leaves the clusters and drowns the noise columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_range

GROUPS = ("azure", "crimson", "olive", "violet")
DISTRICTS = ("east", "north", "south", "west")
EDUCATION = ("none", "school", "college", "bachelor", "master")
HOUSING = ("family", "owns", "rents")
DRIVER, PROXY = "group", "district"


@dataclass(frozen=True, eq=False)
class Population:
    """Rows of a table, as a reader sees them and as an encoder does.

    Attributes:
        frame: The table, ``n`` rows; categorical columns have their levels fixed.
        X: Encoded rows, ``(n, d)``, float32: standardised numbers, one-hot categories, times the column's scale.
        groups: The columns of ``X`` that belong to each encoded column of ``frame``.
        driver: The column that drives the latent space.
        proxy: The column that follows it.
        noise_columns: The others.
        labels: Level of the driver, ``(n,)``, int64.
        jitter: Standard deviation of the noise that an augmentation should add to each column of ``X``, ``(d,)``.
    """

    frame: pd.DataFrame
    X: Tensor
    groups: Mapping[str, slice]
    driver: str
    proxy: str
    noise_columns: tuple[str, ...]
    labels: Tensor
    jitter: Tensor


def applicants(n: int, *, seed: int = 0, proxy_strength: float = 0.8, encode_driver: bool = True) -> Population:
    """Return ``n`` made-up applicants, of four groups that live in districts of their own, more or less.

    Args:
        n: Rows, at least 2.
        seed: Another seed draws another population.
        proxy_strength: Probability that the district is the group's; otherwise it is any of the four.
        encode_driver: Whether ``X`` holds the group itself. Without it only the proxy tells.

    Returns:
        The population.

    Example:
        >>> people = applicants(500, seed=1)
        >>> people.frame.columns.tolist()
        ['group', 'district', 'age', 'income', 'hours', 'savings', 'education', 'housing']
        >>> people.X[:, people.groups["group"]].shape
        torch.Size([500, 4])
    """
    require_range(n, "n", low=2)
    require_range(proxy_strength, "proxy_strength", low=0.0, high=1.0)
    rng = np.random.default_rng(seed)
    group = rng.integers(len(GROUPS), size=n)
    district = np.where(rng.random(n) < proxy_strength, group, rng.integers(len(DISTRICTS), size=n))
    frame = pd.DataFrame({
        DRIVER: _categories(group, GROUPS),
        PROXY: _categories(district, DISTRICTS),
        "age": rng.integers(18, 76, size=n),
        "income": rng.lognormal(10.4, 0.5, size=n).round(2),
        "hours": rng.normal(38.0, 6.0, size=n).clip(5, 80).round(1),
        "savings": rng.exponential(9000.0, size=n).round(2),
        "education": _categories(rng.integers(len(EDUCATION), size=n), EDUCATION),
        "housing": _categories(rng.integers(len(HOUSING), size=n), HOUSING),
    })
    noise = tuple(str(column) for column in frame if column not in {DRIVER, PROXY})
    scale = {DRIVER: 2.0, PROXY: 1.0} | dict.fromkeys(noise, 0.3)
    encoded = frame if encode_driver else frame.drop(columns=DRIVER)
    X, groups = _encode(encoded, scale)
    jitter = torch.full((X.shape[1],), 0.1)
    for column in noise:
        jitter[groups[column]] = scale[column]
    return Population(frame, X, groups, DRIVER, PROXY, noise, torch.from_numpy(group), jitter)


def _categories(codes: np.ndarray, levels: tuple[str, ...]) -> pd.Categorical[str]:
    return pd.Categorical.from_codes(codes, categories=pd.Index(levels))


def _encode(frame: pd.DataFrame, scale: Mapping[str, float]) -> tuple[Tensor, dict[str, slice]]:
    """Return the encoded rows, ``(n, d)``, and the columns of each column."""
    blocks, groups, start = [], {}, 0
    for name, values in frame.items():
        column = str(name)
        if isinstance(values.dtype, pd.CategoricalDtype):
            block = pd.get_dummies(values).to_numpy(np.float64)
        else:
            block = ((values - values.mean()) / (values.std() or 1.0)).to_numpy(np.float64)[:, None]
        blocks.append(scale[column] * block)
        groups[column] = slice(start, start + block.shape[1])
        start += block.shape[1]
    return torch.from_numpy(np.hstack(blocks)).to(torch.float32), groups
