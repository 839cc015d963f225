"""What a replay of a training needs: the weights it started from and its settings; all else follows from the seed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import AdamW, Steps
from krepes.encoders.training import Training, TrainingRecipe, mix
from krepes.encoders.twins import Bootstrap, Twins
from krepes.errors import InvalidInputError
from krepes.storage.tensorfile import read_tensors, write_tensors
from krepes.views import ViewStream

FORMAT = 1


@dataclass(frozen=True)
class Recording:
    """A training before its first step.

    Attributes:
        recipe: Of the training.
        start: Weights and statistics of encoder, projector and, for BYOL, predictor and target, by name.
    """

    recipe: TrainingRecipe
    start: dict[str, Tensor] = field(repr=False)

    @classmethod
    def of(cls, training: Training) -> Recording:
        """Return the recording of a training that has taken no step."""
        return cls(training.recipe, {name: x.detach().clone() for name, x in training.twins.state_dict().items()})

    def save(self, path: str | Path) -> None:
        """Write a safetensors file."""
        write_tensors(path, self.start, {"recording": FORMAT, "training": asdict(self.recipe)})

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The recording.

        Raises:
            InvalidInputError: If it is no recording.
        """
        tensors, details = read_tensors(path)
        if details.get("recording") != FORMAT:
            raise InvalidInputError(
                f"{path} is not the recording of a training. Pretrain with record=True and save it."
            )
        return cls(TrainingRecipe(**details["training"]), tensors)

    def steps(self, twins: Twins, stream: ViewStream) -> Steps:
        """Return the steps of the training, to be differentiated.

        Args:
            twins: Networks of the same layers; a copy of them is used.
            stream: The views it was trained on.

        Returns:
            The steps.

        Raises:
            InvalidInputError: If the stream is not that of the training, or it was computed in half precision.
        """
        if self.recipe.precision is not None:
            raise InvalidInputError(
                f"the training was computed in {self.recipe.precision}, whose rounding has no derivative: it cannot be "
                f"replayed. Use a warm replay, which starts at the trained encoder."
            )
        if self.recipe.stream is not None and self.recipe.stream != stream.fingerprint():
            raise InvalidInputError(
                f"the stream's fingerprint is {stream.fingerprint()[:12]}, the recorded training had "
                f"{self.recipe.stream[:12]}. Pass the same data, augmentation and seed."
            )
        twins = duplicate(twins).train()
        twins.load_state_dict(self.start)
        training = Training(twins, stream, self.recipe)
        rule = AdamW(training.rate, self.recipe.weight_decay)
        tau = (lambda t: twins.rate(t / training.steps)) if isinstance(twins, Bootstrap) else (lambda t: 1.0)
        seed = self.recipe.seed
        return Steps(twins, training.batch, rule, training.steps, stream.n, lambda t: mix(seed, 1, t), tau)
