"""Requests and responses as pydantic models, which check bodies and describe the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST_N = 1_000  # items of one list; about 100 kB of JSON
LONGEST_HISTORY = 10_000  # longer than the longest history of MovieLens 20M
LARGEST_BATCH = 1_000  # requests
# of all lists of a batch: about a megabyte of answers, or 1,000 lists of the usual ten
LARGEST_BATCH_ITEMS = 10_000
LONGEST_NAME = 1_000  # characters of an id or title
# of a history to explain: every item of it costs one further score, so the time is quadratic
LONGEST_EXPLAINED = 1_000

Item = (
    Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True, max_length=LONGEST_NAME)]
)
Rating = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e9, le=1e9)]


class RatedItem(BaseModel):
    """An item, optionally with a rating; without one it counts as liked."""

    model_config = ConfigDict(extra="forbid")

    item: Item
    rating: Rating | None = None


class HistoryRequest(BaseModel):
    """A history, and the model to use. Items are named by id or by title."""

    model_config = ConfigDict(extra="forbid")

    history: (
        Annotated[
            dict[Annotated[str, Field(max_length=LONGEST_NAME)], Rating],
            Field(max_length=LONGEST_HISTORY),
        ]
        | Annotated[list[Item | RatedItem], Field(max_length=LONGEST_HISTORY)]
    ) = Field(
        description="Ratings by item; or a list of items that are liked, or of items with ratings."
    )
    unknown: Literal["error", "skip"] = Field(
        "error", description="What to do with items unknown to the model."
    )
    model: Annotated[str, Field(max_length=LONGEST_NAME)] | None = Field(
        None, description="Name of the model. Default: the first one."
    )


class RecommendRequest(HistoryRequest):
    """A history and the options of its recommendations. Items are named by id or by title."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"history": {"The Binary Colony": 5}, "n": 3}, {"history": [], "n": 3}]
        },
    )

    n: Annotated[int, Field(strict=True, ge=1, le=LARGEST_N)] = Field(
        10, description="How many items."
    )
    exclude: Annotated[list[Item], Field(max_length=LONGEST_HISTORY)] = Field(
        [], description="Items to leave out."
    )
    only: Annotated[list[Item], Field(max_length=LONGEST_HISTORY)] | None = Field(
        None, description="If given, recommend only these items."
    )
    exclude_seen: Annotated[bool, Field(strict=True)] = Field(
        True, description="Leave out the items of the history."
    )
    diversity: Annotated[float, Field(strict=True, ge=0, le=1)] = Field(
        0.0, description="From 0 to 1: more means rarer items."
    )


class ExplainRequest(HistoryRequest):
    """A history and the item whose score is to be explained."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"history": {"The Binary Colony": 5}, "item": "December Island", "unknown": "skip"}
            ]
        },
    )

    item: Item = Field(description="The item to explain, by id or title.")


class BatchRequest(BaseModel):
    """Several requests at once."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"requests": [{"history": [], "n": 3}]}]}
    )

    requests: Annotated[list[RecommendRequest], Field(min_length=1, max_length=LARGEST_BATCH)] = (
        Field(
            description=(
                f"The requests. The sum of their n must not exceed {LARGEST_BATCH_ITEMS:,}."
            )
        )
    )


class RecommendedItem(BaseModel):
    """One recommended item."""

    item_id: Any
    title: str | None
    score: float


class RecommendResponse(BaseModel):
    """Items, best first."""

    model: str
    recommendations: list[RecommendedItem]
    ignored: int = Field(
        0,
        description="Skipped items of the request that are unknown to the model.",
    )
    note: str = Field("", description="Where diversity has no effect: why. Else left out.")


class Contribution(BaseModel):
    """One item of the history, and by how much it raised the score."""

    item_id: Any
    title: str | None
    contribution: float = Field(description="The score less that without this item.")


class ExplainResponse(BaseModel):
    """Contributions of the items of a history to the score of an item, largest first."""

    model: str
    item_id: Any
    title: str | None
    contributions: list[Contribution]
    ignored: int = Field(
        0, description="Skipped items of the history that are unknown to the model."
    )
    note: str = Field(
        "",
        description="Where lists are popularity, so that all contributions are 0. Else left out.",
    )


class BatchResponse(BaseModel):
    """One response per request, in order."""

    answers: list[RecommendResponse]


class ErrorDetail(BaseModel):
    """An error: a code for programs and a message for humans."""

    code: str
    message: str


class ErrorResponse(BaseModel):
    """Every error has this form."""

    error: ErrorDetail
