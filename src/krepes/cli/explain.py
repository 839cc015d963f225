"""``krepes explain`` and ``krepes influence``: two questions that are not the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.show import notes, plain, say, show_frame, show_json
from krepes.errors import InvalidInputError

if TYPE_CHECKING:
    from krepes.influence import Outcome
    from krepes.runs.sentences import InWords
    from krepes.runs.workspace import Workspace

CONCEPT = "concept:"


def opened(
    run: str, data: str | None, data_dir: str | None, encoder: str | None, trust_code: bool, allow_changed_data: bool
) -> Workspace:
    """Return the workspace of a run, and say what must be known of its data."""
    from krepes.runs.opening import open_run

    space = open_run(
        run,
        data=data,
        data_dir=data_dir,
        encoder=encoder,
        trust_code=trust_code,
        allow_changed_data=allow_changed_data,
    )
    for note in space.notes:
        notes.print(f"[yellow]note[/] {plain(note)}", highlight=False, soft_wrap=True)
    return space


def explain(
    run: o.Run,
    row: o.Rows,
    top: o.Top = 5,
    strip: Annotated[str | None, typer.Option(help="For images: save a picture strip here.")] = None,
    decision: Annotated[
        bool,
        typer.Option(
            "--decision",
            help="Which landmarks support the decision of a linear probe for a class, and which oppose it?",
        ),
    ] = False,
    label: Annotated[
        str | None, typer.Option(help="With --decision: column of the classes; by default that of the fit.")
    ] = None,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    as_json: o.Json = False,
) -> None:
    """Which landmarks is this embedding made of? Attractive first, then repulsive.

    With --decision: which of them support what a linear probe on the surrogate decides for the sample, against the
    class that comes second, and which oppose it. The parts sum to the margin of the two classes.

    Example: [bold]krepes explain runs/income --row 17[/]

    Example: [bold]krepes explain runs/income --row 17 --decision[/]
    """
    from krepes.processes import require_alone
    from krepes.runs.answers import made_of, picture_strip
    from krepes.runs.sentences import landmarks_in_words

    _require_together(decision, strip, label)
    if decision:
        require_alone("krepes explain --decision")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    if decision:
        _explain_decision(space, row, label, top, as_json)
        return
    found = landmarks_in_words(space, made_of(space, row, top))
    if as_json:
        show_json({"notes": space.notes, "landmarks": found.frame, **_in_json(found)})
        return
    say_samples(found)
    short = found.frame[["sample", "landmark", "effect", "score", "text"]] if found.samples else found.frame
    show_frame(short, "what the embedding is made of (not: what would change it; see krepes influence)")
    if found.note:
        say(found.note)
    if space.asked.kind == "image":
        say(str(picture_strip(space, row, top, Path(strip or f"{run}-rows.png"))))


def _require_together(decision: bool, strip: str | None, label: str | None) -> None:
    """Refuse flags that have no meaning together, before anything is opened."""
    if decision and strip is not None:
        raise InvalidInputError("--strip draws what the embedding is made of, not a decision: leave one of them out.")
    if label is not None and not decision:
        raise InvalidInputError("--label says which classes a decision is about: pass --decision too, or leave it out.")


def _explain_decision(space: Workspace, row: list[str], label: str | None, top: int, as_json: bool) -> None:
    """Show the landmarks that support and that oppose a probe's decisions, and how far to trust it."""
    from dataclasses import asdict

    from krepes.runs.decisions import decision
    from krepes.runs.sentences import with_texts

    found = decision(space, row, label)
    k = min(top, len(found.landmark_ids))
    decisions, landmarks = found.summary(k), with_texts(space, found.to_frame(k), "landmark")
    if as_json:
        told = {"notes": space.notes, "trust": asdict(found.trust), "without": k}
        show_json({**told, "decisions": decisions, "landmarks": landmarks})
        return
    parts = ["supporting", "opposing", "rest"]
    columns = ["sample", "predicted", "against", "encoder_says", "margin", *parts]
    show_frame(decisions[columns], "margin of the predicted class to the second = supporting + opposing + rest")
    show_frame(landmarks, "landmarks that support the decision, and that oppose it")
    left = decisions[["sample", "margin", "without_supporting", "without_nearest", "without_random"]]
    show_frame(left, f"what is left of the margin without {k} landmarks, by how they are chosen")
    say(f"trust: {found.trust}")


