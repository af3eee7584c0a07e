"""The page: one HTML file that needs nothing else, neither network nor fonts nor pictures.

It states what it looked at. Parts that look at people's ratings carry a mark, because no ε pays for
what they show.
"""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

from discreet.report import charts, item_map, privacy_section
from discreet.report.evaluation_section import Quality, trace_of
from discreet.report.html import Html, content_policy, data, join, power, table, tag, title
from discreet.report.item_map import Sample
from discreet.report.privacy_section import QUINTILES
from discreet.version import __version__

_LOOK = "looks at people's ratings"


def render(model: Any, quality: Quality | None, shown: list[Sample]) -> str:
    """The whole file, as text."""
    statement: Any = getattr(model, "privacy_", None)
    finite = statement is not None and statement.finite
    parts = [("promise", "What is promised", privacy_section.render_guarantee(model), False)]
    if statement is not None:
        parts.append(("ledger", "What left the ratings", privacy_section.ledger(model), False))
        if finite:
            parts.append(
                (
                    "noise",
                    "What the noise did",
                    privacy_section.noise(model, quality),
                    quality is not None,
                )
            )
    parts.append(("quality", "How good it is", _quality(model, quality), quality is not None))
    # of a training on the ratings given
    anew = quality is not None and bool(quality.trace) and not trace_of(model)
    parts.append(("training", "How it was trained", privacy_section.training(model, quality), anew))
    parts.append(("samples", "What it recommends", _samples(model, shown), False))
    parts.append(("map", "A map of the items", _map(model), False))
    parts.append(("about", "About this page", _about(model, quality), False))
    name = type(model).__name__
    badge = (
        f"{statement.status}, ε = {statement.epsilon:.4g}, δ = {power(statement.delta)}"
        if finite
        else "NOT PRIVATE"
    )
    sections = [
        tag(
            "section",
            tag("h2", heading, tag("span", _LOOK, class_="look") if look else None, id=f"h-{key}"),
            body,
            id=key,
            aria_labeledby=f"h-{key}",
        )
        for key, heading, body, look in parts
    ]
    kind = "private" if finite and statement.private else "open"
    research = (
        tag("p", "RESEARCH MODE: seeded noise", class_="badge open")
        if finite and statement.noise == "seeded"
        else None
    )
    header = tag(
        "header",
        tag("p", "discreet report", class_="over"),
        tag("h1", name),
        tag("p", badge, class_=f"badge {kind}"),
        research,
        tag(
            "p",
            f"{len(model.item_ids_):,} items, vectors of {model.item_factors_.shape[1]} numbers,"
            f" goal: {model.goal}. It holds no user's vector and no rating.",
            class_="sub",
        ),
        (
            tag("p", f"What was learned: {learned}", class_="sub")
            if (learned := getattr(model, "summary_", ""))
            else None
        ),
        tag(
            "nav",
            tag(
                "ul",
                *(tag("li", tag("a", heading, href=f"#{key}")) for key, heading, _, _ in parts),
            ),
            aria_label="Contents",
        ),
        _caution(quality),
    )
    style, script = Html(_file("style.css")), Html(_file("script.js"))
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag(
                "meta", http_equiv="Content-Security-Policy", content=content_policy(style, script)
            ),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{name}: {badge}"),
            tag("style", style),
        ]
    )
    body = tag(
        "body",
        tag("a", "Skip to the promise", href="#promise", class_="skip"),
        header,
        tag("main", *sections),
        tag("script", script),
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), body, lang="en") + "\n"


def _file(name: str) -> str:
    return resources.files("discreet.report").joinpath(name).read_text(encoding="utf-8")


def _caution(quality: Quality | None) -> Html | None:
    if quality is None:
        return None
    return tag(
        "p",
        tag("strong", "This page looks at people's ratings. "),
        f"Parts marked “{_LOOK}” show exact statistics of ratings, which no model's ε pays for."
        " Show them only to those who may see the ratings.",
        class_="note",
        role="note",
    )


