"""``discreet evaluate``: measure a model and baselines on held-out ratings."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli.app import command
from discreet.cli.data_options import DataOptions
from discreet.cli.model_options import ModelOptions, find_model
from discreet.cli.output import Output
from discreet.cli.private_score_options import PrivateScoreOptions, public_facts
from discreet.cli.split_options import SplitOptions
from discreet.cli.train import nothing_to_predict
from discreet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from discreet.data.splits import Split
    from discreet.evaluation.comparison import Comparison, Score

NO_NOISE_NOTE = (
    "without privacy: the same model with ε = 1,000, whose noise is negligible; on real users it is"
    " a further access to their ratings"
)
HEAD_TO_TAIL = ("1 (head)", "2", "3", "4", "5 (tail)")


@command(
    "discreet evaluate ratings.csv --split 80/10/10 --seeds 3 --metrics rmse,recall@20",
    "discreet evaluate cinema --model als --factors 16 --set regularization=20 --slices",
    "discreet evaluate ratings.csv --folds 5",
    "discreet evaluate ratings.csv --split users --goal ranking",
    "discreet evaluate model/ --known known.csv --target test.csv",
    "discreet evaluate model/ --known known.csv --target test.csv --score-epsilon 0.1",
)
def evaluate(
    what: Annotated[
        str,
        typer.Argument(
            help="File of ratings, name of a data set, or folder of a saved model.", metavar="DATA"
        ),
    ],
    protocol: SplitOptions,
    choice: ModelOptions,
    source: DataOptions,
    price: PrivateScoreOptions,
    out: Output,
    metrics: Annotated[
        str | None,
        typer.Option(
            help=(
                "Comma-separated metrics: rmse, mae, recall@20, ndcg@100, precision@10, map@10,"
                " mrr; of popularity bias coverage@20, tail@20, novelty@20, popularity@20, gini@20,"
                " miscalibration@20."
            ),
            metavar="NAMES",
        ),
    ] = None,
    relevant: Annotated[
        float | None,
        typer.Option(
            help="Lowest held-out rating that counts as relevant in ranking metrics.",
            metavar="RATING",
        ),
    ] = None,
    part: Annotated[
        Literal["test", "valid"],
        typer.Option(help="Part to measure on; use valid to tune hyperparameters."),
    ] = "test",
    slices: Annotated[
        bool,
        typer.Option(
            "--slices", help="Break all scores down by item popularity, not only the first recall."
        ),
    ] = False,
    categories: Annotated[
        str | None,
        typer.Option(
            help="File of item categories for miscalibration@k: an item id, then labels such as"
            " Comedy|War. Default: popularity quintiles.",
            metavar="FILE",
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Also measure the model without privacy, and baselines, for comparison.",
        ),
    ] = True,
    known: Annotated[
        str | None,
        typer.Option(help="For a saved model: file with the users' histories.", metavar="FILE"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="For a saved model: file with the ratings to predict.", metavar="FILE"),
    ] = None,
    skip_unknown: Annotated[
        bool,
        typer.Option(
            "--skip-unknown", help="For a saved model: drop ratings of items unknown to it."
        ),
    ] = False,
) -> None:
    """Measure a model on held-out ratings.

    Given ratings: hold some out, train on the rest, and measure the model, the same model without
    privacy, and baselines, optionally over several seeds or folds; differences are paired by user.
    Given a saved model: measure it on the ratings in --target, with the same users' histories from
    --known.

    Scores are computed exactly from users' ratings and are not covered by the model's ε. With
    --score-epsilon they are released with noise, confidence intervals and a ledger instead, on a
    by-person split by default and without baselines. The relevance threshold must be public then:
    pass --relevant, or train with --rating-range.
    """
    from discreet.evaluation.comparison import (
        Trained,
        compare,
        copy_untrained,
        model_name,
        reference_models,
    )
    from discreet.evaluation.evaluator import DEFAULTS, choose_relevant

    priced = price.is_requested
    if relevant is not None and not math.isfinite(relevant):
        raise ConfigError(f"--relevant is {relevant}, but must be a finite number")
    wanted = _metrics(metrics) if metrics is not None else None
    choice.use_threads()
    if known is not None or target is not None or Path(what, "model.json").is_file():
        given = [
            *choice.options_used,
            *protocol.options_used,
            *(["--part valid"] if part == "valid" else []),
        ]
        if given:
            raise ConfigError(f"{given[0]} is for training, and {what} is already trained")
        if not baselines:
            raise ConfigError(
                f"--no-baselines is for training: {what} is measured without baselines anyway"
            )
        source.refuse_choosing(f"is for training, and {what} is already trained")
        model, split, facts = _load_saved(what, known, target, source, skip_unknown, priced, out)
        goal = model.goal
        if priced:
            names = wanted or _released_metrics(goal)
            _check_metrics(names, goal)
            result = price.release(model, split, names, part, relevant, None, out)
            out.result({"command": "evaluate", **public_facts(facts), "part": part, **result})
            return
        if relevant is None:
            relevant = choose_relevant(model, split.train, split.test.target)
        models = {model_name(model): lambda seed: Trained(model)}
        splits = iter([split])
        n = 1
    else:
        if skip_unknown:
            raise ConfigError(
                "--skip-unknown is for a saved model: a model trained here knows all items"
            )
        first_seed = choice.random_state or 0
        # --random-state seeds the splits as well, so that models without one accept it
        if choice.model and "random_state" not in find_model(choice.model).parameter_names():
            choice = replace(choice, random_state=None)
        blank = choice.ready()
        goal = blank.goal
        protocol.check()
        _check_metrics(wanted, goal)
        if priced:
            _check_release(blank, protocol, price, wanted, relevant, slices)
        ratings, facts = source.read(what, out, blank if priced else None)
        if priced:
            split = next(
                replace(protocol, split=protocol.split or "by-person").splits(ratings, first_seed)
            )
            _release_trained(choice, split, price, facts, wanted, part, relevant, out)
            return
        scale = float(ratings.values.min()), float(ratings.values.max())
        if goal == "rating" and scale[0] == scale[1]:
            raise nothing_to_predict(what, scale[0], blank)
        relevant = choose_relevant(blank, ratings) if relevant is None else relevant
        models = {model_name(blank): lambda seed: copy_untrained(blank, seed)}
        models |= reference_models(blank) if baselines else {}
        splits = protocol.splits(ratings, first_seed)
        n = protocol.runs
    wanted = wanted or list(DEFAULTS[goal])
    _check_metrics(wanted, goal)
    with out.progress("Evaluating") as progress:
        found = compare(
            models,
            splits,
            n,
            wanted,
            relevant=relevant,
            part=part,
            slices="ratings",
            categories=categories,
            progress=progress,
        )
    show(found, out, slices)
    caution = {"caution": "exact scores of held-out ratings, not covered by the model's ε"}
    out.result({"command": "evaluate", **facts, "part": part, **caution, **found.to_dict()})


def _check_release(
    model: Any,
    protocol: SplitOptions,
    price: PrivateScoreOptions,
    wanted: list[str] | None,
    relevant: float | None,
    slices: bool,
) -> None:
    """Refuse options that cannot be released with noise, before any data are read."""
    if protocol.runs > 1 or slices:
        raise ConfigError(
            "--score-epsilon covers one set of scores: leave out --seeds, --folds and --slices"
        )
    if protocol.split == "users" and protocol.test_users is None:
        raise ConfigError(
            "--split users needs --test-users with --score-epsilon: its default is an exact"
            " fraction of the users"
        )
    price.check(model, wanted or _released_metrics(model.goal), relevant)


def _release_trained(
    choice: ModelOptions,
    split: Split,
    price: PrivateScoreOptions,
    facts: dict[str, Any],
    wanted: list[str] | None,
    part: Any,
    relevant: float | None,
    out: Output,
) -> None:
    """Train on one part of the split and release scores on the other.

    Privacy: an account is charged for both, the model and its scores.
    """
    from discreet.cli.train import fit

    model = choice.make()
    account = price.open_account()
    fit(model, split.train, out, account if hasattr(model, "plan") else None)
    names = wanted or _released_metrics(model.goal)
    result = price.release(model, split, names, part, relevant, choice.neighboring, out)
    out.result({"command": "evaluate", **public_facts(facts), "part": part, **result})


def _released_metrics(goal: str) -> list[str]:
    """Return the default metrics of a release: those of popularity bias cannot be released."""
    from discreet.evaluation.evaluator import BIAS_METRICS, DEFAULTS

    return [name for name in DEFAULTS[goal] if name not in BIAS_METRICS]


def _metrics(text: str) -> list[str]:
    from discreet.evaluation.metrics import parse

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError("--metrics is empty: write for example --metrics rmse,recall@20")
    return [parse(name).name for name in dict.fromkeys(names)]


def _check_metrics(wanted: list[str] | None, goal: str) -> None:
    """Refuse metrics none of which can be measured; if some can, the others show a dash."""
    from discreet.evaluation.metrics import parse

    if goal == "ranking" and wanted and all(parse(name).kind == "rating" for name in wanted):
        raise ConfigError(
            f"{wanted[0]} compares predicted ratings, and --goal ranking predicts none: use ranking"
            " metrics, such as --metrics recall@20,ndcg@100"
        )


def _load_saved(
    folder: str,
    known: str | None,
    target: str | None,
    source: DataOptions,
    skip: bool,
    priced: bool,
    out: Output,
) -> tuple[Any, Split, dict[str, Any]]:
    """Load a saved model and the files that it is measured on.

    Privacy: if scores are released with noise, file contents are neither refused nor reported on
    stderr. Unknown items are dropped, and a user without a history counts as a new user.
    """
    from discreet.cli.data_options import keep_known_items
    from discreet.evaluation.comparison import make_test_split
    from discreet.models.storage.save_load import load

    model = load(folder)
    if known is None or target is None:
        raise ConfigError(
            f"{folder} is a saved model: pass --known with the users' histories and --target with"
            " the ratings to predict"
        )
    histories, _ = keep_known_items(source.read_named(known), model, known, skip or priced)
    asked, left_out = keep_known_items(source.read_named(target), model, target, skip or priced)
    if left_out and not priced:
        out.note(f"{left_out:,} ratings of unknown items in {target} were dropped")
    if not priced and (histories.user_index(asked.user_ids) < 0).all():
        raise DataError(f"no user of {target} is in {known}: use the same user ids in both files")
    split = make_test_split(histories, asked, f"{target}, known {known}")
    line = f"{type(model).__name__} from {folder}"
    exact = f"{line}: {asked.n_users:,} users, {asked.n_ratings:,} ratings to predict"
    out.say_exact(exact, line) if priced else out.say(exact)
    facts = {
        "model": folder,
        "known": known,
        "target": target,
        "left_out": left_out,
        "users": asked.n_users,
        "ratings": asked.n_ratings,
    }
    return model, split, facts


# ------------------------------------------------------------ showing


def show(found: Comparison, out: Output, slices: bool | None = None) -> None:
    """Print tables of the scores, of popularity bias, and of paired differences.

    `slices` is True for all metrics by popularity quintile, False for the first recall alone, and
    None for no quintiles.
    """
    from discreet.evaluation.metrics import parse

    n = len(found.splits)
    kind = re.sub(r", fold \d+$", "", found.splits[0])
    runs = f", mean of {n} runs" if n > 1 else f", seed {found.seeds[0]}"
    title = f"Held out: {kind}{runs}"
    accuracy = [m for m in found.metrics if parse(m).kind in ("rating", "ranking")]
    bias = [m for m in found.metrics if m not in accuracy]
    out.say()
    if accuracy:
        rows = [
            [row.name, *(cell(row.scores.get(m)) for m in accuracy), f"{row.seconds:.1f} s"]
            for row in found.rows
        ]
        out.table(["model", *accuracy, "training"], rows, title=title)
        first, *others = found.rows
        compared = [
            [row.name, *(cell(row.differences.get(m), sign="+") for m in accuracy)]
            for row in others
            if row.differences.keys() & set(accuracy)
        ]
        if compared:
            title_of_differences = f"{first.name} less each of the others, paired by user"
            out.table(["compared with", *accuracy], compared, title=title_of_differences)
    if bias:
        rows = [
            [row.name, *(cell(row.scores.get(m), error=False) for m in bias)] for row in found.rows
        ]
        out.table(["model", *bias], rows, title="Popularity bias" if accuracy else title)
    recall = next((m for m in accuracy if parse(m).kind == "ranking"), None)
    wanted = [] if recall is None or slices is None else [recall]
    for metric in found.metrics if slices else wanted:
        sliced = [
            [row.name, *(cell(group.get(metric)) for group in row.quintiles)]
            for row in found.rows
            if row.quintiles and metric in row.scores and parse(metric).kind != "list"
        ]
        if sliced:
            title = f"{metric} by item popularity (quintiles of the training ratings)"
            out.table(["model", *HEAD_TO_TAIL], sliced, title=title)
    out.say("± standard error over users" + (", averaged over the runs" if n > 1 else ""))
    if n > 1:
        first = found.rows[0]
        spread = ", ".join(f"{m} {s.spread:.4f}" for m, s in first.scores.items())
        out.say(f"standard deviation between the runs of {first.name}: {spread}")
    if any(not row.scores.keys() <= {"rmse", "mae"} for row in found.rows):
        what = (
            "all held-out items"
            if found.relevant is None
            else f"held-out items rated {found.relevant:g} or more"
        )
        out.say(f"relevant in rankings: {what}")
    if any(row.name.endswith("without privacy") for row in found.rows):
        out.say(NO_NOISE_NOTE)
    out.say(
        "These scores are computed exactly from users' ratings and are not covered by the model's"
        " ε; --score-epsilon releases them with noise."
    )


def cell(score: Score | None, sign: str = "", error: bool = True) -> str:
    """Format a score as ``0.8482 ± 0.0012``, or as a dash if it was not measured."""
    if score is None or math.isnan(score.mean):
        return "–"
    mean = f"{score.mean:{sign}.4f}".replace("-", "−")
    return mean + ("" if not error or math.isnan(score.stderr) else f" ± {score.stderr:.4f}")
