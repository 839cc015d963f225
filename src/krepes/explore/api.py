"""The questions that the page can ask, by their addresses. Answers are plain data, without paths or tracebacks."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from krepes.data.export import csv_text
from krepes.data.text import printable
from krepes.errors import KrepesError
from krepes.explore.colours import packed
from krepes.explore.run import Run, compared
from krepes.explore.security import Refused
from krepes.explore.selection import Selection, Strict
from krepes.report.pictures import thumbnail

STATIC = Path(__file__).parent / "static"
WAITING = 32
"""Questions that need long work and wait for their turn, at most."""


class ConceptAsked(Strict):
    """Samples of a concept, and samples that are not; by default random others."""

    positive: Selection
    negative: Selection | None = None


class WhatIfAsked(Strict):
    """Samples to take away, and columns whose groups are followed."""

    remove: Selection
    groups: list[str] = []


class ExportAsked(Strict):
    """Samples to export, and how."""

    selection: Selection
    format: Literal["csv", "json"] = "csv"


class Api:
    """The routes of one or two runs.

    Args:
        runs: Opened runs, by their place in the address: ``a`` and ``b``.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = dict(zip("ab", runs, strict=False))
        self._turn, self._waiting, self._keys = threading.Lock(), 0, 0

    def application(self) -> FastAPI:
        """Return the application, without pages of its own about itself."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        routes: dict[str, tuple[str, Callable[..., Response]]] = {
            "/": ("GET", self.page),
            "/api/about": ("GET", self.about),
            "/api/compare": ("GET", self.compare),
            "/api/{run}/points": ("GET", self.points),
            "/api/{run}/colours": ("GET", self.colours),
            "/api/{run}/search": ("GET", self.search),
            "/api/{run}/place": ("GET", self.place),
            "/api/{run}/samples/{row}": ("GET", self.sample),
            "/api/{run}/samples/{row}/influence": ("GET", self.influence),
            "/api/{run}/samples/{row}/picture": ("GET", self.picture),
            "/api/{run}/groups": ("GET", self.groups),
            "/api/{run}/features": ("GET", self.features),
            "/api/{run}/select": ("POST", self.select),
            "/api/{run}/concept": ("POST", self.concept),
            "/api/{run}/whatif": ("POST", self.whatif),
            "/api/{run}/export": ("POST", self.export),
        }
        for path, (method, answer) in routes.items():
            app.add_api_route(path, answer, methods=[method])
        app.mount("/static", StaticFiles(directory=STATIC))
        app.add_exception_handler(KrepesError, _said)
        app.add_exception_handler(Refused, _refused)
        app.add_exception_handler(RequestValidationError, _misformed)
        app.add_exception_handler(HTTPException, _unknown)
        app.add_exception_handler(Exception, _failed)
        return app

    def page(self) -> Response:
        """Return the page, which holds no data."""
        return Response((STATIC / "index.html").read_bytes(), media_type="text/html; charset=utf-8")

    def about(self) -> Response:
        """Return what there is to explore."""
        return _json({"runs": {name: run.about() for name, run in self.runs.items()}})

    def points(self, run: str, space: str = "encoder", projection: str = "pca", box: str | None = None) -> Response:
        """Return the points of a map to draw."""
        asked = self._run(run)
        places = asked.maps.places(space, projection)
        rows = asked.maps.drawn(places, _box(box))
        about = {"total": len(places), "drawn": len(rows)}
        return _packed(packed(about, {"rows": rows.astype(np.uint32), "places": places[rows]}))

    def colours(self, run: str, by: str, name: str | None = None, row: int | None = None) -> Response:
        """Return what to colour the points by."""
        asked = self._run(run)
        if row is not None:
            asked.require(row)
        return _packed(asked.colours.of(by, name, row))

    def search(self, run: str, q: str = Query(max_length=200)) -> Response:
        """Return samples that a text names."""
        return _json({"found": self._run(run).selections.search(q)})

    def place(self, run: str, id: str = Query(max_length=1000)) -> Response:
        """Return the place of the sample that an id names."""
        return _json({"row": self._run(run).state.subject.place_of.get(id)})

    def sample(self, run: str, row: int) -> Response:
        """Return the page of a sample."""
        asked = self._run(run)
        return _json(asked.samples.page(asked.require(row)))

    def influence(self, run: str, row: int) -> Response:
        """Return what would change a sample."""
        asked = self._run(run)
        with self._one_at_a_time():
            return _json(asked.samples.would_change(asked.require(row)))

    def picture(self, run: str, row: int) -> Response:
        """Return a sample that is a picture, as a PNG."""
        asked = self._run(run)
        drawn = asked.state.subject.drawn
        if drawn is None:
            raise Refused(404, "the samples of this run are no pictures")
        return Response(thumbnail(drawn(asked.require(row)), "").content, media_type="image/png")

    def groups(self, run: str, column: str) -> Response:
        """Return the groups of a column crossed with those of first landmarks."""
        with self._one_at_a_time():
            return _json(self._run(run).matrix.of(column))

    def features(self, run: str) -> Response:
        """Return the columns that the latent space keeps."""
        with self._one_at_a_time():
            return _json(self._run(run).matrix.features)

    def select(self, run: str, asked: Selection) -> Response:
        """Return what a selection holds."""
        chosen = self._run(run).selections
        rows = chosen.places(asked)
        about = chosen.summary(rows)
        return _packed(packed(_finite(about), {"rows": rows.astype(np.uint32)}))

    def concept(self, run: str, asked: ConceptAsked) -> Response:
        """Fit a concept to selections."""
        found = self._run(run)
        positive = found.selections.places(asked.positive)
        negative = None if asked.negative is None else found.selections.places(asked.negative)
        with self._one_at_a_time():
            vector, answer = found.ideas.concept(positive, negative)
            key = self._key()
            found.colours.keep(key, "pull towards the concept", found.ideas.along(vector))
        return _json({**answer, "key": key})

    def whatif(self, run: str, asked: WhatIfAsked) -> Response:
        """Take a selection away and say what moves."""
        found = self._run(run)
        rows = found.selections.places(asked.remove)
        with self._one_at_a_time():
            answer, moved = found.ideas.what_if(rows, asked.groups)
            key = self._key()
            found.colours.keep(key, "moved without them", moved)
        return _json({**answer, "key": key})

    def export(self, run: str, asked: ExportAsked) -> Response:
        """Return a selection as a file."""
        found = self._run(run).selections
        frame = found.frame(found.places(asked.selection))
        if asked.format == "csv":
            content, kind = csv_text(frame).encode("utf-8", "replace"), "text/csv; charset=utf-8"
        else:
            content, kind = frame.to_json(orient="records", default_handler=str).encode(), "application/json"
        named = {"content-disposition": f'attachment; filename="selection.{asked.format}"'}
        return Response(content, media_type=kind, headers=named)

    def compare(self) -> Response:
        """Return how far two runs agree."""
        if len(self.runs) < 2:
            raise Refused(404, "one run is open: name a second one to compare, krepes explore RUN RUN2")
        with self._one_at_a_time():
            return _json(compared(self.runs["a"], self.runs["b"]))

    def _run(self, name: str) -> Run:
        if name not in self.runs:
            raise Refused(404, f"there is no run {printable(name)[:20]!r} here")
        return self.runs[name]

    def _key(self) -> str:
        self._keys += 1
        return str(self._keys)

    @contextmanager
    def _one_at_a_time(self) -> Generator[None, None, None]:
        """Let questions that need long work wait for each other, and refuse more than a few."""
        if self._waiting >= WAITING:
            raise Refused(429, f"{WAITING} questions wait for an answer already: ask again in a moment")
        self._waiting += 1
        try:
            with self._turn:
                yield
        finally:
            self._waiting -= 1


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        left, bottom, right, top = (float(part) for part in text.split(","))
    except ValueError:
        raise Refused(400, "a box is four numbers: left, bottom, right, top") from None
    return left, bottom, right, top


def _json(value: Any) -> Response:
    return Response(json.dumps(_finite(value), allow_nan=False), media_type="application/json")


def _packed(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


def _finite(value: Any) -> Any:
    """Return plain values without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _error(status: int, why: str) -> Response:
    return Response(json.dumps({"error": why}), status_code=status, media_type="application/json")


async def _said(request: Request, error: Exception) -> Response:
    return _error(400, printable(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _error(error.status, error.why)


async def _misformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0] if error.errors() else {}
    where = ".".join(str(part) for part in first.get("loc", ()))
    return _error(422, printable(f"the question cannot be read: {where}: {first.get('msg', '')}")[:300])


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, {404: "there is nothing at this address"}.get(error.status_code, "refused"))


async def _failed(request: Request, error: Exception) -> Response:
    return _error(500, "this could not be answered; the terminal says what kind of error it was")