def influence(
    run: o.Run,
    row: o.SomeRows = None,
    toward: Annotated[
        str | None, typer.Option(help="column=value: a group; concept:column=value: its direction.")
    ] = None,
    top: o.Top = 10,
    outcome: o.AnyOutcome = None,
    outcomes: o.OutcomeFile = None,
    method: o.Method = "auto",
    members: o.Members = 4,
    seconds: o.Seconds = 60.0,
    draws: Annotated[
        int,
        typer.Option(
            help="Average over so many draws of the views; 0: the surrogate takes those of the fit, lazy takes 4.",
            min=0,
        ),
    ] = 0,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Which training samples would change this if they weighed more, or were removed?

    Two rows: what brings them together or apart. One row with --toward: what pulls it to a group, or along the
    direction of a concept that separates the group from the others. Or any outcome that krepes curate knows.

    Example: [bold]krepes influence runs/income --row 17 --row 42[/]

    Example: [bold]krepes influence runs/income --row 17 --toward sex=Female[/]

    Example: [bold]krepes influence runs/income --outcome "group_distance sex" --method warm[/]

    Example: [bold]krepes influence runs/income --outcomes hundred.txt --method lazy --json[/]
    """
    from dataclasses import replace

    import pandas as pd

    from krepes.influence import influence_of
    from krepes.influence.caution import beside_a_proof, require_prediction
    from krepes.processes import require_alone
    from krepes.runs.retraining import how_to_replay
    from krepes.runs.sentences import rows_in_words

    if method != "lazy":
        require_alone(f"krepes influence --method {method}")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    if method == "surrogate":
        require_prediction(space.model.objective_, space.model.init, "--method surrogate")
    asked_about, ids = _outcomes(space, row or [], toward, outcome, outcomes)
    how, stream = how_to_replay(space, method, members=members, seconds=seconds)
    how = replace(how, draws=draws or how.draws)
    asked: dict[str, Any] = {"method": method, "how": how, "draws": draws, "progress": not quiet}
    found = influence_of(space.model, asked_about, stream=stream, ids=space.train_ids, **asked)
    k = min(top, len(space.train))
    parts = {by: found.top(k, by=by) for by in ("raises", "lowers")}
    words = rows_in_words(space, pd.concat(parts.values()), ids)
    size = k * len(found.names)
    answer = {by: words.frame[place * size : (place + 1) * size] for place, by in enumerate(parts)}
    trust = _joined(trust_in(space, run, found.method), beside_a_proof(found.details))
    name = _name(found.names)
    said = [found.sentence(int(part["row"].iloc[0])) for part in parts.values()] if len(found.names) == 1 else []
    if as_json:
        told = {"notes": space.notes, "outcome": name, "method": found.method, "unit": found.unit, "sentences": said}
        show_json({**told, "trust": trust, **answer, **_in_json(words)})
        return
    say_samples(words)
    for verb, frame in answer.items():
        several = ["outcome"] if len(found.names) > 1 else []
        frame = frame[[*several, "id", "influence", "text"]] if "text" in frame else frame
        show_frame(frame, f"training samples whose weight {verb} it: {name}")
    if words.note:
        say(words.note)
    for sentence in said:
        say(sentence)
    say(f"by {found.method}: {found.unit}")
    say(trust)


def _in_json(found: InWords) -> dict[str, Any]:
    """Return samples and the meaning of their marks, where samples are texts."""
    return {"samples": found.samples, "marks": found.note} if found.samples else {}


def say_samples(found: InWords) -> None:
    """Print what the samples asked about say."""
    for id, text in found.samples.items():
        say(f"{id}: {text}")


def _joined(sentence: str, more: str) -> str:
    """Return a sentence and another one, or itself where there is none."""
    return f"{sentence.rstrip('.')}. {more}" if more else sentence


def trust_in(space: Workspace, run: str, method: str) -> str:
    """Return what retraining said of a rung's answers about a run, or how to learn it."""
    from krepes.proof.result import UNREPEATABLE
    from krepes.runs.proving import trust_in_rows

    said = trust_in_rows(space, method)
    if said is None:
        return f"whether to trust it was not measured: run krepes prove {run}"
    return f"whether to trust it {said}" if said == UNREPEATABLE else said


def _name(names: tuple[str, ...]) -> str:
    """Return the name of the outcome, or of how many there are."""
    return names[0] if len(names) == 1 else f"each of {len(names)} outcomes"


def _outcomes(
    space: Workspace, row: list[str], toward: str | None, named: str | None, file: str | None
) -> tuple[list[Outcome], tuple[str, ...]]:
    """Return the one outcome that flags name, or all of a file; and the samples asked about, if it is one."""
    from krepes.runs.outcomes import listed_outcomes

    if file is None:
        found, ids = _outcome(space, row, toward, named)
        return [found], ids
    if row or toward is not None or named is not None:
        raise InvalidInputError("--outcomes names all outcomes: pass no --outcome, no --row and no --toward.")
    return [asked.outcome for asked in listed_outcomes(space, file)], ()


def _outcome(
    space: Workspace, row: list[str], toward: str | None, named: str | None
) -> tuple[Outcome, tuple[str, ...]]:
    """Return the similarity of two samples, the pull of one towards a group, or an outcome by its name; and whose."""
    from krepes.runs.answers import along_concept, pull_to_group, similarity_of
    from krepes.runs.outcomes import named_outcome

    if named is not None:
        if row or toward is not None:
            raise InvalidInputError("--outcome says what is asked about by itself: pass no --row and no --toward.")
        found = named_outcome(space, named)
        return found.outcome, found.about
    if toward is None:
        if len(row) != 2:
            raise InvalidInputError(
                f"--row was given {len(row)} times: pass it twice, for the similarity of two samples, or once with "
                f"--toward column=value. For what one sample is made of see krepes explain."
            )
        return similarity_of(space, row[0], row[1]), (row[0], row[1])
    if len(row) != 1:
        raise InvalidInputError(f"--row was given {len(row)} times with --toward: pass it once.")
    column, equals, value = toward.removeprefix(CONCEPT).partition("=")
    if not equals:
        raise InvalidInputError(f"--toward {toward!r} is not column=value, nor concept:column=value.")
    ask = along_concept if toward.startswith(CONCEPT) else pull_to_group
    return ask(space, row[0], column, value), (row[0],)
