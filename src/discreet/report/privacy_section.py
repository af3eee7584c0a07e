"""The parts of the page that speak of privacy: the promise, the ledger, the noise."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from discreet.privacy.accounting.budget import WEAK_EPSILON
from discreet.privacy.accounting.pricing import CONVERSIONS
from discreet.privacy.release.statement import PrivacyStatement
from discreet.report import charts, ledger_summary
from discreet.report.evaluation_section import QUIET, Quality, trace_of
from discreet.report.html import Html, join, power, table, tag

_ONE = {
    "add-remove": "with and without all the ratings of any one person",
    "replace-one": "with all the ratings of any one person replaced by those of another",
}
_NOISE = {
    "secure": (
        "It came from the operating system's entropy through a cryptographic generator and was"
        " added to whole numbers, so that rounding gives nothing away."
    ),
    "seeded": (
        "RESEARCH MODE: it came from a seed. Whoever learns the seed can take the noise away again."
    ),
}
VERDICTS = (
    (1.0, "By common reading that is a strong promise."),
    (10.0, "By common reading that is a reasonable promise, though not a strong one."),
    (
        WEAK_EPSILON,
        (
            "By common reading that is a weak promise: it rules out certainty rather than good"
            " guesses."
        ),
    ),
    (math.inf, f"An ε above {WEAK_EPSILON:g} is no meaningful protection."),
)
QUINTILES = ("1 (head)", "2", "3", "4", "5 (tail)")
_TRACES = {"DPLMC": "How far the item vectors moved (root mean square)"}
_NORMS = {"l1": "ℓ₁", "l2": "ℓ₂"}
_DELTAS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-9)


def render_guarantee(model: Any) -> Html:
    """What is promised, to whom, and at which price."""
    statement: PrivacyStatement | None = getattr(model, "privacy_", None)
    if statement is None:
        return join(
            [
                tag(
                    "p",
                    "Nothing is promised to anybody. ",
                    tag("strong", f"{type(model).__name__} is not a private model: "),
                    "its numbers were computed from exact ratings, and single people's ratings may"
                    " be recovered from them.",
                    class_="lead",
                ),
                tag(
                    "p",
                    "Handle the model, and this page, like the ratings themselves. A private model"
                    " is trained with ",
                    tag("code", "discreet train … --epsilon 1"),
                    ".",
                ),
            ]
        )
    if not statement.finite:
        unsafe = sorted({entry.name for entry in statement.ledger.entries if entry.unsafe})
        why = f"{', '.join(unsafe)} left without noise" if unsafe else "no noise was added"
        return join(
            [
                tag(
                    "p",
                    "Nothing is promised to anybody: ",
                    tag("strong", why),
                    ", so ε is infinite.",
                    class_="lead",
                ),
                tag("p", "Handle the model, and this page, like the ratings themselves."),
                _assumptions(statement),
            ]
        )
    return join(
        [
            _words(statement),
            _cautions(statement),
            _facts(statement),
            _beliefs(statement),
            _price(statement),
            _assumptions(statement),
        ]
    )


def _cautions(statement: PrivacyStatement) -> Html | None:
    """What the promise depends on, beside it."""
    if not statement.cautions:
        return None
    items = [tag("li", text, class_="caution") for text in statement.cautions]
    return join(
        [tag("p", "It holds with cautions, for which somebody has to answer:"), tag("ul", *items)]
    )


def _words(statement: PrivacyStatement) -> Html:
    times = (
        f"{math.exp(statement.epsilon):,.4g}"
        if statement.epsilon < 30
        else f"e^{statement.epsilon:.4g}"
    )
    but = f", but for a probability of δ = {power(statement.delta)}" if statement.delta else ""
    verdict = next(words for limit, words in VERDICTS if statement.epsilon <= limit)
    return join(
        [
            tag(
                "p",
                "What anybody can learn from this model about any one person is limited. Compare"
                f" two worlds, {_ONE[statement.neighboring]}: no possible result is ",
                tag("strong", f"more than {times} times as likely"),
                f" in one as in the other (e to the power of ε){but}. {verdict}",
                class_="lead",
            ),
            tag(
                "p",
                "The promise is to each person as a whole, not to single ratings, and it lasts:"
                " nothing that is done with the model later can weaken it. It does not say that a"
                " model knows nothing about people: what many have in common is what it is for."
                " Recommendations for a person are computed from that person's own history and are"
                " for that person alone.",
            ),
        ]
    )


def _facts(statement: PrivacyStatement) -> Html:
    relation = {"add-remove": "one person more or less", "replace-one": "one person is another"}
    words = "all releases as one: telling a bell curve from one shifted by μ"
    together = [] if statement.mu is None else [("μ", f"{statement.mu:.4g}", words)]
    rows = [
        (
            "ε",
            f"{statement.epsilon:.4g}",
            "how far any likelihood can move; smaller is more private",
        ),
        ("δ", power(statement.delta), "the probability with which ε may not hold"),
        *together,
        ("Neighbors", relation[statement.neighboring], "what the two worlds differ in"),
        (
            "Releases",
            f"{len(statement.ledger.entries):,}",
            "noisy sums that everything in the model was made of",
        ),
        ("Noise", statement.noise, _NOISE.get(statement.noise, "")),
    ]
    cells = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", words)))
        for name, value, words in rows
    ]
    return tag("dl", *cells, class_="facts")


def _beliefs(statement: PrivacyStatement) -> Html:
    after = {
        p: ledger_summary.belief(p, statement.epsilon, statement.delta, ledger_summary.SEEN)
        for p in (0.01, 0.1, 0.5)
    }
    rows = [[_percent(prior), _percent(most)] for prior, most in after.items()]
    rare = (
        f" by anything that the model shows with a probability of {ledger_summary.SEEN:.0%} or"
        f" more. What it shows more rarely may say more: that is what δ = {power(statement.delta)}"
        " is for, which is counted here"
        if statement.delta
        else ""
    )
    what = (
        "that somebody is in the data"
        if statement.neighboring == "add-remove"
        else "which of two histories it was"
    )
    return join(
        [
            tag("h3", "What somebody could come to believe"),
            tag(
                "p",
                f"Suppose that somebody has an idea of how likely it is {what}, and then studies"
                " the model with any other knowledge and any amount of computing. The belief"
                f" cannot become firmer than this{rare}:",
            ),
            table(
                ["belief before", "after, at most"],
                rows,
                caption="Beliefs before and after the model",
                quiet=True,
            ),
        ]
    )


def _price(statement: PrivacyStatement) -> Html:
    points = ledger_summary.curve(statement)
    how = CONVERSIONS[statement.accountant]
    if not points:
        return join([tag("h3", "The price"), tag("p", f"The price was computed by: {how}.")])
    prices = [(delta, ledger_summary.epsilon_at(statement, delta)) for delta in _DELTAS]
    rows = [[power(delta), f"{epsilon:.4g}"] for delta, epsilon in prices if math.isfinite(epsilon)]
    return join(
        [
            tag("h3", "The price at another δ"),
            tag(
                "p",
                "ε and δ belong together: the same noise can be described by a larger ε that fails"
                " more rarely, or by a smaller one that fails more often. The price was computed"
                f" by: {how}.",
            ),
            tag(
                "div",
                tag("figure", charts.epsilon_curve(points, statement.delta, statement.epsilon)),
                table(["δ", "ε"], rows, caption="ε of the same releases at some δ"),
                class_="beside",
            ),
        ]
    )


def _assumptions(statement: PrivacyStatement) -> Html | None:
    # that is a caution
    taken = [assumption for assumption in statement.assumptions if assumption.name != "delta"]
    if not taken:
        return None
    items = []
    for assumption in taken:
        caution = tag("strong", "Caution, read from the data: ") if assumption.inferred else None
        items.append(
            tag("li", caution, assumption.text, class_="caution" if assumption.inferred else None)
        )
    return join(
        [
            tag("h3", "What was taken to be public"),
            tag(
                "p", "The promise covers ratings. It does not cover what everybody may know anyway:"
            ),
            tag("ul", *items),
        ]
    )


def ledger(model: Any) -> Html:
    """Every release with what it could give away and the noise that prevents it."""
    statement: PrivacyStatement = model.privacy_
    rows = []
    for kind in ledger_summary.kinds(model):
        entry = kind.entry
        tails = f", α = {entry.alpha:g}" if entry.alpha else ""
        noise = "none" if entry.unsafe else entry.mechanism + tails
        rate = "" if entry.rate == 1 else f", batches of {entry.rate:.3g}"
        rows.append(
            [
                entry.name,
                f"{kind.count:,}",
                " × ".join(f"{n:,}" for n in entry.shape),
                noise + rate,
                f"{entry.sensitivity:.4g} ({_NORMS.get(entry.norm, entry.norm)})",
                f"{entry.noise_multiplier:.4g}",
                f"{kind.deviation:.4g}",
                "–" if math.isnan(kind.share) else f"{kind.share:.1%}",
            ]
        )
    head = [
        "release",
        "times",
        "numbers",
        "noise",
        "sensitivity",
        "multiplier",
        "deviation",
        "budget",
    ]
    whole = statement.ledger.to_dict()
    return join(
        [
            tag(
                "p",
                "Nothing left the ratings but the sums below. Each was bounded first (one person"
                " moves it by its sensitivity at most), then had noise added: deviation ="
                " multiplier × sensitivity.",
            ),
            table(head, rows, caption="The ledger", words=(3,), quiet=True),
            tag(
                "details",
                tag("summary", "Checksums of the ledger"),
                tag(
                    "p",
                    "Records form a chain of hashes. Last record: ",
                    tag("code", whole["head"]),
                    ". Seal over the stated ε and δ: ",
                    tag("code", whole["seal"]),
                    ". Both are hashes within the ledger; that of the file (sha256sum ledger.json,"
                    " discreet budget log) is another one: ",
                    tag("code", hashlib.sha256(statement.ledger.to_text().encode()).hexdigest()),
                    ".",
                ),
                tag("p", "To price the ledger again: ", tag("code", "discreet budget model/"), "."),
            ),
        ]
    )


def noise(model: Any, quality: Quality | None) -> Html:
    """What noise did, from the loudest facts down: one person, one item, items by popularity."""
    statement = getattr(model, "privacy_", None)
    if statement is None or not statement.finite:
        return tag("p", "No noise that protects anybody was added, so none had an effect.")
    found = ledger_summary.audible(ledger_summary.kinds(model))
    parts: list[Html | None] = [
        tag(
            "p",
            "Noise is the same for every item. What many rated stays above it; what few rated"
            " drowns in it.",
        )
    ]
    if found:
        rows = [[k.entry.name, f"{k.deviation:.4g}", f"{math.ceil(k.hearing):,}"] for k in found]
        k = ledger_summary.spread(model)
        how = (
            "This model bounds all items of a person together, however many; the table reckons"
            f" with people of {k} items."
            if ledger_summary.has_joint_bound(model)
            else f"A person speaks through {k} items at most; the table reckons with people who do."
        )
        parts.append(
            tag("p", f"{how} The more items a person spreads over, the more people it takes.")
        )
        parts.append(
            table(
                ["release", "deviation of the noise", "people it takes"],
                rows,
                caption="About how many people an item needs to be as loud as its noise",
            )
        )
    first = ledger_summary.loudest(found)
    counts = quality.counts if quality is not None else ledger_summary.read_released_counts(model)
    if counts is not None and first is not None:
        parts.append(_by_popularity(model, counts, first, quality is not None))
    elif counts is None:
        parts.append(
            tag(
                "p",
                "How popular items are is not written in this model. To see the effect by"
                " popularity, give ratings with ",
                tag("code", "--data"),
                ".",
            )
        )
    parts.append(_cost(quality) if quality is not None else None)
    length = (model.item_factors_ != 0).any(axis=1)
    if not length.all():
        instead = (
            "a person's own mean stands in"
            if model.goal == "rating"
            else "they are not recommended"
        )
        parts.append(
            tag(
                "p",
                f"{int((~length).sum()):,} of {len(length):,} items have no vector of their own,"
                f" because too few people rated them to be heard: {instead}.",
            )
        )
    return join(parts)


def _by_popularity(model: Any, counts: Any, kind: ledger_summary.Kind, exact: bool) -> Html:
    groups = ledger_summary.quintiles(model, counts, kind.hearing)
    rows = [
        [
            name,
            f"{g.n_items:,}",
            f"{g.with_vector:,}",
            _number(g.raters, ",.0f"),
            _number(g.signal, ".2f"),
            _number(g.length, ".3f"),
        ]
        for name, g in zip(QUINTILES, groups, strict=True)
    ]
    drawn = [
        (
            f"{name}: {g.with_vector:,} of {g.n_items:,} items have a vector",
            g.signal,
            math.nan,
            4 if g.signal < 1 else 0,
        )
        for name, g in zip(QUINTILES, groups, strict=True)
    ]
    source = (
        "counted in the ratings given, without noise"
        if exact
        else "by the noisy counts that were released"
    )
    return join(
        [
            tag("h3", "By popularity of the items"),
            tag(
                "p",
                f"Five groups with a fifth of the ratings each, {source}. Signal over noise: raters"
                f" of the middle item over the {math.ceil(kind.hearing):,} people that"
                f" “{kind.entry.name}” takes, a rough figure; below 1 (the line) an item's vector"
                " is mostly noise.",
            ),
            tag(
                "div",
                tag(
                    "figure",
                    charts.bars(
                        drawn, "Bars: signal over noise falls from popular to rare items", mark=1.0
                    ),
                ),
                table(
                    [
                        "quintile",
                        "items",
                        "with vector",
                        "raters",
                        "signal / noise",
                        "vector length",
                    ],
                    rows,
                    caption="Signal over noise, from popular to rare",
                ),
                class_="beside",
            ),
        ]
    )


def _cost(quality: Quality) -> Html | None:
    """The model beside itself with next to no noise, by popularity: the difference is what
    noise cost.
    """
    rows = {row.name: row for row in quality.found.rows}
    metric = quality.found.metrics[0]
    if quality.quiet not in rows or not rows[quality.mine].quintiles:
        return None
    pairs = zip(QUINTILES, rows[quality.mine].quintiles, rows[quality.quiet].quintiles, strict=True)
    scores = [(name, noisy[metric].mean, quiet[metric].mean) for name, noisy, quiet in pairs]
    cells = [
        [name, _number(a, ".4f"), _number(b, ".4f"), _number(a - b, "+.4f")]
        for name, a, b in scores
    ]
    worse = "positive" if metric in ("rmse", "mae") else "negative"
    return join(
        [
            tag("h3", "What it cost"),
            tag(
                "p",
                f"{metric} of the model trained twice on the same ratings: with this noise, and"
                f" with next to none (ε = {QUIET:,.0f}). Where the difference is {worse}, noise has"
                " made it worse. What the model chooses by its ε, such as the number of steps, may"
                " differ as well.",
            ),
            table(
                ["quintile", "with noise", "next to none", "difference"],
                cells,
                caption=f"{metric} from popular to rare items",
            ),
        ]
    )


def training(model: Any, quality: Quality | None) -> Html:
    """What is known of how training went."""
    parts: list[Html] = []
    held = trace_of(model)
    values = held or (quality.trace if quality is not None else [])
    finite = [x for x in values if math.isfinite(x)]
    if finite and min(finite) >= 0:
        whose = "in this training" if held else "in the training on 80 % of the ratings"
        what = _TRACES.get(type(model).__name__, "The model's own trace")
        parts += [
            tag("p", f"{what} {whose}, step by step."),
            tag("figure", charts.trace(finite, f"Line: from {finite[0]:.3g} to {finite[-1]:.3g}")),
        ]
    statement = getattr(model, "privacy_", None)
    steps = ledger_summary.spending_steps(statement) if statement is not None else []
    if steps:
        names, spent = zip(*steps, strict=True)
        parts += [
            tag(
                "p",
                "A private training is a row of releases, each paid for before the data were"
                " opened. This is what had been spent after each of them:",
            ),
            tag("figure", charts.staircase(names, spent, f"Staircase: ε rises to {spent[-1]:.4g}")),
        ]
        if len(steps) <= 30:
            rows = [
                [f"{at}. {name}", f"{epsilon:.4g}"]
                for at, (name, epsilon) in enumerate(steps, start=1)
            ]
            numbers = table(
                ["release", "ε so far"], rows, caption="ε spent after each release", quiet=True
            )
            parts.append(tag("details", tag("summary", "As a table"), numbers))
    if not parts:
        parts.append(tag("p", "The saved model holds no record of its training."))
    return join(parts)


def _percent(share: float) -> str:
    """With as many digits as it takes to tell it from certainty."""
    if share > 1 - 1e-9:
        return "more than 99.9999999 %"
    digits = 1 if share < 0.999 else math.ceil(-math.log10(1 - share)) - 1
    if share in (0.01, 0.1, 0.5):
        digits = 0
    return f"{100 * share:.{digits}f} %"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form).replace("-", "−")
