"""The tables of docs/audits.md: every private model by three levels, every planted
fault by five.

    python tests/support/audit_tables.py models                  (rows that are not on the page yet)
    python tests/support/audit_tables.py faults
    python tests/support/audit_tables.py faults "ratings are not clipped" …      (these rows, anew)
    python tests/support/audit_tables.py caught           (the last column of faults alone, at once)

A row is written to the page as soon as it is known. Everything anew takes about ten minutes for
each table.
"""

import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "audits.md"
sys.path.insert(0, str(HERE.parent))

import discreet  # noqa: E402
from discreet.auditing import audit  # noqa: E402
from discreet.errors import DiscreetError  # noqa: E402
from support import planted_models  # noqa: E402
from support.fault_helpers import FAULTS, planted  # noqa: E402
from support.planted_models import RULES_BROKEN  # noqa: E402

EPSILONS = (0.5, 1.0, 8.0)
LEVELS = ("transcript", "noise", "one run")
PROMISE = {"epsilon": 1.0, "rating_range": (1.0, 5.0)}

#: Public categories of the generated items, whose ids begin with 101.
KINDS = {"item_features": {101 + 3 * i: f"kind {i // 6}" for i in range(60)}}

MODELS = {
    "DPMF, ranking": (discreet.DPMF, {}),
    "DPMF, features": (discreet.DPMF, KINDS),
    # catalogs of this size would have pairs
    "DPMF, communities": (discreet.DPMF.configure, {"route": "communities"}),
    "DPMF, rating": (discreet.DPMF, {"goal": "rating"}),
    "DPALS": (discreet.DPALS, {}),
    "DPALS, implicit": (discreet.DPALS, {"goal": "ranking"}),
    "DPLMC": (discreet.DPLMC, {}),
    "HuberALS, Huber noise": (discreet.HuberALS, {}),
    "HuberALS, Gaussian noise": (discreet.HuberALS, {"mechanism": "gaussian"}),
    "DPFrankWolfe": (discreet.DPFrankWolfe, {}),
    "DPSVD": (discreet.DPSVD, {}),
    "DPSGLD": (discreet.DPSGLD, {}),
    "DPSGD": (discreet.DPSGD, {}),
}

#: Trainings of level 2, where they are not 100: with many steps, each takes long.
SEARCH = {"DPALS, implicit": 300}
FITS = {"DPMF, rating": 60, "DPSGLD": 40, "DPSGD": 40}


def few(**given):
    """DPALS in which people have more items than they may contribute, so that choices matter."""
    return discreet.DPALS.configure(factors=3, max_items=6, **PROMISE | given)


