r"""Made-up people for a first table: nobody's data, and a sensitive column that other columns give away.

sex          F or M
occupation   leans on sex: of each sex, strength of the people work in one of three occupations of its own
hours        a little longer for M
education, age, district, children, savings      independent of sex
income       "high" or "low", by education, age and hours
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from krepes._checks import require_range

OCCUPATIONS = ("nurse", "teacher", "clerk", "engineer", "driver", "builder")
EDUCATION = ("school", "college", "bachelor", "master")
DISTRICTS = ("east", "north", "south", "west")


def people(n: int = 2000, *, seed: int = 0, strength: float = 0.8) -> pd.DataFrame:
    """Return a table of ``n`` made-up people.

    Args:
        n: Rows, at least 2.
        seed: Another seed draws others.
        strength: How far occupation follows sex: 0 not at all, 1 wholly.

    Returns:
        The table: ``age``, ``education``, ``occupation``, ``hours``, ``district``, ``children``, ``savings``, ``sex``
        and ``income``.

    Example:
        >>> people(3, seed=1)["income"].isin(["high", "low"]).all()
        np.True_
    """
    require_range(n, "n", low=2)
    require_range(strength, "strength", low=0.0, high=1.0)
    rng = np.random.default_rng(seed)
    sex = rng.integers(2, size=n)
    own = rng.integers(3, size=n) + 3 * sex
    occupation = np.where(rng.random(n) < strength, own, rng.integers(6, size=n))
    age = rng.integers(18, 76, size=n)
    education = rng.integers(4, size=n)
    hours = rng.normal(36.0 + 2.0 * sex, 6.0).clip(8, 70).round()
    earned = 0.6 * education + 0.03 * (age - 45) + 0.06 * (hours - 37) + rng.normal(0, 0.7, size=n)
    return pd.DataFrame({
        "age": age,
        "education": [EDUCATION[i] for i in education],
        "occupation": [OCCUPATIONS[i] for i in occupation],
        "hours": hours.astype(int),
        "district": rng.choice(DISTRICTS, size=n),
        "children": rng.poisson(1.2, size=n),
        "savings": rng.exponential(9000.0, size=n).round(-1).astype(int),
        "sex": np.where(sex == 1, "M", "F"),
        "income": np.where(earned > 0.9, "high", "low"),
    })
