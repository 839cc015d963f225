"""Damage to bytes, repeatable by seed: what disks, networks, editors and attackers do to files."""

from collections.abc import Iterator
from random import Random

TOKENS = (
    b"\x00",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\x7f\xff\xff\xff",
    b"\n",
    b'"',
    b"\\",
    b"\x1b[31m",
)


def damaged(content: bytes, rng: Random, number: int) -> Iterator[tuple[str, bytes]]:
    """Yield a description and the damaged bytes, ``number`` times, one sort of damage after the other."""
    sorts = (cut, flipped, overwritten, inserted, repeated, zeroed, shuffled)
    for i in range(number):
        sort = sorts[i % len(sorts)]
        place, changed = sort(content, rng)
        yield f"{sort.__name__} at {place} of {len(content)}", changed


def cut(content: bytes, rng: Random) -> tuple[int, bytes]:
    place = rng.randrange(len(content))
    return place, content[:place]


def flipped(content: bytes, rng: Random) -> tuple[int, bytes]:
    changed, place = bytearray(content), rng.randrange(len(content))
    changed[place] ^= 1 << rng.randrange(8)
    return place, bytes(changed)


def overwritten(content: bytes, rng: Random) -> tuple[int, bytes]:
    # Headers stand at the beginning, footers at the end: both are hit as often as all between.
    zone = rng.choice([(0, 64), (0, len(content)), (max(0, len(content) - 64), len(content))])
    place, token = rng.randrange(zone[0], max(zone[0] + 1, min(zone[1], len(content)))), rng.choice(TOKENS)
    return place, content[:place] + token + content[place + len(token) :]


def inserted(content: bytes, rng: Random) -> tuple[int, bytes]:
    place = rng.randrange(len(content))
    return place, content[:place] + rng.choice(TOKENS) * rng.choice([1, 2, 100]) + content[place:]


def repeated(content: bytes, rng: Random) -> tuple[int, bytes]:
    place = rng.randrange(len(content))
    return place, content[:place] + content[place : place + 40] * 3 + content[place + 40 :]


def zeroed(content: bytes, rng: Random) -> tuple[int, bytes]:
    place = rng.randrange(len(content))
    length = min(len(content) - place, rng.choice([4, 32, 512]))
    return place, content[:place] + b"\0" * length + content[place + length :]


def shuffled(content: bytes, rng: Random) -> tuple[int, bytes]:
    place, length = rng.randrange(len(content)), rng.choice([8, 64])
    piece = list(content[place : place + length])
    rng.shuffle(piece)
    return place, content[:place] + bytes(piece) + content[place + length :]
