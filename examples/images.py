"""A folder of images from files to a strip of landmarks: scikit-learn's digits, written out as PNG files first."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from PIL import Image
from sklearn.datasets import load_digits

from krepes import Krepes, attribute
from krepes.audit import label_consistency, rankings
from krepes.data import image_folder
from krepes.encoders import MLP, pretrain
from krepes.figures import landmark_strips, render
from krepes.views import RandomResizedCrop, ViewStream

TEST = 60


def write_images(folder: Path, n: int) -> None:
    """Write ``n`` digits as images, one sub-folder a class: such folders become labels, which only judge."""
    digits = load_digits()
    for i in range(n):
        place = folder / str(digits.target[i])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15.9).astype("uint8")).save(place / f"{i:04d}.png")


def main(folder: Path) -> Path:
    """Explain held-out images of ``folder / "photos"`` and return the path of a picture strip."""
    write_images(folder / "photos", 500)
    photos = image_folder(folder / "photos", size=8, channels=1)
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0)).tolist()
    ids, labels = ([values[i] for i in order] for values in (photos.ids, photos.labels))
    images = photos.stack()[order]

    stream = ViewStream(images[TEST:], RandomResizedCrop(scale=(0.7, 1.0)), seed=0)
    torch.manual_seed(0)
    encoder = pretrain(MLP(64, width=128, out=32), stream, epochs=10, progress=False).encoder
    model = Krepes(encoder, m=80, h=16, progress=False).fit(stream, ids=ids[TEST:])

    found = attribute(model, images[:3], ids=ids[:3])
    print(found.to_frame(k=3), end="\n\n")
    of_landmarks = [labels[TEST:][i] for i in model.landmarks_.tolist()]
    table = label_consistency(rankings(model, images[:TEST], k=5), of_landmarks, labels[:TEST], depths=[5])
    print(table[table["metric"] == "precision"][["method", "estimate", "low", "high"]], end="\n\n")

    best = found.top(6, by="magnitude")
    figure = landmark_strips(images[:3], model.stream_.plain(model.landmarks_), best.indices, best.scores)
    strip = folder / "strip.png"
    strip.write_bytes(render(figure))
    return strip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(f"strip of {main(Path(place)).stat().st_size:,} bytes")
