"""Rules about the guarantee: the noise is as charged and stated, and no private data are kept."""

from __future__ import annotations

import inspect
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from discreet.auditing.conformance.recorded_fit import Run, differences
from discreet.auditing.conformance.rules import Skipped, list_first, must, rule
from discreet.models.user_rows import clip_histories
from discreet.privacy.accounting import mechanisms
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.release.ledger import Ledger

if TYPE_CHECKING:
    from discreet.auditing.conformance.kit import Kit

#: With this p-value, a correct model fails about once in a million runs of the kit.
UNLIKELY = 1e-8
#: Above this ε, the privacy loss distributions of dp-accounting take minutes.
PLD_UP_TO = 60.0
#: Rule "post-processing" compares these.
_LEARNED = ("factors.safetensors: item_factors", "factors.safetensors: item_biases")
_PRIVATE_NAMES = re.compile(r"n_?users|users|n_?ratings|nnz|user_?(ids?|factors|vectors?)")
_REACHES_IN = re.compile(
    r"privacy\.sealed\b|privacy import .*\bsealed\b|\bKEY\b|\._content\b|\._vectors\b|\._compute\b"
)


@rule("noise", "the noise has the planned law and size, for every release and both grades")
def _noise(kit: Kit) -> str:
    least = math.inf
    for grade, run in (("secure", kit.base), ("seeded", kit.run_seeded)):
        for record in run.watch.releases:
            entry = record.entry
            assert entry is not None
            size = entry.noise_multiplier * entry.sensitivity
            z = np.concatenate(
                [
                    (draw * (1.0 if part.weights is None else part.weights)).ravel() / size
                    for part in record.parts
                    for draw in part.draws
                ]
            )
            ratio, chance = _variance_test(z, entry.mechanism)
            must(
                chance > UNLIKELY,
                f"{record.name!r}, {grade}: over {z.size:,} draws the noise has {ratio:.3f} times"
                f" the charged variance (chi-square, p = {chance:.1e})",
            )
            law = stats.kstest(
                z, mechanisms.make_mechanism(entry.mechanism, 1.0, entry.alpha).cdf
            ).pvalue
            must(
                law > UNLIKELY,
                f"{record.name!r}, {grade}: the noise is not {entry.mechanism} (p = {law:.1e})",
            )
            least = min(least, z.size)
    return f"at least {least:,.0f} draws each"


def _variance_test(z: NDArray[np.float64], mechanism: str) -> tuple[float, float]:
    """Return the variance of z, which should be 1, and its two-sided p-value."""
    ratio = float(np.mean(z**2))
    if mechanism == "gaussian":
        total = ratio * z.size
        return ratio, float(2 * min(stats.chi2.cdf(total, z.size), stats.chi2.sf(total, z.size)))
    # The deviation of the mean of z² for Laplace noise, of kurtosis 6; Huber noise has less.
    spread = math.sqrt(5 / z.size)
    return ratio, float(2 * stats.norm.sf(abs(ratio - 1) / spread))


@rule(
    "secure noise",
    "secure noise is fresh in every fit, on a grid of public size, and no parameter seeds it",
)
def _secure(kit: Kit) -> str:
    for grade, run in (("secure", kit.base), ("seeded", kit.run_seeded)):
        must(
            run.model.privacy_.noise == grade,
            f"after a fit with noise={grade!r} the statement has another grade",
        )
    for one, other in zip(kit.base.watch.releases, kit.again.watch.releases, strict=True):
        for a, b in zip(one.parts, other.parts, strict=True):
            must(
                not np.array_equal(a.draws[0], b.draws[0]),
                f"{one.name!r} had the same noise in two secure fits",
            )
            units = a.released / (a.grid or math.inf)
            must(
                a.grid is not None and np.array_equal(units, np.rint(units)),
                f"{one.name!r} is not on its grid: low bits may reveal the sum",
            )
    for label, near in kit.neighbors:
        theirs = near.watch.releases if isinstance(near, Run) else []
        for one, other in zip(kit.base.watch.releases, theirs, strict=False):
            pairs = zip(one.parts, other.parts, strict=False)
            same = all((a.grid, a.mechanism) == (b.grid, b.mechanism) for a, b in pairs)
            must(same, f"{one.name!r}, {label}: the grid or the noise changed")
    return "two fits"


