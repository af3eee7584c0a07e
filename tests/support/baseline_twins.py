"""The private baselines without noise in plain numpy, on dense matrices: what the conformance kit
compares them with.

Written from the equations in the docstrings of the algorithms, with loops over users. They share
with these only the parameters as given, whose defaults they fill in themselves, and the coins of
Poisson batches, which have tests of their own. They hold where every user has at most `max_items`
ratings, so that nobody has to choose among them.
"""

import numpy as np

import discreet
from discreet.privacy.users.item_sampling import user_keys
from discreet.privacy.users.poisson_batches import throw


def dense(ratings):
    """Ratings and who rated what, as matrices."""
    Y, seen = (
        np.zeros((ratings.n_users, ratings.n_items)),
        np.zeros((ratings.n_users, ratings.n_items), bool),
    )
    row = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    Y[row, ratings.indices], seen[row, ratings.indices] = ratings.values, True
    return Y, seen


def cut(rows, norm):
    """Rows scaled to at most that norm."""
    return rows * np.minimum(1.0, norm / np.maximum(np.linalg.norm(rows, axis=1), 1e-300))[:, None]


def frequent_items(given, seen):
    """Positions of the most rated items, of equally many ratings the first."""
    order = sorted(range(seen.shape[1]), key=lambda j: (-seen[:, j].sum(), j))
    return sorted(order[: max(1, int(np.ceil(given.item_fraction * seen.shape[1])))])


def centered(given, rating_range, Y, seen):
    """Ratings less each user's own mean, with three of the middle of the scale, or less a
    constant.
    """
    middle = np.mean(rating_range)
    centering = getattr(given, "centering", "user")
    own = (
        (Y.sum(axis=1) + 3 * middle) / (seen.sum(axis=1) + 3) if centering == "user" else centering
    )
    return np.where(seen, Y - np.reshape(own, (-1, 1)), 0.0)


def whole(V, frequent, n_items):
    """Factors of all items: zeros where an item has none."""
    found = np.zeros((n_items, V.shape[1]))
    found[frequent] = V
    return found


def leading(C, count):
    """Leading eigenvalues and eigenvectors, largest first, the largest entry of each vector
    positive.
    """
    values, Q = np.linalg.eigh(C)
    values, Q = values[::-1][:count], Q[:, ::-1][:, :count]
    return values, Q * np.sign(Q[np.argmax(np.abs(Q), axis=0), np.arange(count)])


def frank_wolfe(model, ratings):
    """Algorithm 1 of Jain, Thakkar & Thakurta."""
    given = model.make_algorithm()
    Y, seen = dense(ratings)
    on = frequent_items(given, seen)
    Y, seen, n, m = (
        centered(given, model.rating_range, Y, seen)[:, on],
        seen[:, on],
        len(Y),
        len(on),
    )
    low, high = model.rating_range
    L = given.row_norm or np.sqrt(given.max_items) * (high - low) / 4
    k = given.nuclear_norm or (given.spread or (high - low) / 10) * np.sqrt(n * m)
    X, V = np.zeros_like(Y), np.zeros((m, given.factors))
    for t in range(given.factors):
        A = np.where(seen, X - Y, 0.0)
        B = cut(A, given.residual_norm or L)
        (size,), v = leading(B.T @ B, 1)
        gamma = 1 / given.factors if given.steps == "constant" else 2 / (t + 2)
        X = (1 - gamma) * X - gamma * k * np.outer(A @ v[:, 0] / np.sqrt(size), v[:, 0])
        X = (
            X
            * np.minimum(
                1.0, L / np.maximum(np.linalg.norm(np.where(seen, X, 0.0), axis=1), 1e-300)
            )[:, None]
        )
        V[:, t] = v[:, 0]
    return whole(V * np.sqrt(m), on, ratings.n_items)


