"""The report: one HTML file that needs nothing else, neither network nor fonts nor pictures.

The words are in ``templates/report.html.j2``; here are the numbers. Sections that are computed from
users' ratings carry a mark, because the model's ε does not cover what they show.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from discreet.evaluation.comparison import NO_NOISE, model_name
from discreet.evaluation.metrics import parse
from discreet.privacy.accounting.budget import WEAK_EPSILON
from discreet.privacy.accounting.pricing import CONVERSIONS
from discreet.privacy.release.statement import PrivacyStatement, describe_factor
from discreet.report import charts, item_map, ledger_summary
from discreet.report.evaluation_section import Quality, trace_of
from discreet.report.html import markup, power, render_template, script_data
from discreet.report.item_map import Sample
from discreet.version import __version__

_LOOK = "computed from ratings"
_WORLDS = {
    "add-remove": "the data with and without all ratings of any one user",
    "replace-one": "the data, and the data with all ratings of any one user replaced by another's",
}
_RELATIONS = {"add-remove": "one user added or removed", "replace-one": "one user replaced"}
_NOISE = {
    "secure": (
        "It came from the operating system's entropy through a cryptographic generator and was"
        " added to integers, so that rounding reveals nothing."
    ),
    "seeded": "RESEARCH MODE: it came from a seed and can be subtracted with that seed.",
}
QUINTILES = ("1 (head)", "2", "3", "4", "5 (tail)")
_TRACES = {"DPLMC": "Change of the item factors (root mean square)"}
_NORMS = {"l1": "ℓ₁", "l2": "ℓ₂"}
_DELTAS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-9)
_MOST_ROWS = 30  # releases up to which the costs are shown as a table as well: one screen


def render(
    model: Any, quality: Quality | None, shown: list[Sample], title: str | None = None
) -> str:
    """Render the whole file as text."""
    statement: PrivacyStatement | None = getattr(model, "privacy_", None)
    looks = quality is not None
    # whether the trace is of a model trained on the ratings given, and not of the saved one
    anew = quality is not None and bool(quality.trace) and not trace_of(model)
    values: dict[str, Any] = {}
    sections = {"promise": ("Privacy guarantee", False)}
    badge = "NOT PRIVATE"
    if statement is not None:
        sections["ledger"] = ("Released statistics", False)
        values["ledger"] = _summarize_ledger(model, statement)
        unsafe = sorted({entry.name for entry in statement.ledger.entries if entry.unsafe})
        values["unsafe"] = (
            f"{', '.join(unsafe)} released without noise" if unsafe else "no noise was added"
        )
        if statement.finite:
            sections["noise"] = ("Effect of the noise", looks)
            values["guarantee"] = _describe_guarantee(statement)
            values["noise"] = _measure_noise(model, quality)
            badge = f"{statement.status}, ε = {statement.epsilon:.4g}, δ = {power(statement.delta)}"
    sections |= {
        "quality": ("Evaluation", looks),
        "training": ("Training", anew),
        "samples": ("Example recommendations", False),
        "map": ("Item map", False),
        "about": ("About this page", False),
    }
    explicit = model.goal == "rating"
    if quality is not None:
        values |= {"scores": _tabulate_scores(quality), "metric": quality.found.metrics[0]}
    return render_template(
        "report.html.j2",
        "style.css",
        "script.js",
        model=model,
        name=type(model).__name__,
        full_name=model_name(model),
        title=title,
        statement=statement,
        finite=statement is not None and statement.finite,
        badge=badge,
        lifetime=getattr(model, "details_", {}).get("timeline", {}).get("guarantee", ""),
        sections=sections,
        look=_LOOK,
        quality=quality,
        explicit=explicit,
        quintiles=QUINTILES,
        charts=charts,
        training=_describe_training(model, statement, quality),
        samples=[_describe_sample(sample, explicit) for sample in shown],
        invented=all(sample.invented for sample in shown),
        map=_describe_map(model),
        parameters=_list_parameters(model),
        version=__version__,
        **values,
    )


def describe_strength(statement: PrivacyStatement) -> str:
    """Return one sentence on how strong ε is."""
    if statement.weak:
        return f"An ε above {WEAK_EPSILON:g} is {statement.strength}."
    limits = (
        ": the bound alone does not rule out an attacker who is nearly certain"
        if statement.epsilon > 2  # from here on, a belief of 50 % may rise above 88 %
        else ""
    )
    return f"Strength of this ε: {statement.strength}{limits}."


def _describe_guarantee(statement: PrivacyStatement) -> dict[str, Any]:
    epsilon, delta = statement.epsilon, statement.delta
    together = "all releases as one Gaussian mechanism with this sensitivity and unit noise"
    prices = [(at, ledger_summary.epsilon_at(statement, at)) for at in _DELTAS]
    return {
        "worlds": _WORLDS[statement.neighboring].replace("one user", f"one {statement.user}"),
        "times": describe_factor(epsilon, ",.3g") if epsilon < 30 else f"e^{epsilon:.4g}",
        "verdict": describe_strength(statement),
        "facts": [
            ("ε", f"{epsilon:.4g}", "bound on the log-ratio of any probability; smaller is better"),
            ("δ", power(delta), "the additional probability up to which the bound holds"),
            *([] if statement.mu is None else [("μ", f"{statement.mu:.4g}", together)]),
            ("Neighbors", _RELATIONS[statement.neighboring], "difference of the two data sets"),
            (
                "Releases",
                f"{len(statement.ledger.entries):,}",
                "noisy sums from which the whole model was computed",
            ),
            ("Noise", statement.noise, _NOISE.get(statement.noise, "")),
        ],
        "doubt": (
            "that a given user is in the data"
            if statement.neighboring == "add-remove"
            else "that a user has one of two given histories"
        ),
        "seen": f"{ledger_summary.SEEN:.0%}",
        "beliefs": [
            (
                _percent(prior),
                _percent(ledger_summary.belief(prior, epsilon, delta, ledger_summary.SEEN)),
            )
            for prior in (0.01, 0.1, 0.5)
        ],
        "curve": ledger_summary.curve(statement),
        "how": CONVERSIONS[statement.accountant],
        "prices": [(power(at), f"{price:.4g}") for at, price in prices if math.isfinite(price)],
    }


def _summarize_ledger(model: Any, statement: PrivacyStatement) -> dict[str, Any]:
    rows = []
    for kind in ledger_summary.kinds(model):
        entry = kind.entry
        tails = f", α = {entry.alpha:g}" if entry.alpha else ""
        rate = "" if entry.rate == 1 else f", batches of {entry.rate:.3g}"
        rows.append(
            [
                entry.title,
                f"{kind.count:,}",
                " × ".join(f"{n:,}" for n in entry.shape),
                ("none" if entry.unsafe else entry.mechanism + tails) + rate,
                f"{entry.sensitivity:.4g} ({_NORMS.get(entry.norm, entry.norm)})",
                f"{entry.noise_multiplier:.4g}",
                f"{kind.deviation:.4g}",
                "–" if math.isnan(kind.share) else f"{kind.share:.1%}",
            ]
        )
    whole = statement.ledger.to_dict()
    digest = hashlib.sha256(statement.ledger.to_text().encode()).hexdigest()
    return {"rows": rows, "head": whole["head"], "seal": whole["seal"], "sha256": digest}


def _measure_noise(model: Any, quality: Quality | None) -> dict[str, Any]:
    """Compare noise and signal: of one user, of one item, and of items by popularity."""
    found = ledger_summary.audible(ledger_summary.kinds(model))
    loudest = ledger_summary.loudest(found)
    counts = quality.counts if quality is not None else ledger_summary.read_released_counts(model)
    length = (model.item_factors_ != 0).any(axis=1)
    values: dict[str, Any] = {
        "rows": [[k.entry.title, f"{k.deviation:.4g}", f"{math.ceil(k.hearing):,}"] for k in found],
        "joint": ledger_summary.has_joint_bound(model),
        "spread": ledger_summary.spread(model),
        "counted": counts is not None,
        "cost": None if quality is None else _tabulate_cost(quality),
        "quiet": f"{NO_NOISE:,.0f}",
        "without": "" if length.all() else f"{int((~length).sum()):,} of {len(length):,}",
    }
    if counts is None or loudest is None:
        return values
    groups = list(
        zip(QUINTILES, ledger_summary.quintiles(model, counts, loudest.hearing), strict=True)
    )
    return values | {
        "people": f"{math.ceil(loudest.hearing):,}",
        "loudest": loudest.entry.title,
        "groups": [
            [
                name,
                f"{g.n_items:,}",
                f"{g.with_vector:,}",
                _number(g.raters, ",.0f"),
                _number(g.signal, ".2f"),
                _number(g.length, ".3f"),
            ]
            for name, g in groups
        ],
        "bars": [
            (
                f"{name}: {g.with_vector:,} of {g.n_items:,} items have a vector",
                g.signal,
                math.nan,
                4 if g.signal < 1 else 0,
            )
            for name, g in groups
        ],
    }


def _tabulate_cost(quality: Quality) -> list[list[str]]:
    """Compare the model with itself without privacy, by popularity of the items."""
    metric = quality.found.metrics[0]
    mine = quality.found.rows[0]
    free = next((r for r in quality.found.rows if r.name.endswith("without privacy")), None)
    if free is None:
        return []
    pairs = zip(QUINTILES, mine.quintiles, free.quintiles, strict=True)
    scores = [(name, noisy[metric].mean, exact[metric].mean) for name, noisy, exact in pairs]
    return [
        [name, _number(a, ".4f"), _number(b, ".4f"), _number(a - b, "+.4f")]
        for name, a, b in scores
    ]


def _tabulate_scores(quality: Quality) -> dict[str, Any]:
    found = quality.found
    accuracy = [m for m in found.metrics if parse(m).kind in ("rating", "ranking")]
    bias = [m for m in found.metrics if m not in accuracy]
    # recall, not rmse, differs between popular and rare items
    metric = next(m for m in accuracy if parse(m).kind == "ranking")

    def caption(metric: str) -> str:
        return f"{metric}, {'lower' if parse(metric).kind == 'rating' else 'higher'} is better"

    def draw(metric: str) -> list[tuple[str, float, float, int]]:
        return [
            (row.name, score.mean, score.stderr, 5 if at else 0)
            for at, row in enumerate(found.rows)
            if (score := row.scores.get(metric)) is not None
        ]

    def write(score: Any, form: str = ".4f", error: bool = True) -> str:
        if score is None or math.isnan(score.mean):
            return "–"
        more = "" if math.isnan(score.stderr) or not error else f" ± {score.stderr:.4f}"
        return f"{_number(score.mean, form)}{more}"

    def tabulate(metrics: list[str], error: bool = True) -> list[list[str]]:
        return [
            [row.name, *(write(row.scores.get(m), error=error) for m in metrics)]
            for row in found.rows
        ]

    return {
        "accuracy": accuracy,
        "bias": bias,
        "metric": metric,
        "mine": found.rows[0].name,
        "bars": [(caption(metric), draw(metric)) for metric in accuracy],
        "rows": tabulate(accuracy),
        "differences": [
            [row.name, *(write(row.differences.get(m), "+.4f") for m in accuracy)]
            for row in found.rows[1:]
        ],
        "bias_rows": tabulate(bias, error=False),
        "caption": f"{caption(metric)}; from popular to rare items",
        "series": [
            charts.Series(
                row.name,
                [group[metric].mean for group in row.quintiles],
                [group[metric].stderr for group in row.quintiles],
                at % 6,
            )
            for at, row in enumerate(found.rows)
            if metric in row.scores
        ],
        "slices": [
            [row.name, *(write(group.get(metric), error=False) for group in row.quintiles)]
            for row in found.rows
            if metric in row.scores
        ],
    }


def _describe_training(
    model: Any, statement: PrivacyStatement | None, quality: Quality | None
) -> dict[str, Any]:
    own = trace_of(model)
    trace = own or (quality.trace if quality is not None else [])
    trace = [value for value in trace if math.isfinite(value)]
    values: dict[str, Any] = {}
    if trace and min(trace) >= 0:
        values |= {
            "trace": trace,
            "label": f"Line: from {trace[0]:.3g} to {trace[-1]:.3g}",
            "what": _TRACES.get(type(model).__name__, "The model's own trace"),
            "whose": "in this training" if own else "in the training on 80 % of the ratings",
        }
    steps = ledger_summary.spending_steps(statement) if statement is not None else []
    if steps:
        names, spent = zip(*steps, strict=True)
        rows = [[f"{at}. {name}", f"{spent:.4g}"] for at, (name, spent) in enumerate(steps, 1)]
        values |= {
            "steps": steps,
            "names": names,
            "spent": spent,
            "stairs": f"Staircase: ε rises to {spent[-1]:.4g}",
            "rows": rows if len(rows) <= _MOST_ROWS else [],
        }
    return values


def _describe_sample(sample: Sample, explicit: bool) -> dict[str, Any]:
    ratings = {rating for _, rating in sample.history}
    alike = explicit and len(ratings) == 1
    return {
        "name": sample.name,
        "alike": f", each rated {min(ratings):g}" if alike else "",
        "history": [
            (name, f": {rating:g}" if explicit and not alike else "")
            for name, rating in sample.history
        ],
        "rows": [
            [str(at), markup("<bdi>{}</bdi>", name), f"{score:.2f}" if explicit else f"{score:.3f}"]
            for at, (name, score) in enumerate(sample.best, start=1)
        ],
    }


def _describe_map(model: Any) -> dict[str, Any] | None:
    drawn = item_map.item_map(model)
    if drawn is None:
        return None
    missing = len(model.item_ids_) - len(drawn.at)
    return {
        "drawn": f"{len(drawn.at):,}",
        "share": f"{drawn.share:.0%}",
        "missing": f"{missing:,}" if missing else "",
        "data": script_data(item_map.map_data(drawn, model)),
    }


def _list_parameters(model: Any) -> dict[str, str]:
    shown = {
        name: value
        for name, value in model.params_to_save().items()
        if value is not None and name != "algorithm"
    }
    algorithm = getattr(model, "algorithm_", None)
    if algorithm is not None:  # with every number as it was resolved
        resolved = algorithm.to_dict()
        shown |= {"algorithm": resolved.pop("name")} | resolved
    return {name: str(value) for name, value in shown.items()}


def _percent(share: float) -> str:
    """Write a probability with as many digits as it takes to tell it from certainty."""
    if share > 1 - 1e-9:
        return "more than 99.9999999 %"
    digits = 1 if share < 0.999 else math.ceil(-math.log10(1 - share)) - 1
    if share in (0.01, 0.1, 0.5):
        digits = 0
    return f"{100 * share:.{digits}f} %"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form).replace("-", "−")