# ------------------------------------------------------------ quality


def _quality(model: Any, quality: Quality | None) -> Html:
    if quality is None:
        return tag(
            "p",
            "Not measured: no ratings were given. With ",
            tag("code", "--data ratings.csv"),
            " this part shows the model beside baselines, as a whole and by popularity.",
        )
    found = quality.found
    how = (
        f"A fifth of the ratings was held out at random ({quality.targets:,} ratings of"
        f" {quality.users:,} people). The saved model may have learned from them, so the same kind"
        " of model, with the same parameters, was trained anew on the other four fifths; baselines"
        " learned from the same."
        if quality.retrained
        else (
            f"The saved model was asked about {quality.targets:,} test ratings of {quality.users:,}"
            " people, knowing what the data hold of them; baselines learned from the data."
        )
    )
    head = ["model", *found.metrics]
    rows = [[row.name, *(_score(row.scores.get(m)) for m in found.metrics)] for row in found.rows]
    figures = []
    for metric in found.metrics:
        bars = [
            (
                row.name,
                row.scores[metric].mean,
                row.scores[metric].stderr,
                0 if row.name == quality.mine else 5,
            )
            for row in found.rows
            if metric in row.scores
        ]
        words = f"{metric}, {_better(metric)}"
        figures.append(tag("figure", tag("figcaption", words), charts.bars(bars, f"Bars: {words}")))
    relevant = (
        "all held-out items"
        if found.relevant is None
        else f"held-out items rated {found.relevant:g} or more"
    )
    return join(
        [
            tag("p", how),
            tag("div", *figures, class_="figures"),
            table(head, rows, caption="Scores ± standard error over people"),
            tag(
                "p",
                f"Error bars are one standard error over people. Relevant in rankings: {relevant}."
                " Everybody's known items are left out of the lists.",
                class_="small",
            ),
            _slices(found, quality),
        ]
    )


def _slices(found: Any, quality: Quality) -> Html:
    metric = found.metrics[0]
    rows = [row for row in found.rows if row.quintiles and metric in row.scores]
    series = [
        charts.Series(
            row.name,
            [g[metric].mean for g in row.quintiles],
            [g[metric].stderr for g in row.quintiles],
            at % 6,
        )
        for at, row in enumerate(rows)
    ]
    words = f"{metric} from popular to rare items ({_better(metric)})"
    cells = [[row.name, *(_score(g.get(metric)) for g in row.quintiles)] for row in rows]
    return join(
        [
            tag("h3", "From popular to rare items"),
            tag(
                "p",
                "Each of the five groups of items has a fifth of the training ratings: few popular"
                " items on the left, many rare ones on the right.",
            ),
            tag(
                "figure",
                tag("figcaption", f"{words}; the axis is cut"),
                charts.lines(QUINTILES, series, f"Lines: {words}"),
                charts.legend(series),
                class_="wide",
            ),
            table(["model", *QUINTILES], cells, caption=f"{metric} by popularity"),
        ]
    )


def _score(score: Any) -> str:
    if score is None or math.isnan(score.mean):
        return "–"
    return f"{score.mean:.4f}" + ("" if math.isnan(score.stderr) else f" ± {score.stderr:.4f}")


def _better(metric: str) -> str:
    return "lower is better" if metric in ("rmse", "mae") else "higher is better"


# ------------------------------------------------------------ items


