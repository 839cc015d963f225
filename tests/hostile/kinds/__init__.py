"""The kinds of hostile input, one file each; a seed gives the same cases every time."""

from collections.abc import Callable, Iterator
from random import Random

from hostile.case import Case
from hostile.kinds import (
    arguments,
    factories,
    images,
    names,
    npy,
    parquet,
    runs,
    schemas,
    sentences,
    shards,
    shell,
    tables,
    toml,
    weights,
)

KINDS: dict[str, Callable[[Random], Iterator[Case]]] = {
    "npy": npy.cases,
    "table": tables.cases,
    "parquet": parquet.cases,
    "schema": schemas.cases,
    "image": images.cases,
    "shard": shards.cases,
    "sentences": sentences.cases,
    "weights": weights.cases,
    "factory": factories.cases,
    "names": names.cases,
    "shell": shell.cases,
    "toml": toml.cases,
    "arguments": arguments.cases,
    "run": runs.cases,
}


def generated(kind: str, seed: int = 0) -> list[Case]:
    """Return all cases of a kind."""
    return list(KINDS[kind](Random(f"{kind} {seed}")))
