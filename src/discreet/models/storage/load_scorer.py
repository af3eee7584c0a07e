"""Load a scorer from a folder, without importing a model class, an algorithm or a table library.

model.json describes the fold-in (``fold_in_rule``, see `discreet.models.fold_in`), with the arrays
that it needs. Older folders, and models that define `fold` themselves, are opened through their
model class. The chain of the ledger is verified; it is priced when the statement is requested.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import kernels
from discreet.data.ids import object_array
from discreet.data.safe_io import parse_json
from discreet.errors import ConfigError, DataError
from discreet.kernels import reference as without_compiler
from discreet.models.fold_in import ItemSimilarity, fold_in_from_dict
from discreet.models.scorer import Scorer
from discreet.models.storage.ledger_history import LEDGER
from discreet.models.storage.read_folder import MAPPED, Contents, in_one_sentence, read_contents
from discreet.privacy.release.hash_chain import check_chain

logger = logging.getLogger("discreet")


@dataclass(frozen=True)
class OpenedModel:
    """A saved model, ready for queries.

    Parameters
    ----------
    scorer : Scorer
    contents : Contents
    """

    scorer: Scorer
    contents: Contents

    # named as in models, so that `ItemLookup` and commands accept both

    @property
    def item_ids_(self) -> NDArray[Any]:
        return self.scorer.item_ids

    @property
    def titles_(self) -> NDArray[Any] | None:
        return self.scorer.titles

    @property
    def default_rating(self) -> float:
        return self.scorer.default_rating

    @property
    def name(self) -> str:
        """Class name of the model."""
        return str(self.contents.described["class"])

    @property
    def goal(self) -> str:
        return "ranking" if self.scorer.rating_range is None else "rating"

    @property
    def details(self) -> dict[str, Any]:
        """What was learned other than factors, as JSON values; empty for models without privacy."""
        return dict(self.contents.described["state"].get("details", {}))

    @property
    def summary_(self) -> str:
        """One sentence on what was learned; empty where the model does not report it."""
        return str(self.details.get("learned", ""))

    def check_comparable(self) -> None:
        """Raise a `ConfigError` where items cannot be compared; warn where it may be noise."""
        if not self.scorer.factors.shape[1]:
            why = self.summary_ or f"{self.name} has no item factors"
            raise ConfigError(f"there is nothing to compare items by. {why}")
        if self.details.get("dimensions") == 0:
            logger.warning("similar items may be noise. What was learned: %s", self.summary_)

    @property
    def private(self) -> bool:
        """Whether there is a ledger; `statement` has its guarantee."""
        return LEDGER in self.contents.files

    @cached_property
    def ledger(self) -> dict[str, Any] | None:
        """Ledger as it was saved."""
        return parse_json(self.contents.files[LEDGER]) if self.private else None

    @cached_property
    def statement(self) -> dict[str, Any]:
        """Privacy statement for JSON, priced from the ledger on first use."""
        if not self.private:
            text = (
                "NOT PRIVATE: this model was trained without privacy protection. Its item factors"
                " were computed from exact ratings, and single users' ratings may be recovered from"
                " them."
            )
            return {
                "private": False,
                "status": "not private",
                "epsilon": "Infinity",
                "delta": None,
                "text": text,
            }
        try:
            from discreet.models.storage.save_load import assemble

            model: Any = assemble(self.contents)
            found: dict[str, Any] = model.privacy_.to_dict()
        except (DataError, ModuleNotFoundError):
            # an algorithm of another version, or an installation that cannot train: the ledger
            # alone has the guarantee
            from discreet.privacy.release.ledger import Ledger
            from discreet.privacy.release.statement import PrivacyStatement

            found = PrivacyStatement.from_ledger(
                Ledger.from_dict(parse_json(self.contents.files[LEDGER]))
            ).to_dict()
        return found

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"an opened model has no {name!r}. Use discreet.load() for the model itself."
        )


def open_model(path: str | Path, *, once: bool = False) -> OpenedModel:
    """Open the model saved in the folder `path`, as a scorer.

    Parameters
    ----------
    once : bool
        For a single query: without loading compiled code, and equal to single precision instead of
        to the bit. So it is in an installation without numba.
    """
    contents = read_contents(path, mapped=MAPPED)
    with in_one_sentence(contents.folder), np.errstate(all="ignore"):
        return _open_model(contents, once)


def _open_model(contents: Contents, once: bool) -> OpenedModel:
    described, arrays = contents.described, contents.arrays
    if LEDGER in contents.files:
        check_chain(parse_json(contents.files[LEDGER]))
    if "fold_in_rule" not in described:
        from discreet.models.storage.save_load import assemble

        model = assemble(contents)
        scorer = model.scorer()
        scorer.model = model
        return OpenedModel(scorer, contents)
    factors, biases = arrays["item_factors"], arrays["item_biases"]
    ids = contents.item_ids
    titles, scale = described["titles"], described["rating_range"]
    bounds = described.get("history_range")  # folders of version 0.2 have none
    own = {
        name.removeprefix("fold_in_rule."): array
        for name, array in arrays.items()
        if name.startswith("fold_in_rule.")
    }
    alike = described["item_similarity"]
    known = arrays.get("item_similarity.known")
    fits = type(alike["first"]) is int and 0 <= alike["first"] <= factors.shape[1]
    if not fits or (known is not None and known.shape != (len(ids),)):
        raise DataError(
            f"{contents.folder} is not a complete model: its item_similarity does not fit its"
            " factors"
        )
    if bounds is not None and not bounds[0] <= described["default_rating"] <= bounds[1]:
        raise DataError(
            f"{contents.folder} is not a complete model: its usual rating is outside its range"
        )
    scorer = Scorer(
        ids,
        factors,
        biases,
        fold_in_from_dict(described["fold_in_rule"], own, (len(ids), factors.shape[1])),
        titles=None if titles is None else object_array(titles, len(titles)),
        rating_range=None if scale is None else (scale[0], scale[1]),
        history_range=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        default_rating=float(described["default_rating"]),
        item_similarity=ItemSimilarity(alike["first"], known),
        kernels=without_compiler if once or find_spec("numba") is None else kernels,
    )
    _try_out(scorer)
    return OpenedModel(scorer, contents)


def _try_out(scorer: Scorer) -> None:
    """Fold in two histories, so that errors show here, and not in a query."""
    for length in (0, min(len(scorer), 8)):
        at = np.arange(length, dtype=np.int32)
        vector, offset = scorer.vector(at, np.full(length, scorer.default_rating, np.float32))
        scores = (
            scorer.fold_in_rule.of_items(at).score_factors(scorer.factors[at]) @ vector + offset
        )
        if not (np.isfinite(vector).all() and np.isfinite(offset) and np.isfinite(scores).all()):
            raise DataError("the model is damaged: its predictions are not finite")