@rule("re-priced", "by an independent accountant, the saved ledger costs at most the stated ε")
def _check_price(kit: Kit) -> str:
    ledger = Ledger.from_dict(kit.ledger_file(kit.base))
    stated = kit.base.model.privacy_.epsilon
    delta = max(0.0, ledger.plan.budget.delta - ledger.noise_delta)
    if stated <= PLD_UP_TO:
        found = accounting.independent_epsilon(ledger.events(), delta)
        by = "dp-accounting"
    else:
        found = ledger.price().epsilon
        by = "the ledger's own accountant, because dp-accounting takes minutes at this ε"
    must(found <= stated + 1e-6, f"{by} finds ε = {found:.8g}, but {stated:.8g} is stated")
    return f"{found:.6g} by {by}, {stated:.6g} stated"


@rule("statement", "the statement follows from plan and ledger, within the budget")
def _statement(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        plan = run.model.plan(kit.ratings.n_items)
        statement = run.model.privacy_
        price = statement.ledger.price()
        budget = plan.budget
        must(statement.finite, "the statement is NOT PRIVATE")
        must(statement.epsilon == price.epsilon, "the statement's ε is not what the ledger costs")
        must(
            statement.epsilon <= budget.epsilon * (1 + 1e-9),
            "the statement's ε is above the budget",
        )
        # Pure ε has no δ except that of the sampler.
        spent = max(budget.delta, min(statement.ledger.noise_delta, 1e-15))
        must(statement.delta <= spent, "the statement's δ is above the budget")
        must(
            statement.neighboring == budget.neighboring == run.model.neighboring,
            "the neighboring relation differs",
        )
        must(statement.accountant == plan.accountant, "the accountant is not the plan's")
        must(
            run.model.accountant in (plan.accountant, "auto"),
            "the accountant is not the requested one",
        )
        must(f"{statement.epsilon:.4g}" in str(statement), "the text does not name ε")
        must(
            any(a.name == "items" for a in statement.assumptions),
            "the item list is not among the assumptions",
        )
    must("RESEARCH MODE" in str(kit.run_seeded.model.privacy_), "seeded noise is not declared")
    cautions = [a.name for a in statement.assumptions if a.inferred]
    caution = f", read from the data: {', '.join(cautions)}" if cautions else ""
    return f"ε = {statement.epsilon:.4g}, δ = {statement.delta:.3g}{caution}"


@rule(
    "saved folder",
    "nothing private is saved: no user's vector or id, no number of users or ratings, no seed",
)
def _check_saved_folder(kit: Kit) -> str:
    for label, run in kit.neighbors:
        if isinstance(run, Run):
            found = [
                place
                for place in differences(kit.base.read_saved, run.read_saved)
                if place not in _LEARNED
            ]
            must(
                not found,
                f"{label}: {list_first(found)} changed in the saved folder, although the same"
                " values were released",
            )
    for place, content in kit.base.read_saved.items():
        must(
            not _PRIVATE_NAMES.fullmatch(re.split(r"[ .]", place)[-1]),
            f"the saved folder holds {place}",
        )
        if isinstance(content, tuple) and len(content) == 3:
            must(kit.ratings.n_users not in content[1], f"{place} has one row per user")
    hidden = {f"a user's id, {user}": str(user) for user in kit.ratings.user_ids.tolist()} | {
        "the seed": str(kit.seed)
    }
    for run in (kit.base, kit.run_seeded):
        for file, content in run.files.items():
            must(not (there := _find_values(hidden, content)), f"{file} holds {list_first(there)}")
        seed = run.read_saved.get("model.json: parameters.random_state", "None")
        must(
            seed == "None",
            f"model.json holds random_state = {seed}, which reveals seeded noise",
        )
    return ", ".join(kit.base.files)


def _find_values(hidden: dict[str, str], content: bytes) -> list[str]:
    """List the values that occur as words; short ones are skipped, they occur by chance."""
    words = set(re.findall(rb"[0-9A-Za-z_]+", content))
    return [what for what, text in hidden.items() if len(text) >= 5 and text.encode() in words]


@rule("round trip", "a loaded model has the same guarantee, ledger, factors and predictions")
def _round_trip(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        again = kit.load(run)
        one = run.model.privacy_
        other = again.privacy_
        must(one == other and str(one) == str(other), "the statement changed by saving and loading")
        must(
            one.ledger.to_dict() == other.ledger.to_dict(),
            "the ledger changed by saving and loading",
        )
        same = np.array_equal(run.model.item_factors_, again.item_factors_)
        must(same, "item_factors_ changed by saving and loading")
        # Adversarial users have ratings outside any range.
        some = clip_histories(kit.some_people, run.model.history_range)
        lists, others = run.model.recommend_many(some, 5), again.recommend_many(some, 5)
        must(all(map(np.array_equal, lists, others)), "predictions changed by saving and loading")
    return "statement, ledger, factors and predictions"


@rule("zero noise", "without noise the model is its non-private algorithm")
def _zero_noise(kit: Kit) -> str:
    model = kit.without_noise
    must(not model.privacy_.finite, "a fit without noise claims to be private")
    must("NOT PRIVATE" in model.card(), "the card of a fit without noise lacks NOT PRIVATE")
    if kit.twin is None:
        raise Skipped("no twin was given: pass twin=function(model, ratings) -> item factors")
    expected = np.asarray(kit.twin(model, kit.ratings))
    found = model.item_factors_
    must(
        expected.shape == found.shape,
        f"the factors of twin have shape {expected.shape}, the model's {found.shape}",
    )
    off = float(np.abs(expected - found).max() / max(float(np.abs(expected).max()), 1e-30))
    must(
        off <= kit.tolerance,
        f"item factors are off by {off:.2e} of the largest, but {kit.tolerance:g} is allowed",
    )
    return f"off by {off:.1e} of the largest factor"


@rule("seed", "seed 0 is a seed like any other, and a second fit starts from scratch")
def _seed(kit: Kit) -> str:
    zero, again, twice, one = kit.seeds
    must(
        not differences(zero.learned, again.learned),
        "random_state=0 gives another model every time",
    )
    must(
        not differences(zero.learned, twice.learned),
        "a second fit continues where the first one ended",
    )
    must(bool(zero.watch.releases), "nothing was released through Session.release")
    pairs = zip(zero.watch.releases[0].parts, one.watch.releases[0].parts, strict=True)
    must(
        not all(np.array_equal(a.draws[0], b.draws[0]) for a, b in pairs),
        "random_state does not change the noise",
    )
    return "0, 0 again, 0 after another fit, 1"


@rule(
    "key",
    "the model's code uses neither the key to private data nor private parts of sealed objects",
)
def _key(kit: Kit) -> str:
    classes = [*type(kit.model).__mro__, *type(kit.model.make_algorithm()).__mro__]
    modules: set[Any] = {inspect.getmodule(cls) for cls in classes} - {None}
    for module in modules:
        for name, value in vars(module).items():
            owner = value.__name__ if inspect.ismodule(value) else type(value).__module__
            must(
                owner != "discreet.privacy.sealed",
                f"{module.__name__}.{name} is the key to private data",
            )
    for cls in classes:
        try:
            found = _REACHES_IN.search(inspect.getsource(cls))
        except (OSError, TypeError):  # no source: built in, or defined interactively
            continue
        must(found is None, f"{cls.__name__} uses {found.group() if found else ''!r}")
    return f"{len(modules)} modules"
