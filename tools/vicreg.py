"""Which VICReg of the surrogate, from which start, predicts retraining: the table of docs/design.md.

python -m tools.vicreg digits --halves 80        (minutes; MNIST needs --data-dir)
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

from krepes.model import Krepes
from krepes.objectives import VICReg
from krepes.proof.halves import retrain
from krepes.proof.lds import lds, noise_ceiling
from krepes.proof.scores import counterfactual
from krepes.proof.subject import MARGIN, PAIR
from krepes.reproduce.retraining import open_study

LANDMARKS, DRAWS, H = 128, 8, 64
TRAINED: dict[str, Any] = {"inv_reduction": "nh", "var_halved": True}
VARIANTS: dict[str, tuple[VICReg, dict[str, Any]]] = {
    "paper's weights, principal components": (VICReg(), {"h": H}),
    "paper's weights, principal components, hinge at 0.1": (VICReg(std_target=0.1), {"h": H}),
    "paper's weights, encoder": (VICReg(), {"init": "encoder"}),
    "trained weights, principal components": (VICReg(**TRAINED), {"h": H}),
    "trained weights, encoder": (VICReg(**TRAINED), {"init": "encoder"}),
    "trained weights, encoder, centred and normalised": (
        VICReg(**TRAINED),
        {"init": "encoder", "centre": True, "cosine": True},
    ),
}


def main() -> None:
    """Retrain on random halves, and print how well each variant predicted it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="digits, mnist, ...")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--halves", type=int, default=80)
    parser.add_argument("--path", default=None, help="file that keeps the retrained halves")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    study = open_study(given.data, given.data_dir, 0, loss="vicreg", train_rows=300)
    halves = retrain(study, given.halves, 2, path=given.path)
    print("possible", {name: round(noise_ceiling(halves.outcomes[name]), 2) for name in (MARGIN, PAIR)})
    encoder = study.record(0).encoder
    for name, (objective, options) in VARIANTS.items():
        model = Krepes(encoder, objective=objective, landmarks=range(LANDMARKS), progress=False, **options)
        found = counterfactual(study, model.fit(study.copies(DRAWS)))
        values = [lds(found[kind], halves.member, halves.outcomes[kind]) for kind in (MARGIN, PAIR)]
        print(f"{name:52s} margin {values[0]:+.2f}  pair {values[1]:+.2f}", flush=True)


if __name__ == "__main__":
    main()
