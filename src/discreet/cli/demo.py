"""``discreet demo``: everything once, on embedded data: load, train privately, measure, recommend, save, plot."""

from __future__ import annotations

import shlex
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command, program
from discreet.cli.evaluate import show as show_scores
from discreet.cli.export import write_web
from discreet.cli.output import Output
from discreet.cli.source import said_below
from discreet.cli.train import check_out, described
from discreet.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from discreet.data.splits import Split
    from discreet.experiments.compare import Comparison

METRICS = ("recall@20", "ndcg@20")
RELEVANT = 4.0  # stars
STARS = (0.5, 5.0)
EPSILON = 1.0
QUICK_EPSILON = 4.0
DELTA = 1e-6
QUICK = 0.2  # share of the people
CURVE = (0.5, 1.0, 2.0, 4.0, 8.0)  # budgets for the plot
WIDTH = 110


@command("discreet demo", "discreet demo --epsilon 4 --likes Horror,Mystery --out spooky")
def demo(
    out: Output,
    to: Annotated[
        str, typer.Option("--out", "-o", help="Folder for the model and the plot.", metavar="FOLDER")
    ] = "discreet-demo",
    likes: Annotated[
        str, typer.Option(help="Genres that the example user likes.", metavar="GENRES")
    ] = "Sci-Fi,Adventure",
    epsilon: Annotated[
        float | None,
        typer.Option(help=f"The privacy budget; {EPSILON:g} by default, {QUICK_EPSILON:g} with --quick."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the invented people and of the initial factors.", min=0, metavar="SEED")
    ] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Use only a fifth of the people.")] = False,
) -> None:
    """Train a private recommender on invented films, measure it and use it, end to end in under a minute."""
    start = time.perf_counter()
    folder = Path(to)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{to} is a file: the demo writes a model and a plot to a folder")
    check_out(str(folder / "model"), replace=True)  # by another demo, whose people were invented too
    from discreet.data.cinema import GENRES, example_history, films, make_cinema
    from discreet.data.splits import random_ratings
    from discreet.models.storage.scorer_folder import open_model

    genres = _genres(likes, GENRES)
    usual = QUICK_EPSILON if quick else EPSILON
    budget = usual if epsilon is None else epsilon
    the_model(budget, seed).plan(1)  # a budget that cannot be kept is refused before anything is done
    with out.progress("Inventing people who watch films"):
        ratings = make_cinema(seed, QUICK if quick else 1.0)
    split = random_ratings(ratings, (0.8, 0.1, 0.1), seed)
    out.say("1. Data", style="bold")
    out.say(
        f"   cinema: {ratings.n_users:,} invented people gave {ratings.n_ratings:,} ratings to {ratings.n_items:,} "
        "invented films"
    )
    out.say("   split at random: 80 % to learn from, 10 % to choose settings by, 10 % to test on")

    with out.progress("Compiling, on the first run only"):
        few = make_cinema(seed, 0.02)
        for model in (the_model(500.0, seed), _reference(seed).set_params(iterations=1)):
            model.fit(few).recommend_many(few)
    model = the_model(budget, seed)
    found, curve = _measure(model, split, out)
    out.say()
    out.say(
        "2. Quality: how many of the films that people turned out to love (4 stars or more) are in their top 20",
        style="bold",
    )
    show_scores(found, out, slices=False)
    out.say(f"   What survived the noise: {model.learnt_}")
    out.say("   At predicting stars: discreet evaluate cinema --epsilon 1 --goal rating compares it in the same way.")

    out.say()
    out.say(
        f"3. What is promised to each of the {ratings.n_users:,} people, for everything that the model holds",
        style="bold",
    )
    statement = textwrap.fill(
        str(replace(model.privacy_, learnt="")), WIDTH, initial_indent="   ", subsequent_indent="   "
    )
    out.say(statement, style="green")

    history = [film for film, stars in example_history(*genres).items() if stars >= RELEVANT]
    rows = _recommend(model, history)
    labels = {film.id: film.label for film in films()}
    out.say()
    out.say(f"4. Ten recommendations for somebody who likes {' and '.join(genres)}", style="bold")
    out.table(["liked"], [[labels[item]] for item in history])
    out.table(
        ["", "recommended", "score"], [[str(r["rank"]), r["title"], f"{r['score']:.2f}"] for r in rows], flush_left=[1]
    )
    matching = [film.id for film in films() if set(film.genres) & set(genres)]
    hits = sum(row["item_id"] in matching for row in rows)
    out.say(
        f"   {hits} of these {len(rows)} are {' or '.join(genres)} films; of all films "
        f"{len(matching) / len(films()):.0%} are."
    )

    plot = folder / "quality.png"
    page = folder / "page.html"
    _save(model, found, curve, f"cinema, {ratings.n_users:,} people × {ratings.n_items:,} films", folder, plot)
    write_web(open_model(folder / "model"), page, "Invented films, recommended on your device")
    seconds = time.perf_counter() - start
    out.say()
    out.say("5. Saved", style="bold")
    out.say(f"   {folder / 'model'}  the private model: noisy item factors, the ledger of what was released, a card")
    out.say(f"   {plot}  the scores above, and what other budgets would give")
    out.say(f"   {page}  a page that recommends in your browser: nothing you enter can leave your device")
    out.say(f"   All this took {seconds:.0f} seconds.")
    out.say()
    out.say(f"Open the page, and choose a few films:  {page.resolve().as_uri()}", style="bold")
    out.say()
    steps = _next(folder / "model", films())
    out.next_steps(steps, "Try next:")
    out.result(
        {
            "command": "demo",
            "model": described(model),
            "out": str(folder),
            "plot": str(plot),
            "page": str(page),
            "seconds": seconds,
            "quality": found.to_dict(),
            "curve": curve,
            "history": history,
            "recommendations": rows,
            "next": steps,
        }
    )


def the_model(epsilon: float, seed: int) -> Any:
    """What the demo trains, from what people liked; its noise is secure, and new in every run."""
    from discreet.models.dpmf import DPMF

    return DPMF(epsilon=epsilon, delta=DELTA, goal="ranking", rating_range=STARS, random_state=seed)


def _reference(seed: int) -> Any:
    from discreet.models.als import ALS

    return ALS(16, feedback="implicit", random_state=seed)


def _measure(model: Any, split: Split, out: Output) -> tuple[Comparison, dict[float, float]]:
    """Scores of the model and of what it is compared with, and recall over the budget.

    Further trainings are further releases. Nobody here is real; with real people, each would have to be paid for.
    """
    from discreet.evaluation.protocols import evaluate
    from discreet.experiments.compare import compare
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
        found = compare(models, [split], 1, METRICS, relevant=RELEVANT, slices="ratings", progress=progress)
        curve = {model.epsilon: found.rows[0].scores[METRICS[0]].mean}
        for epsilon in CURVE:
            if epsilon not in curve:
                # a budget too small for so few people is what the curve shows, and no news
                with suppress(PrivacyError), said_below("half of the items"):
                    other = the_model(epsilon, split.seed).fit(split.train)
                    result = evaluate(other, split, METRICS[0], relevant=RELEVANT, slices=None)
                    curve[epsilon] = result.values[METRICS[0]]
    return found, dict(sorted(curve.items()))


def _recommend(model: Any, history: list[str]) -> list[dict[str, Any]]:
    from discreet.models.items import Items, ranked

    return ranked(Items(model), *model.recommend(history, 10))


def _save(model: Any, found: Comparison, curve: dict[float, float], what: str, folder: Path, plot: Path) -> None:
    """The picture is drawn first, so that an interruption in the middle leaves nothing behind."""
    from discreet.cli.plot import draw_demo
    from discreet.data.download import written_aside

    picture = draw_demo(found, curve, what)
    model.save(folder / "model", replace=True)
    with written_aside(plot) as aside:
        aside.write_bytes(picture)


def _genres(likes: str, known: tuple[str, ...]) -> list[str]:
    spelt = {genre.lower(): genre for genre in known}
    wanted = [genre.strip().lower() for genre in likes.split(",") if genre.strip()]
    for genre in wanted:
        if genre not in spelt:
            raise ConfigError(f"there is no genre {genre!r}: choose among {', '.join(known)}")
    if not wanted:
        raise ConfigError(f"--likes names no genre: choose among {', '.join(known)}")
    return [spelt[genre] for genre in dict.fromkeys(wanted)]


def _next(model: Path, films: Any) -> list[str]:
    """Three commands that work as they stand."""
    from discreet.data.cinema import example_history

    titles = {film.id: film.title for film in films}
    liked = [titles[item] for item in list(example_history("Romance", "Musical"))[:3]]
    call = program()
    where = shlex.quote(str(model))
    return [
        f"{call} recommend {where} --history {shlex.quote(','.join(liked))}",
        f"{call} similar {where} {shlex.quote(liked[0])} -n 5",
        f"{call} budget {where}",
    ]
