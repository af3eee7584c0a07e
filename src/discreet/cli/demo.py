"""``discreet demo``: everything once, on embedded data: load, split, train, measure, recommend, save, plot."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command, program
from discreet.cli.evaluate import show as show_scores
from discreet.cli.output import Output
from discreet.cli.train import NOT_PRIVATE, check_out, described
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.data.splits import Split
    from discreet.experiments.compare import Comparison

METRICS = ("rmse", "recall@20", "ndcg@20")
RELEVANT = 4.0  # stars
FACTORS, REGULARIZATION = 12, 12.0
QUICK = 0.2  # share of the people


@command("discreet demo", "discreet demo --likes Horror,Mystery --out spooky")
def demo(
    out: Output,
    to: Annotated[
        str, typer.Option("--out", "-o", help="Folder for the model and the plot.", metavar="FOLDER")
    ] = "discreet-demo",
    likes: Annotated[
        str, typer.Option(help="Genres that the example user likes.", metavar="GENRES")
    ] = "Sci-Fi,Adventure",
    seed: Annotated[int, typer.Option(help="Another seed gives other people.", min=0, metavar="SEED")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="With a fifth of the people.")] = False,
) -> None:
    """Train, measure and use a recommender on invented films, end to end in under a minute."""
    start = time.perf_counter()
    folder = Path(to)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{to} is a file: the demo writes a model and a plot to a folder")
    check_out(str(folder / "model"))
    from discreet.data.cinema import GENRES, example_history, films, make_cinema
    from discreet.data.splits import random_ratings

    genres = _genres(likes, GENRES)
    with out.progress("Inventing people who watch films"):
        ratings = make_cinema(seed, QUICK if quick else 1.0)
    split = random_ratings(ratings, (0.8, 0.1, 0.1), seed)
    out.say("1. Data", style="bold")
    out.say(f"   cinema: {ratings.n_users:,} invented people gave {ratings.n_ratings:,} ratings to {ratings.n_items:,} "
            "invented films")  # fmt: skip
    out.say("   split at random: 80 % to learn from, 10 % to choose settings by, 10 % to test on")

    with out.progress("Compiling, on the first run only"):
        few = make_cinema(seed, 0.001)
        the_model(seed, quick).set_params(iterations=1).fit(few).recommend_many(few)
    model = the_model(seed, quick)
    found = _measure(model, split, out)
    out.say()
    out.say("2. Quality on the ratings that were held out, beside what can be had without taste", style="bold")
    show_scores(found, out, slices=False)

    history = example_history(*genres)
    rows = _recommend(model, history)
    labels = {film.id: film.label for film in films()}
    out.say()
    out.say(f"3. Ten recommendations for somebody who likes {' and '.join(genres)}", style="bold")
    out.table(["stars", "the history"], [[f"{s:.1f}", labels[i]] for i, s in history.items()], flush_left=[1])
    out.table(["", "recommended", "predicted"],
              [[str(r["rank"]), r["title"], f"{r['score']:.2f}"] for r in rows], flush_left=[1])  # fmt: skip
    matching = [film.id for film in films() if set(film.genres) & set(genres)]
    hits = sum(row["item_id"] in matching for row in rows)
    out.say(f"   {hits} of these {len(rows)} are {' or '.join(genres)} films; of all films "
            f"{len(matching) / len(films()):.0%} are.")  # fmt: skip

    model.save(folder / "model")
    plot = folder / "quality.png"
    from discreet.cli.plot import draw_quality

    draw_quality(found, f"cinema, {ratings.n_users:,} people × {ratings.n_items:,} films", plot)
    seconds = time.perf_counter() - start
    out.say()
    out.say("4. Saved", style="bold")
    out.say(f"   {folder / 'model'}  the model: item factors, parameters and a card; nothing of any user")
    out.say(f"   {plot}  the plot of the scores above")
    out.say(f"   {NOT_PRIVATE}", style="yellow")
    out.say(f"   All this took {seconds:.0f} seconds.")
    out.say()
    steps = _next(folder / "model", films())
    out.next_steps(steps, "Try next:")
    out.result({
        "command": "demo", "model": described(model), "out": str(folder), "plot": str(plot), "seconds": seconds,
        "quality": found.to_dict(), "history": history, "recommendations": rows, "next": steps,
    })  # fmt: skip


def the_model(seed: int, quick: bool) -> Any:
    """What the demo trains, with settings chosen on the validation part; fewer people need less holding back."""
    from discreet.models.als import ALS

    return ALS(FACTORS, regularization=REGULARIZATION / 2 if quick else REGULARIZATION, random_state=seed)


def _measure(model: Any, split: Split, out: Output) -> Comparison:
    from discreet.experiments.compare import compare
    from discreet.models.bias import Bias
    from discreet.models.popularity import Popularity

    models = {m.__class__.__name__: lambda seed, m=m: m for m in (model, Bias(), Popularity())}
    with out.progress("Training and measuring") as progress:
        return compare(models, [split], 1, METRICS, relevant=RELEVANT, slices="ratings", progress=progress)


def _recommend(model: Any, history: dict[str, float]) -> list[dict[str, Any]]:
    from discreet.cli.items import Items
    from discreet.cli.recommend import ranked

    return ranked(Items(model), *model.recommend(history, 10))


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
    call, where = program(), shlex.quote(str(model))
    return [
        f"{call} recommend {where} --history {shlex.quote('=5,'.join(liked) + '=5')}",
        f"{call} similar {where} {shlex.quote(liked[0])} -n 5",
        f"{call} evaluate cinema --factors {FACTORS} --regularization {REGULARIZATION:g} --split users",
    ]