#: Models in which faults show, by name.
SHOWING = {
    "DPALS": few,
    "DPALS, implicit": lambda: few(goal="ranking"),
    "DPLMC, spectral": lambda: discreet.DPLMC.configure(
        factors=3, initialization="spectral", **PROMISE
    ),
    "DPALS, replace-one": lambda: few(neighboring="replace-one"),
    "DPMF": lambda: discreet.DPMF(**PROMISE),
    "DPMF, plain pairs": lambda: discreet.DPMF.configure(centered=False, **PROMISE),
    "DPMF, replace-one": lambda: discreet.DPMF(neighboring="replace-one", **PROMISE),
    "DPMF, centered, replace-one": lambda: discreet.DPMF.configure(
        centered=True, neighboring="replace-one", **PROMISE
    ),
    "DPMF, features": lambda: discreet.DPMF(**PROMISE, **KINDS),
    "DPMF, features, replace-one": lambda: discreet.DPMF(
        neighboring="replace-one", **PROMISE, **KINDS
    ),
    "DPMF, rating": lambda: discreet.DPMF(goal="rating", **PROMISE),
    "DPSVD": lambda: discreet.DPSVD(**PROMISE),
    "DPFrankWolfe": lambda: discreet.DPFrankWolfe(**PROMISE),
    "DPSGLD": lambda: discreet.DPSGLD.configure(iterations=6, **PROMISE),
    "DPSGD": lambda: discreet.DPSGD.configure(iterations=20, **PROMISE),
    "HuberALS, Laplace noise": lambda: discreet.HuberALS(mechanism="laplace", delta=0.0, **PROMISE),
    "ReleasesTwice": lambda: planted_models.ReleasesTwice.configure(
        factors=3, iterations=1, **PROMISE
    ),
    "Reveals": lambda: planted_models.Reveals(3, **PROMISE),
    "DPMF, communities": lambda: discreet.DPMF.configure(
        route="communities", **(PROMISE | {"epsilon": 200.0})
    ),
    "DPMF, communities, replace-one": lambda: discreet.DPMF.configure(
        route="communities", neighboring="replace-one", **(PROMISE | {"epsilon": 200.0})
    ),
    "DPMF, rating, replace-one": lambda: discreet.DPMF(
        goal="rating", neighboring="replace-one", **PROMISE
    ),
    "private scores": lambda: discreet.DPMF(**PROMISE),
    "tuning": lambda: discreet.DPMF(**PROMISE),
}
#: Of faults outside trainings, the level that looks there.
OUTSIDE = {"private scores": "scores", "tuning": "tuning"}
#: Where a release has as many numbers as there are pairs of items.
CANARIES = {"DPLMC, spectral": 200}
#: Where a fault shows, if not in the plain DPALS.
WHERE = {
    "no margin is left for rounding after the sum is centered": "DPMF",
    "gradients of choices are not clipped": "DPMF, features",
    "choice moments are charged by half of their clipping bound": "DPMF, features",
    "choice moments are charged as if they had no sign": "DPMF, features, replace-one",
    "items of a community are not of norm 1": "DPMF, communities",
    "community counts are charged as if users could not change communities": (
        "DPMF, communities, replace-one"
    ),
    "a user adds to the community that most users of its block choose": "DPMF, communities",
    "left-out hits are charged by half of their range": "DPMF, communities",
    "the sum of ratings is charged with √k instead of k": "DPSVD",
    "residuals on a descent are not clipped": "DPMF, rating",
    "a gradient is charged without the vectors' length": "DPMF, rating",
    "covariance rows are not clipped": "DPLMC, spectral",
    "contributions are rounded away from zero": "DPLMC, spectral",
    "pairs are divided by the number of items instead of pairs": "DPMF, plain pairs",
    "√2 is forgotten where pairs are replaced": "DPMF, replace-one",
    "likes are not of norm 1": "DPMF",
    "how much is liked is left out of what pairs are divided by": "DPMF, plain pairs",
    "pairs are counted in both triangles": "DPMF, plain pairs",
    "a user who likes something is counted twice": "DPMF",
    "centered pairs are divided by the root of their norm": "DPMF",
    "centered pairs are charged as if they had no sign": "DPMF, centered, replace-one",
    "pairs are rounded up": "DPMF, plain pairs",
    "replacing a user is charged as removing one": "DPALS, replace-one",
    "√k is forgotten for totals": "DPSVD",
    "a Gram matrix is charged by the norm of a third": "DPALS, implicit",
    "the number of ratings is charged with √k instead of k": "DPSVD",
    "a gradient of biases is charged by half of the clipping bound": "DPMF, rating",
    "weights of entries are not of norm 1": "DPMF, rating",
    "three numbers are charged as one": "DPMF, rating",
    "rows of residuals are not clipped": "DPFrankWolfe",
    "pairs are divided by too little": "DPSVD",
    "users are counted twice": "DPFrankWolfe",
    "a user's gradient is not clipped": "DPSGLD",
    "Laplace noise is charged in the Euclidean norm": "HuberALS, Laplace noise",
    "a release may be made once more than planned": "ReleasesTwice",
    "what is revealed leaves epsilon finite": "Reveals",
    "sampling uses numpy's global generator": "DPSGD",
    "sampling is 2 % too frequent": "DPSGD",
    "the draw of a user depends on the id": "DPSGD",
    "gains are not clipped below": "DPMF, rating",
    "gains of all ranks are charged as one": "DPMF, rating",
    "moments of a prior are not clipped": "DPMF, rating",
    "two moments are charged as one": "DPMF, rating",
    "solutions are not clipped for their Gram matrix": "DPMF, rating",
    "pairs of residuals are charged as if they had no sign": "DPMF, rating, replace-one",
    "private scores have no noise": "private scores",
    "what users measured is not clipped": "private scores",
    "the score of a tuned training has no noise": "tuning",
    "tuning makes the number of runs that is its mean": "tuning",
    "the best of several runs is charged as one": "tuning",
}
UNEXPLAINED = "UNEXPLAINED"
#: Of faults that are in no training, so that there is nothing to run.
REGRESSION = "in `discreet.regression`, which is no recommender; tests of the statistic"
ELSEWHERE = ("about accounts, which no single training shows; a test", REGRESSION)
#: Why no level refutes some: these are caught by the tests that docs/planted-faults.md names, or
#: are no loss of privacy.
EXPLAINED = {
    "features are not clipped": REGRESSION,
    "all rows of a user count": REGRESSION,
    "weights of rows are roots, so that a user counts as √n rows": REGRESSION,
    "products with targets are charged as if they had no sign": REGRESSION,
    "moments and number of rows are charged as one": REGRESSION,
    "features are rounded away from zero": REGRESSION,
    "no margin is left for rounding after the sum is centered": (
        "adds at most a unit of the grid per item, with a margin for it; tests on coarse grids"
    ),
    "gradients of choices are not clipped": (
        "the vector is clipped again to norm 1, so nothing changes; a test of the statistic"
    ),
    "choice moments are charged as if they had no sign": (
        "no canary had a gradient so opposite, with 60 searched; a test of the statistic"
    ),
    "left-out hits are charged by half of their range": (
        "no searched canary is held out and moves the check by more than half; tests of the"
        " statistic"
    ),
    "what users measured is not clipped": (
        "scores are clipped before as well, so nothing changes; tests of the statistic"
    ),
    "float64 adds up more entries of an item than it can": (
        "shows from millions of entries on; a test with that many"
    ),
    "contributions are rounded to the nearest": (
        "adds less than 2⁻²⁰, with a margin for it; tests on coarse grids"
    ),
    "sums are rounded instead of contributions": "as above",
    "float64 adds up more users than it can": (
        "shows from millions of users on; a test with that many"
    ),
    "a training that died gives its reservation back": (
        "about accounts, which no single training shows; a test"
    ),
    "an account is overspent by one training": (
        "about accounts, which no single training shows; a test"
    ),
    "an account mixes relations": "about accounts, which no single training shows; a test",
    "a release may be made once more than planned": (
        "the session refuses to finish with a release too many; a test"
    ),
    "seeded noise is called secure": (
        "a wrong word about noise of another grade, which audits do not use; a test"
    ),
    "the draw of a user depends on the id": (
        "two users share a draw only where their ids collide; a test with such ids"
    ),
    "ReleasesTwice": "`Session.release` refuses the second release: the training fails",
    "Reveals": "claims nothing: ε is infinite",
    "OpensSealedData": "it reads the data and does nothing with them; conformance rule “key”",
    "FetchesTheKey": "it takes the key and does nothing with it; conformance rule “key”",
    "LeavesOneOut": "releases less than it is charged for; conformance rule “plan”",
    "KeepsARidgeToItself": (
        "no loss of privacy: a saved model predicts otherwise; conformance rule “round trip”"
    ),
    "StartsWarm": "shows only where one object is trained twice; conformance rule “seed”",
    "SavesTheSeed": (
        "shows with seeded noise, which audits do not use; conformance rule “saved folder”"
    ),
    "ForgetsSeedZero": "no loss of privacy; conformance rule “seed”",
}