def private_svd(model, ratings):
    """Sections 4.1 to 4.3 of McSherry & Mironov, each user weighted by one over its number of
    ratings.
    """
    given = model.make_algorithm()
    Y, seen = dense(ratings)
    low, high = model.rating_range
    Y, half, B = (
        np.where(seen, Y - (low + high) / 2, 0.0),
        (high - low) / 2,
        given.residual_bound or (high - low) / 4,
    )
    bounded, counts = np.clip(Y, -half, half), seen.sum(axis=0)
    G = bounded.sum() / counts.sum()
    b = np.clip((bounded.sum(axis=0) - G * counts) / (counts + given.item_prior), -half, half)
    on = frequent_items(given, seen)
    R, seen = np.where(seen, Y - G - b, 0.0)[:, on], seen[:, on]
    c = seen.sum(axis=1)
    own = R.sum(axis=1) / (c + 3) if given.centering == "user" else np.zeros(len(R))
    R = np.clip(np.where(seen, R - own[:, None], 0.0), -B, B)
    C, N = np.zeros((len(on), len(on))), np.zeros((len(on), len(on)))
    for r, there, count in zip(R, seen, c, strict=True):
        if count:
            C += np.outer(r, r) / count
            N += np.outer(there, there) / count
    values, Q = leading(C / np.maximum(N, 1e-9) if given.weighted else C, given.factors)
    return whole(Q * np.sqrt(np.maximum(values, 0.0)), on, ratings.n_items)


def batch(model, ratings, t):
    """Who is in a Poisson batch whose coins are seeded, as they are without secure noise."""
    given = model.make_algorithm()
    if getattr(given, "batch_rate", 1.0) == 1.0:
        return np.ones(ratings.n_users, bool)
    first = int(user_keys(ratings.user_ids, model.random_state)[0])  # of the only block
    return throw(ratings.n_users, given.batch_rate, (model.random_state, t, first))


def user_vector(given, V, y):
    """Ridge regression of one user's ratings on the items' factors, cut to the norm, behind the
    intercept.
    """
    iota = given.intercept * given.user_norm
    F, b = V[:, 1:], iota * V[:, 0]
    u = np.linalg.solve(
        F.T @ F + given.ridge_per_rating * max(len(y), 1) * np.eye(F.shape[1]), F.T @ (y - b)
    )
    u = cut(u[None], np.sqrt(given.user_norm**2 - iota**2))[0]
    return np.append(iota, u)


def gradient_walk(model, ratings):
    """The item matrix of `DPSGD` or `DPSGLD`, (frequent items, 1 + factors), biases over ι
    first.
    """
    given = model.make_algorithm()
    Y, seen = dense(ratings)
    on = frequent_items(given, seen)
    Y, seen = centered(given, model.rating_range, Y, seen)[:, on], seen[:, on]
    counts, sgd = np.maximum(seen.sum(axis=0), 1.0), isinstance(model, discreet.DPSGD)
    s = np.minimum((counts.max() / counts) ** given.spreading, 10.0) if sgd else np.ones(len(on))
    rng = np.random.default_rng(model.random_state)
    V = np.hstack(
        [
            np.zeros((len(on), 1)),
            given.initial_scale * rng.standard_normal((len(on), given.factors)),
        ]
    )
    walk = []
    for t in range(given.iterations):
        gradient = np.zeros_like(V)
        for i in np.flatnonzero(batch(model, ratings, t)):
            there = seen[i]
            u, g = user_vector(given, V[there], Y[i, there]), np.zeros_like(V)
            g[there] = np.outer(s[there] * (V[there] @ u - Y[i, there]), u)
            gradient += g * min(1.0, given.gradient_norm / max(np.linalg.norm(g), 1e-300))
        if sgd:
            V = V - (given.learning_rate / (s * given.batch_rate * counts))[:, None] * gradient
        else:
            curvature = (given.precision * counts * given.user_norm**2 / 2 + given.prior) / 2
            h = given.longest * (t + 1) ** -given.decay / curvature
            V = V - h[:, None] / 2 * (given.precision * gradient + given.prior * V)
        walk.append(V)
    averaged = walk[given.iterations // 2 :] if getattr(given, "average", True) else walk[-1:]
    return np.mean(averaged, axis=0)


def gradients(model, ratings):
    """The item factors of `DPSGD` and `DPSGLD`."""
    on = frequent_items(model.make_algorithm(), dense(ratings)[1])
    return whole(gradient_walk(model, ratings)[:, 1:], on, ratings.n_items)
