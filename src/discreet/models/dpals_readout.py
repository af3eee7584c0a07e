"""What a fitted DPALS tells: a user's own vector and offset from the released items, and what is saved of it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import solve_rows
from discreet.models.dpals_choices import LARGE
from discreet.models.dpals_plan import PlannedALS
from discreet.models.private import kept_counts


class ReadableALS(PlannedALS):
    """What `DPALS` does once it has learnt its items."""

    counts_: NDArray[np.float64] | None
    centre_: float
    frequent_: NDArray[np.bool_]

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equation (1) without the cut: what a user computes for itself is for itself."""
        if self._descends:
            middle = np.float32(self.bounds().centre)
            y = values.astype(np.float32) - middle
            steps, items = self._residual_steps(), (self.item_factors_, self.item_biases_)
            U, own = steps.fold(indptr, indices, y, *items, self.centre_)
            return U, middle + own
        n, counts = len(indptr) - 1, np.diff(indptr)
        row = np.repeat(np.arange(n), counts)
        kept = np.maximum(np.bincount(row, self.frequent_[indices], minlength=n), 1.0)
        offset = self._offset(indptr, values, row) if self._explicit else np.zeros(n, np.float32)
        target = np.ones(len(indices), np.float32)
        if self._explicit:
            target = values.astype(np.float32) - offset[row] - self.item_biases_[indices]
        V = self.item_factors_
        shared = self._unobserved() * (V.T @ V) if self._unobserved() > 0 else None
        ridge = self._lambda() * self._user_scale() * kept**self._user_exponent
        return solve_rows(indptr, indices, target, V, ridge, shared), offset

    def scoring(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Items without factors are predicted by the user's own mean, also where that is not the offset."""
        vectors, offsets = self.fold(indptr, indices, values)
        if not self._explicit or self._descends or self.centring == "user":
            return vectors, offsets, self.item_factors_
        n, counts = len(indptr) - 1, np.diff(indptr)
        total = np.bincount(np.repeat(np.arange(n), counts), values, minlength=n)
        mean = np.where(counts > 0, total / np.maximum(counts, 1), offsets)
        tail = ~self.frequent_[:, None]
        return np.column_stack([vectors, mean - offsets]), offsets, np.hstack([self.item_factors_, tail])

    def _offset(self, indptr: NDArray[Any], values: NDArray[Any], row: NDArray[Any]) -> NDArray[Any]:
        n, counts, bounds = len(indptr) - 1, np.diff(indptr), self.bounds()
        if self.centring != "user":
            return np.full(n, self.centre_, np.float32)
        total = np.bincount(row, values, minlength=n) + bounds.prior_mean * bounds.prior_count
        return (total / (counts + bounds.prior_count)).astype(np.float32)

    def state(self) -> dict[str, Any]:
        counts = None if self.counts_ is None else self.counts_.tolist()
        return {
            "lambda": self._lambda(),
            "centre": self.centre_,
            "range": self._range(),
            "frequent": np.flatnonzero(self.frequent_).tolist(),
            "counts": counts,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if self._explicit and self.item_step is None:
            self.item_step = "solve"  # models saved before there was another do not say so
        self._signal_lambda, self._large = state["lambda"], len(self.item_ids_) >= LARGE
        self.centre_, self._seen_range = state["centre"], (state["range"][0], state["range"][1])
        self.frequent_ = np.zeros(len(self.item_ids_), bool)
        self.frequent_[state["frequent"]] = True
        self.counts_ = kept_counts(state, len(self.item_ids_))

    def saved_params(self) -> dict[str, Any]:
        """Without features, which are input, like ratings; where their file lies says something about the owner."""
        step = ("gradient" if self._descends else "solve") if self._explicit else None  # as it was chosen
        return super().saved_params() | {"item_features": None, "item_step": step}

    def __repr__(self) -> str:
        """With the kind of item features instead of all their numbers."""
        if self.item_features is None or isinstance(self.item_features, str):
            return super().__repr__()
        short = copy.copy(self)
        short.item_features = f"<{type(self.item_features).__name__}>"
        return super(ReadableALS, short).__repr__()
