"""``discreet demo``: train, evaluate, recommend, save and plot, on generated data."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command, program
from discreet.cli.data_options import hold_back_warnings
from discreet.cli.evaluate import show as show_scores
from discreet.cli.export import write_web
from discreet.cli.output import Output
from discreet.cli.recommend import show_score
from discreet.cli.train import check_out, describe_model, show_statement
from discreet.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from discreet.data.splits import Split
    from discreet.evaluation.comparison import Comparison

METRICS = ("recall@20", "ndcg@20")
RELEVANT = 4.0  # stars
STARS = (0.5, 5.0)
EPSILON = 1.0
QUICK_EPSILON = (
    4.0  # a fifth of the users has a fifth of the signal; about as much ε makes up for it
)
QUICK = 0.2  # fraction of the users
CURVE = (0.5, 1.0, 2.0, 4.0, 8.0)  # budgets for the plot
WIDTH = 110
PLOT = "quality.png"
PAGE = "page.html"


@command("discreet demo", "discreet demo --epsilon 4 --likes Horror,Mystery --out spooky")
def demo(
    out: Output,
    to: Annotated[
        str,
        typer.Option("--out", "-o", help="Folder for model, plot and web page.", metavar="FOLDER"),
    ] = "discreet-demo",
    likes: Annotated[
        str,
        typer.Option(
            help="Genres that the example user likes, separated by commas.", metavar="GENRES"
        ),
    ] = "Sci-Fi,Adventure",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help=f"Privacy budget. Default: {EPSILON:g}, or {QUICK_EPSILON:g} with --quick."
        ),
    ] = None,
    random_state: Annotated[
        int,
        typer.Option(
            help="Random seed of the simulated users and of the initial factors.",
            min=0,
            metavar="SEED",
        ),
    ] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use only a fifth of the simulated users.")
    ] = False,
) -> None:
    """Train, evaluate and use a private recommender, end to end, on simulated film ratings."""
    seed = random_state
    start = time.perf_counter()
    folder = Path(to)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{to} is a file: name a folder for the model and the plot")
    # the model of an earlier demo may be replaced: its users were simulated as well
    check_out(str(folder / "model"), replace=True)
    from discreet.data.cinema import GENRES, example_history

    genres = _genres(likes, GENRES)
    usual = QUICK_EPSILON if quick else EPSILON
    budget = usual if epsilon is None else epsilon
    # an infeasible budget is refused first
    the_model(budget, seed).plan(1)
    split = _invent(seed, QUICK if quick else 1.0, out)
    model = the_model(budget, seed)
    found, curve = _measure(model, split, out)
    _show_quality(found, model, out)
    _show_guarantee(model, out)
    history = [film for film, stars in example_history(*genres).items() if stars >= RELEVANT]
    rows = _recommend(model, history)
    _show_list(history, rows, genres, out)
    _save(
        model,
        found,
        curve,
        f"cinema (simulated), {split.train.n_users:,} users × {split.train.n_items:,} films",
        folder,
    )
    seconds = time.perf_counter() - start
    steps = _next(folder / "model")
    _show_saved(folder, seconds, steps, out)
    out.result(
        {
            "command": "demo",
            "model": describe_model(model),
            "out": str(folder),
            "plot": str(folder / PLOT) if find_spec("matplotlib") else None,
            "page": str(folder / PAGE),
            "seconds": seconds,
            "quality": found.to_dict(),
            "curve": curve,
            "history": history,
            "recommendations": rows,
            "next": steps,
        }
    )


# ------------------------------------------------------------------ output


def _show_quality(found: Comparison, model: Any, out: Output) -> None:
    _heading(
        "2. Quality: share of held-out favorites (4 stars or more) among the top 20",
        out,
    )
    show_scores(found, out)
    out.say(f"   {model.summary_}")
    out.say("   To compare predicted ratings: discreet evaluate cinema --epsilon 1 --goal rating")


def _show_guarantee(model: Any, out: Output) -> None:
    _heading("3. Privacy guarantee for each user, covering the whole model", out)
    show_statement(model.privacy_, out, indent="   ")


def _show_list(
    history: list[str], rows: list[dict[str, Any]], genres: list[str], out: Output
) -> None:
    from discreet.data.cinema import films

    labels = {film.id: film.label for film in films()}
    _heading(f"4. Ten recommendations for a user who likes {' and '.join(genres)}", out)
    out.table(["liked"], [[labels[item]] for item in history])
    out.table(
        ["", "recommended", "score"],
        [[str(r["rank"]), r["title"], show_score(r["score"])] for r in rows],
        flush_left=[1],
    )
    matching = [film.id for film in films() if set(film.genres) & set(genres)]
    hits = sum(row["item_id"] in matching for row in rows)
    share = len(matching) / len(films())
    out.say(
        f"   {hits} of these {len(rows)} are {' or '.join(genres)} films, compared with"
        f" {share:.0%} of all films."
    )


def _show_saved(folder: Path, seconds: float, steps: list[str], out: Output) -> None:
    page = folder / PAGE
    _heading("5. Saved", out)
    out.say(
        f"   {folder / 'model'}  the private model: noisy item factors, the ledger of releases, the"
        " model card"
    )
    if find_spec("matplotlib"):
        out.say(f"   {folder / PLOT}  the scores above, and the scores at other budgets")
    else:
        out.say("   no plot: install it with pip install 'discreet[plot]'")
    out.say(f"   {page}  a page that recommends in your browser, with network access blocked")
    out.say(f"   Total time: {seconds:.0f} seconds.")
    _heading(f"Open the page and choose a few films:  {page.resolve().as_uri()}", out)
    out.say()
    out.next_steps(steps, "Try next:")


def _heading(text: str, out: Output) -> None:
    out.say()
    out.say(text, style="bold")


# ------------------------------------------------------------------ steps


def _invent(seed: int, share: float, out: Output) -> Split:
    """Simulate users and ratings and split them; compile the training code on a few of them.

    Compiling first keeps its time out of the training times that are reported.
    """
    from discreet.data.cinema import make_cinema
    from discreet.data.splits import random_ratings

    with out.progress("Simulating users"):
        ratings = make_cinema(seed, share)
    out.say("1. Data", style="bold")
    out.say(
        f"   cinema: {ratings.n_ratings:,} ratings of {ratings.n_items:,} invented films by"
        f" {ratings.n_users:,} simulated users"
    )
    out.say("   random split: 80 % training, 10 % validation, 10 % test")
    with out.progress("Compiling, on the first run only"):
        few = make_cinema(seed, 0.02)
        for model in (the_model(500.0, seed), _reference(seed).set_params(iterations=1)):
            model.fit(few).recommend_many(few)
    return random_ratings(ratings, (0.8, 0.1, 0.1), seed)


def the_model(epsilon: float, seed: int) -> Any:
    """Return the model that the demo trains; its noise is secure and new in every run."""
    from discreet.models.dpmf import DPMF

    return DPMF(epsilon=epsilon, goal="ranking", rating_range=STARS, random_state=seed)


def _reference(seed: int) -> Any:
    from discreet.models.als import ALS

    return ALS(16, goal="ranking", random_state=seed)


def _measure(model: Any, split: Split, out: Output) -> tuple[Comparison, dict[float, float]]:
    """Measure the model and the baselines, and recall at several budgets.

    Privacy: each training is a further release. On real users each would add to the cost.
    """
    from discreet.evaluation.comparison import compare
    from discreet.evaluation.evaluator import evaluate
    from discreet.models.bias import Bias
    from discreet.models.popularity import Popularity

    named = {
        f"DPMF, private, ε = {model.epsilon:g}": model,
        "ALS, not private": _reference(split.seed),
        "Popularity, not private": Popularity(),
        "Bias, not private": Bias(),
    }
    models = {name: lambda seed, m=m: m for name, m in named.items()}
    with out.progress("Training and measuring") as progress:
        found = compare(
            models, [split], 1, METRICS, relevant=RELEVANT, slices="ratings", progress=progress
        )
        curve = {model.epsilon: found.rows[0].scores[METRICS[0]].mean}
        for epsilon in CURVE:
            if epsilon not in curve:
                # small budgets fail or warn on so few users, which the curve shows anyway
                with suppress(PrivacyError), hold_back_warnings("half of the items"):
                    other = the_model(epsilon, split.seed).fit(split.train)
                    result = evaluate(other, split, METRICS[0], relevant=RELEVANT, slices=None)
                    curve[epsilon] = result.values[METRICS[0]]
    return found, dict(sorted(curve.items()))


def _recommend(model: Any, history: list[str]) -> list[dict[str, Any]]:
    from discreet.models.item_lookup import ItemLookup, rank_items

    return rank_items(ItemLookup.of_model(model), *model.recommend(history, 10))


def _save(
    model: Any, found: Comparison, curve: dict[float, float], what: str, folder: Path
) -> None:
    """Save model, plot and page; the plot is drawn first, so that failing leaves no files."""
    from discreet.cli.evaluation_plot import draw_demo
    from discreet.data.atomic_files import atomic_write
    from discreet.models.storage.load_scorer import open_model

    picture = draw_demo(found, curve, what) if find_spec("matplotlib") else None
    model.save(folder / "model", replace=True)
    if picture is not None:
        with atomic_write(folder / PLOT) as aside:
            aside.write_bytes(picture)
    write_web(
        open_model(folder / "model"), folder / PAGE, "Invented films, recommended on your device"
    )


def _genres(likes: str, known: tuple[str, ...]) -> list[str]:
    spelled = {genre.lower(): genre for genre in known}
    wanted = [genre.strip().lower() for genre in likes.split(",") if genre.strip()]
    for genre in wanted:
        if genre not in spelled:
            raise ConfigError(f"unknown genre {genre!r}: use {', '.join(known)}")
    if not wanted:
        raise ConfigError(f"--likes is empty: use {', '.join(known)}")
    return [spelled[genre] for genre in dict.fromkeys(wanted)]


def _next(model: Path) -> list[str]:
    """Return three commands that can be run unchanged."""
    from discreet.data.cinema import example_history, films

    titles = {film.id: film.title for film in films()}
    liked = [titles[item] for item in list(example_history("Romance", "Musical"))[:3]]
    call = program()
    where = shlex.quote(str(model))
    return [
        f"{call} recommend {where} --history {shlex.quote(','.join(liked))}",
        f"{call} similar {where} {shlex.quote(liked[0])} -n 5",
        f"{call} budget {where}",
    ]
