"""Private linear regression over users' rows: fit, read the promise, predict with intervals.

Run it with ``python examples/private_regression.py``. It generates 20,000 users with one to five
orders each, and takes a second.
"""

import numpy as np

from discreet import DPRegression


def main(users: int = 20_000) -> None:
    # 1. Rows: two features and two targets of each order, and whose order it is.
    rng = np.random.default_rng(0)
    whose = np.repeat(np.arange(users), rng.integers(1, 6, users))
    X = rng.uniform(-1, 1, (len(whose), 2))
    true = np.array([[0.8, -0.3], [0.1, 0.5]])  # one row of coefficients per target
    Y = X @ true.T + rng.uniform(-0.5, 0.5, (len(whose), 2))

    # 2. Fit. The norms are public bounds: longer rows are scaled down. A user with more than three
    # orders counts as three, so that one guarantee holds for all orders of a user.
    model = DPRegression(epsilon=1.0, feature_norm=1.5, target_norm=2.0, max_rows=3)
    model.fit(X, Y, whose)
    print(f"{model.privacy_}\n")

    # 3. Coefficients, with intervals for the noise and for the sampling of rows.
    low, high = model.coef_interval(0.95)
    for target in range(2):
        for feature in range(2):
            print(
                f"target {target}, feature {feature}: {model.coef_[target, feature]:.3f}"
                f" ({low[target, feature]:.3f} to {high[target, feature]:.3f}),"
                f" true {true[target, feature]}"
            )

    # 4. Predictions for a new row: intervals of the mean, and of one observation.
    new = [[0.5, -0.5]]
    print("predicted", model.predict(new).round(3))
    print("mean between", *(side.round(3) for side in model.predict_interval(new)))
    print(
        "observed between",
        *(side.round(3) for side in model.predict_interval(new, observation=True)),
    )


if __name__ == "__main__":
    main()
