"""The papers' algorithms and the baselines release what they released before they were rewritten,
at the same price.

`recorded.json` holds what each model releases on 40 items: names, counts, shapes, sensitivities and
noise, to ten digits. It was written when plans, ledgers and seeded factors had been compared, bit
for bit, with the code before the redesign. Whoever changes one of these numbers on purpose runs
``python tests/models/test_recorded.py``, looks at the difference, and says why.
"""

import json
from pathlib import Path

import pytest

import discreet

RECORDED = Path(__file__).with_name("recorded.json")
SAID = {"delta": 1e-6, "rating_range": (1.0, 5.0)}
REPLACE = {"neighboring": "replace-one"}
SIZES = {"ratings_per_item": 150.0, "ratings_per_user": 15.0}
SIGMAS = {"counts": 40.0, "recounts": 40.0, "gram": 30.0, "sum": 30.0}
CASES = {
    "DPALS": ("DPALS", {}),
    "DPALS, replace-one": ("DPALS", REPLACE),
    "DPALS, rdp": ("DPALS", {"accountant": "rdp"}),
    "DPALS, global mean, counts once": ("DPALS", {"centering": "global", "recount": False}),
    "DPALS, spectral, growth": (
        "DPALS",
        {"initialization": "spectral", "growth": 2.0, "factors": 4},
    ),
    "DPALS, the paper's noise": ("DPALS", {"sigmas": SIGMAS, "epsilon": 1e3}),
    "DPALS, shares": ("DPALS", {"shares": {"gram": 0.4, "sum": 0.4}}),
    "DPALS, not isometric": ("DPALS", {"isometric": False, "max_items": 10, "item_fraction": 1.0}),
    "DPALS, implicit": ("DPALS", {"goal": "ranking"}),
    "DPALS, implicit, plain": (
        "DPALS",
        {"goal": "ranking", "unobserved_weight": 0.0, "factors": 3},
    ),
    "DPLMC": ("DPLMC", {}),
    "DPLMC, replace-one": ("DPLMC", {**REPLACE, "iterations": 10, "step_size": 0.5}),
    "DPLMC, public sizes": ("DPLMC", SIZES),
    "DPLMC, spectral": (
        "DPLMC",
        {"initialization": "spectral", "factors": 4, "initial_epsilon": 0.5},
    ),
    "DPLMC, printed constants": (
        "DPLMC",
        {**REPLACE, **SIZES, "constants": "printed", "accountant": "rdp"},
    ),
    "DPLMC, shares": ("DPLMC", {"balance_share": 0.2, "residual_norm": 2.0, "centering": 3.0}),
    "HuberALS": ("HuberALS", {}),
    "HuberALS, Gaussian": ("HuberALS", {"mechanism": "gaussian", "iterations": 3}),
    "HuberALS, Laplace": ("HuberALS", {"mechanism": "laplace"}),
    "HuberALS, irls": ("HuberALS", {"solver": "irls", "inner_iterations": 2, "iterations": 2}),
    "HuberALS, pure": ("HuberALS", {"delta": 0.0}),
    "HuberALS, replace-one": ("HuberALS", {**REPLACE, "clipping": "l1", "alpha": 1.0}),
    "DPFrankWolfe": ("DPFrankWolfe", {}),
    "DPFrankWolfe, norm": ("DPFrankWolfe", {**REPLACE, "nuclear_norm": 50.0, "centering": 3.0}),
    "DPSVD": ("DPSVD", {}),
    "DPSVD, density": ("DPSVD", {**REPLACE, "weighted": False, "density": 0.25}),
    "DPSGLD": ("DPSGLD", {}),
    "DPSGLD, few steps": ("DPSGLD", {"iterations": 5, "temperature": 0.5}),
    "DPSGD, batches": ("DPSGD", {"iterations": 3, "batch_rate": 0.5}),
    "DPSGD, everybody": ("DPSGD", {"iterations": 5, "batch_rate": 1.0, "accountant": "gdp"}),
}
SHOWN = (
    "name",
    "count",
    "mechanism",
    "norm",
    "shape",
    "sensitivity",
    "noise_multiplier",
    "deviation",
    "symmetric",
)


def released(name):
    """The price list, with numbers to ten digits: the last ones depend on the processor."""
    kind, settings = CASES[name]
    model = getattr(discreet, kind).configure(**({"epsilon": 2.0} | SAID | settings))
    rows = [{key: row[key] for key in SHOWN} for row in model.price_list(40)]
    return json.loads(
        json.dumps(rows, default=list), parse_float=lambda text: float(f"{float(text):.10g}")
    )


@pytest.mark.parametrize("name", CASES)
def test_what_is_released_is_what_was_released(name):
    before = json.loads(RECORDED.read_text())[name]
    now = released(name)
    assert [row["name"] for row in now] == [row["name"] for row in before]
    for then, row in zip(before, now, strict=True):
        numbers = {key: value for key, value in then.items() if isinstance(value, float)}
        assert {key: row[key] for key in numbers} == pytest.approx(numbers, rel=1e-8)
        assert {key: row[key] for key in row if key not in numbers} == {
            k: then[k] for k in then if k not in numbers
        }


if __name__ == "__main__":
    cases = [
        f"{json.dumps(name)}: [\n  " + ",\n  ".join(map(json.dumps, released(name))) + "\n]"
        for name in CASES
    ]
    RECORDED.write_text("{\n" + ",\n".join(cases) + "\n}\n")
