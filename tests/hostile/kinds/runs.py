"""Run folders of others: values of the wrong kind in a manifest whose hash was made right again, and plain damage."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch

from hostile.case import Case
from hostile.mutate import damaged
from krepes.runs import store
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.settings import Settings
from krepes.storage.tensorfile import read_tensor_bytes, tensor_bytes

TABLE = "who,x,y,kind\n" + "".join(f"p{i},{i * 37 % 17}.5,{i * 11 % 7},{'ab'[i % 2]}\n" for i in range(40))
WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**40,
    0.5,
    float("nan"),
    "",
    "../x",
    "os:system",
    [],
    {},
    [[]],
    {"a": {"b": 1}},
)
TEMPORARY = tempfile.TemporaryDirectory(prefix="krepes-hostile-")
KINDS = {
    "rbf": {"kernel": "rbf"},
    "mlp": {"encoder": "mlp", "encoder_options": {"width": 8, "out": 4}, "epochs": 1},
    "rows": {"kernel": "rbf", "objective": "byol"},
}


@cache
def example(kind: str) -> Path:
    """Return a run folder beside its table; the table is named without a path, as it lies in the folder of a case."""
    place = Path(TEMPORARY.name) / kind
    place.mkdir()
    (place / "t.csv").write_text(TABLE)
    settings = Settings(data=str(place / "t.csv"), id_column="who", m=8, h=2, **KINDS[kind])
    fit(settings, place / "run", progress=False)
    content = json.loads(next((place / "run").glob("settings-*.json")).read_text()) | {"data": "t.csv"}
    replaced(place / "run", "settings.json", json.dumps(content).encode())
    return place


def replaced(run: Path, name: str, content: bytes) -> None:
    """Put another file into a run, and make all hashes right again."""
    forged(run, lambda manifest: manifest["files"].update({name: store._write(run, name, content)}))


def forged(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((run / store.MANIFEST).read_text())
    manifest.pop("run_sha256", None)
    change(manifest)
    (run / store.MANIFEST).write_text(json.dumps({**manifest, "run_sha256": store._digest(manifest)}))


def copied(kind: str, change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def files(folder: Path) -> None:
        shutil.copytree(example(kind), folder, dirs_exist_ok=True)
        change(folder / "run")

    return files


def answered(folder: Path) -> Any:
    """Open a run and ask it for an embedding: a forged one must not answer differently in silence."""
    space = open_run(folder / "run")
    return space.model.embed(space.samples(["p3"]))


def paths(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value of a nesting of dicts and lists, of a list to its first entries alone."""
    if trail:
        yield trail
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*trail, key))
    elif isinstance(value, list):
        for place in range(min(2, len(value))):
            yield from paths(value[place], (*trail, place))


def put(value: Any, trail: tuple[Any, ...], new: Any) -> None:
    for step in trail[:-1]:
        value = value[step]
    value[trail[-1]] = new


def drop(value: Any, trail: tuple[Any, ...]) -> None:
    for step in trail[:-1]:
        value = value[step]
    del value[trail[-1]]


def cases(rng: Random) -> Iterator[Case]:
    for kind in KINDS:
        yield Case("run", f"a good run of {kind}", copied(kind, lambda run: None), answered, "read")
        yield from of_manifest(kind, rng)
        yield from of_files(kind, rng)


def of_manifest(kind: str, rng: Random) -> Iterator[Case]:
    manifest = json.loads((example(kind) / "run" / store.MANIFEST).read_text())
    found = [trail for trail in paths(manifest) if trail[0] not in {"run_sha256", "versions"}]
    for trail in found:
        name = f"{kind}: manifest {'.'.join(map(str, trail))}"
        for value in rng.sample(WRONG, 3):
            change = copied(kind, lambda run, t=trail, v=value: forged(run, lambda m: put(m, t, v)))
            yield Case("run", f"{name} is {value!r}"[:120], change, answered)
        yield Case(
            "run", f"{name} is gone", copied(kind, lambda run, t=trail: forged(run, lambda m: drop(m, t))), answered
        )


def of_files(kind: str, rng: Random) -> Iterator[Case]:
    run = example(kind) / "run"
    manifest = json.loads((run / store.MANIFEST).read_text())
    for name, entry in manifest["files"].items():
        content = (run / entry["file"]).read_bytes()
        for number, bad in damaged(content, rng, 6):
            file = entry["file"]
            change = copied(kind, lambda run, f=file, b=bad: (run / f).write_bytes(b))
            expect = "either" if bad == content else "refused"
            yield Case("run", f"{kind}: damage {number} of {name}", change, answered, expect)
            if not name.startswith("rows/"):
                change = copied(kind, lambda run, n=name, b=bad: replaced(run, n, b))
                yield Case("run", f"{kind}: damage {number} of {name}, hash made right", change, answered)
        change = copied(kind, lambda run, f=entry["file"]: (run / f).unlink())
        yield Case("run", f"{kind}: {name} is gone", change, answered, "refused")
    for name in ("arrays.safetensors", "data.safetensors"):
        tensors, header = read_tensor_bytes((run / manifest["files"][name]["file"]).read_bytes())
        for key, x in tensors.items():
            for what, new in forgeries(x).items():
                try:
                    content = tensor_bytes({**tensors, key: new}, header)
                except KeyError:  # older safetensors cannot write complex numbers
                    continue
                change = copied(kind, lambda run, n=name, c=content: replaced(run, n, c))
                yield Case("run", f"{kind}: {name} {key} {what}", change, answered)
            content = tensor_bytes({k: v for k, v in tensors.items() if k != key}, header)
            yield Case(
                "run",
                f"{kind}: {name} without {key}",
                copied(kind, lambda run, n=name, c=content: replaced(run, n, c)),
                answered,
            )


def forgeries(x: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {
        "empty": x[:0],
        "a number": torch.zeros(()),
        "one axis more": x[None],
        "of text": x.to(torch.uint8),
        "complex": x.to(torch.complex64),
        "one shorter": x[:-1],
        "negative": -x - 1,
        "zero": torch.zeros_like(x),
    }
    if x.is_floating_point():
        found |= {"nan": torch.full_like(x, float("nan")), "huge": torch.full_like(x, 1e30)}
    return {name: value.contiguous() for name, value in found.items()}