def planted_classes():
    """The models of tests/support/planted_models.py, by name."""
    found = vars(planted_models).items()
    own = {
        name: kind
        for name, kind in found
        if isinstance(kind, type) and issubclass(kind, discreet.DPALS)
    }
    return {name: kind for name, kind in own.items() if name not in ("DPALS", "Telling")}


def judged(make, levels=LEVELS, **options):
    """{level: (refuted or None, seconds, words)}; None where there was nothing to judge."""
    found = {}
    for name in levels:
        try:
            (level,) = audit(make(), levels=[name], seed=1, **options).levels
        except DiscreetError as error:
            found[name] = (None, 0.0, str(error))
        else:
            found[name] = (level.refuted, level.seconds, level.findings[0])
    return found


def audit_fault(name):
    """One planted fault by the levels that look at trainings, or by the one that looks at
    scores or at tuning.
    """
    fits = 150 if name == "sampling is 2 % too frequent" else 30  # enough draws to show it
    options = {"search": 10, "fits": fits, "canaries": CANARIES.get(WHERE.get(name, ""), 2000)}
    if name in FAULTS:
        with planted(name):
            outside = OUTSIDE.get(WHERE.get(name, ""))
            if outside is not None:
                return judged(SHOWING[WHERE[name]], [outside])
            return judged(SHOWING[WHERE.get(name, "DPALS")], **options)
    return judged(lambda: planted_classes()[name](3, **PROMISE), **options)