def _samples(model: Any, shown: list[Sample]) -> Html:
    explicit = model.goal == "rating"
    cards = []
    for sample in shown:
        ratings = {rating for _, rating in sample.history}
        alike = f", each rated {min(ratings):g}" if explicit and len(ratings) == 1 else ""
        single = explicit and not alike
        rated = [
            tag("li", title(name), f": {rating:g}" if single else None)
            for name, rating in sample.history
        ]
        rows = [
            [str(at), title(name), f"{score:.2f}" if explicit else f"{score:.3f}"]
            for at, (name, score) in enumerate(sample.best, start=1)
        ]
        known = tag(
            "details",
            tag("summary", f"The history: {len(rated)} items{alike}"),
            tag("ul", *rated),
            open=True,
        )
        head = [
            tag("span", "rank", class_="unseen"),
            "recommended",
            "predicted" if explicit else "score",
        ]
        best = table(head, rows, caption=f"Recommendations: {sample.name}", words=(1,), quiet=True)
        cards.append(tag("article", tag("h3", title(sample.name)), known, best))
    what = (
        "Invented histories, nobody's in particular: items that the model takes to be alike. What a"
        " real person gets is computed the same way, from that person's history alone."
        if all(sample.invented for sample in shown)
        else (
            "For the histories given when this page was written. What is recommended is computed"
            " from the history alone: whoever sees this page sees both."
        )
    )
    return join(
        [
            tag("p", what),
            tag("div", *cards, class_="cards"),
        ]
    )


def _map(model: Any) -> Html:
    drawn = item_map.item_map(model)
    if drawn is None:
        return tag("p", f"{type(model).__name__} has no item vectors that could be drawn.")
    missing = len(model.item_ids_) - len(drawn.at)
    left_out = f" {missing:,} items without a vector are not on it." if missing else ""
    keys = (
        "Point at a dot, or move to the map with the tab key and go from item to item with the"
        " arrow keys."
    )
    return join(
        [
            tag(
                "p",
                f"Each dot is one of {len(drawn.at):,} items. Items that the same people like lie"
                " close together, as far as a plane can show it: these two directions hold"
                f" {drawn.share:.0%} of how the vectors differ. Strong color: a long vector, of"
                f" which the model is sure.{left_out}",
            ),
            tag(
                "div",
                tag(
                    "label",
                    "Find an item ",
                    tag("input", type="search", id="find", autocomplete="off", spellcheck="false"),
                ),
                tag("span", id="matches", role="status"),
                class_="find",
            ),
            tag(
                "div",
                tag(
                    "canvas",
                    id="plane",
                    tabindex="0",
                    role="application",
                    aria_roledescription="map",
                    aria_label=f"Map of {len(drawn.at):,} items",
                    aria_describedby="keys chosen",
                ),
                tag("div", id="tip", hidden=True, aria_hidden="true"),
                class_="plane",
            ),
            tag("p", keys, id="keys", class_="small"),
            tag("p", id="chosen", role="status", aria_live="polite", class_="chosen"),
            tag(
                "noscript",
                tag(
                    "p", "The map is drawn by a script in this file, and scripts are switched off."
                ),
            ),
            data("items", item_map.map_data(drawn, model)),
        ]
    )


# ------------------------------------------------------------ about


def _about(model: Any, quality: Quality | None) -> Html:
    shown = {
        name: value
        for name, value in model.params_to_save().items()
        if value is not None and name != "algorithm"
    }
    algorithm = getattr(model, "algorithm_", None)
    if algorithm is not None:  # with every number as it was resolved
        resolved = algorithm.to_dict()
        shown |= {"algorithm": resolved.pop("name")} | resolved
    rows = [tag("div", tag("dt", name), tag("dd", str(value))) for name, value in shown.items()]
    looked = (
        "It was computed from the saved model alone, without a look at any rating, so it gives away"
        " no more than the model does."
        if quality is None
        else (
            "Parts marked as such were computed from ratings; the others from the saved model"
            " alone."
        )
    )
    return join(
        [
            tag(
                "p",
                f"Written by discreet {__version__} with ",
                tag("code", "discreet report"),
                f". {looked} It loads nothing from anywhere and works without a network.",
            ),
            (
                join([tag("h3", "Parameters of the model"), tag("dl", *rows, class_="parameters")])
                if rows
                else None
            ),
        ]
    )