def audit_model(name, epsilon):
    """One model at one ε by all three levels."""
    make, given = MODELS[name]
    levels = []
    seconds = []
    for level in LEVELS:
        begin = time.process_time()
        options = {
            "levels": [level],
            "seed": 1,
            "search": SEARCH.get(name, 60),
            "fits": FITS.get(name, 100),
        }
        levels += audit(make(epsilon=epsilon, **given), **options).levels
        seconds.append(time.process_time() - begin)
    transcript, noise, one_run = levels
    return {
        "refuted": [level.name for level in levels if level.refuted],
        "share": transcript.found / transcript.claimed,
        "worst": transcript.details["worst"],
        "scatter": noise.details["scatter"],
        "at_most": noise.details["scatter_at_most"],
        "fdp": one_run.details["epsilon_fdp"],
        "steinke": one_run.details["epsilon_steinke"],
        "seconds": seconds,
    }


# ------------------------------------------------------------------ the tables


HEADS = {
    "models": (
        "| model at ε | transcript: worst canary, of the claim | noise: scatter of ℓ (1 is charged;"
        " at most) | one run: ε ≥, by f-DP · Steinke et al. | refuted | seconds of one core |"
    ),
    "faults": (
        "| planted | shows in | transcript | noise | one run | scores or tuning | if none refutes |"
        " also caught by |"
    ),
}


def model_row(name):
    """One line of the table of models."""
    model, _, epsilon = name.partition(" at ")
    found = audit_model(model, float(epsilon))
    fdp = "–" if found["fdp"] is None else f"{found['fdp']:.2f}"
    cells = [
        f"{found['share']:.4f}",
        f"{found['scatter']:.3f} ({found['at_most']:.2f})",
        f"{fdp} · {found['steinke']:.2f}",
        ", ".join(found["refuted"]) or "no",
        " + ".join(f"{seconds:.1f}" for seconds in found["seconds"]),
    ]
    return " | ".join(cells)


def fault_row(name):
    """One line of the table of faults."""
    if EXPLAINED.get(name) in ELSEWHERE:
        return f"no training |  |  |  |  | {EXPLAINED[name]} | {caught_by(name)}"
    found = audit_fault(name)
    words = {True: "refutes", False: "", None: "fails"}
    cells = [words[found[level][0]] if level in found else "" for level in LEVELS]
    cells.append("".join(words[found[level][0]] for level in OUTSIDE.values() if level in found))
    why = "" if "refutes" in cells else EXPLAINED.get(name, UNEXPLAINED)
    model = WHERE.get(name, "DPALS") if name in FAULTS else "itself"
    return " | ".join([model, *cells, why, caught_by(name)])


def caught_by(name):
    """What catches a fault beside the audit: tests of section 5, or rules of the conformance
    kit.
    """
    if name in FAULTS:
        n = len(FAULTS[name].caught_by)
        return "a test" if n == 1 else f"{n} tests"
    rules = [rule for kind, rule, _ in RULES_BROKEN if kind.__name__ == name]
    return "rule " + ", ".join(f"“{rule}”" for rule in rules)


def write_caught_by():
    """Write the last column of the table of faults anew, and leave the others as they are."""
    rows = on_the_page("faults")
    cells = {name: row.split(" | ")[:-1] for name, row in rows.items()}
    write("faults", {name: " | ".join([*row, caught_by(name)]) for name, row in cells.items()})


def names_of(kind):
    """What has a row in that table."""
    if kind == "faults":
        return [*FAULTS, *planted_classes()]
    return [f"{name} at {epsilon:g}" for name in MODELS for epsilon in EPSILONS]


def on_the_page(kind):
    """{name: the rest of its row} as docs/audits.md has them."""
    inside = PAGE.read_text(encoding="utf-8").split(f"<!-- audit of {kind} -->")[1]
    lines = inside.split(f"<!-- /audit of {kind} -->")[0].strip().splitlines()[2:]
    return dict(line.removeprefix("| ").removesuffix(" |").split(" | ", 1) for line in lines)


def write(kind, rows):
    """Put the table between its marks on the page."""
    head = HEADS[kind]
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    lines += [f"| {name} | {rows[name]} |" for name in names_of(kind) if name in rows]
    text = PAGE.read_text(encoding="utf-8")
    begin = f"<!-- audit of {kind} -->"
    end = f"<!-- /audit of {kind} -->"
    table = "\n".join(lines)
    new = re.sub(
        f"{begin}.*?{end}", lambda _: f"{begin}\n\n{table}\n\n{end}", text, flags=re.DOTALL
    )
    PAGE.write_text(new, encoding="utf-8")


def main(kind, *only):
    if kind == "caught":
        write_caught_by()
        return
    compute = {"models": model_row, "faults": fault_row}[kind]
    for name in names_of(kind):
        rows = on_the_page(kind)
        if name in only or (name not in rows and not only):
            row = compute(name)
            write(kind, on_the_page(kind) | {name: row})  # as it is by now: several may be at work
            print(name, "|", row, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
