"""Users who are not in memory: steps are recorded, and replayed on each block for every sum.

A step is a value made of public numbers, and turns a block into another one in the same way
wherever and however often it runs. So an engine needs no more than the list of steps: for a sum,
each block is read, takes the steps that matter, adds up its users as int64, and is forgotten. A
block that is lost, or computed twice by two machines, gives the same bits again; the engine has to
count each block once, and nothing else.

An *empty block* takes every step at once, on the driver. It finds what is wrong with a step before
any data are opened, and its accesses are traced: which arrays of a block a step reads, which it
makes or drops, and whether it changes the history itself. Steps whose results no sum reads are left
out of the pass (a vector that is solved for anew, residuals of an earlier release); all this
follows from public values.

Several sums may share one pass (`Session.release_together`). Their lists of steps make a
tree, in which common beginnings are shared.

An engine with free memory need not begin every pass at the ratings: `follow` can start from the
state of a block in an earlier pass, identified by the numbers of the steps that led there.
`Outlook` predicts which of these points the next pass will reach. A step always gives the same
bits, so the result does not depend on what was kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError, EngineError, PrivacyError
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.users.sealed_users import Partitions
from discreet.privacy.users.steps import UserStep

Point = tuple[int, ...]  # the numbers of the steps that led to a point

_numbers = itertools.count(1)


@dataclass(frozen=True)
class RecordedStep:
    """A step to be replayed, and what the empty block recorded of it.

    Parameters
    ----------
    step : UserStep
    before : Public
        What was known before it.
    reads, writes : names of arrays in a block's state
        Those that it reads, present or not; those that it makes, replaces or drops.
    history : bool
        Whether it changes the ratings themselves, on which everything after it depends.
    number : int
        Unique in this process.
    """

    step: UserStep
    before: Public
    reads: frozenset[str]
    writes: frozenset[str]
    history: bool
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True)
class SumRequest:
    """One sum of a pass.

    Attributes
    ----------
    place : int
        Its position among the sums of the pass.
    statistic : Statistic
    public : Public
        What is known of the users.
    grid : float
    """

    place: int
    statistic: Statistic
    public: Public
    grid: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.statistic.shape(self.public)


@dataclass
class Node:
    """A step in the tree of a pass, the sums right after it, and the nodes that follow."""

    taken: RecordedStep | None
    sums: list[tuple[SumRequest, frozenset[str]]] = field(default_factory=list)
    then: list[Node] = field(default_factory=list)


class ReplayEngine(Protocol):
    """An engine that can run a pass over blocks."""

    def run(self, root: Node, wanted: Sequence[SumRequest]) -> list[NDArray[np.int64]]:
        """Return the sums over all blocks, each led through the tree by `follow`."""

    def close(self) -> None:
        """Drop the blocks that are kept between passes."""


class Replay(Partitions):
    """Users of an engine, and the steps they have taken since they were sealed."""

    __slots__ = ("_empty", "_steps", "engine")

    def __init__(
        self, engine: ReplayEngine, empty: Block, steps: tuple[RecordedStep, ...] = ()
    ) -> None:
        self.engine = engine
        self._empty = empty
        self._steps = steps

    def after(self, step: UserStep, public: Public) -> Replay:
        # A replay would draw other batches, so the recorded cost would not be that of the sums.
        if not step.repeatable:
            raise ConfigError(
                f"{step.what} relies on secret Poisson sampling, which this engine cannot replay."
                " Train this model on in-memory Ratings."
            )
        empty, taken = record_step(self._empty, step, public)
        return Replay(self.engine, empty, (*self._steps, taken))

    def close(self) -> None:
        self.engine.close()

    def adder(self, statistic: Statistic, public: Public) -> RecordedSum:
        return RecordedSum(
            self.engine, self._steps, statistic, public, reads_of(self._empty, statistic, public)
        )


@dataclass(eq=False, repr=False)
class RecordedSum:
    """The sum of a statistic, computed by a pass over all blocks on first use.

    Parameters
    ----------
    engine : ReplayEngine
    steps : tuple of RecordedStep
        Those that the users have taken.
    statistic : Statistic
    public : Public
    reads : names of arrays in a block's state
        Those that the statistic is made of.
    """

    engine: ReplayEngine
    steps: tuple[RecordedStep, ...]
    statistic: Statistic
    public: Public
    reads: frozenset[str]
    _known: tuple[float, NDArray[np.int64]] | None = None

    def __call__(self, grid: float | None, rows: slice) -> NDArray[np.int64]:
        # A sum belongs to its grid; with another grid its units would be wrong.
        if self._known is None or self._known[0] != grid:
            self.compute_together([(self, grid)])
        assert self._known is not None
        return self._known[1][rows].copy()  # noise is added in place

    @staticmethod
    @guard("a sum over users")
    def compute_together(asked: Sequence[tuple[RecordedSum, float | None]]) -> None:
        """Compute all these sums over the users of one engine, reading every block once."""
        # Floating-point sums depend on the order of blocks, which is not fixed.
        if any(grid is None for _, grid in asked):
            raise EngineError("this engine adds whole numbers only. Train with noise='secure'.")
        wanted = [
            SumRequest(place, one.statistic, one.public, float(grid or 0))
            for place, (one, grid) in enumerate(asked)
        ]
        root = tree(
            [(one.steps, want, one.reads) for want, (one, _) in zip(wanted, asked, strict=True)]
        )
        # All sums of a pass are of one engine, so the first one's runs it.
        found = asked[0][0].engine.run(root, wanted)
        for want, (one, _), values in zip(wanted, asked, found, strict=True):
            # Checked before noise is added: a sum of another shape would get too little of it.
            if values.dtype != np.int64 or values.shape != want.shape:
                raise PrivacyError("the engine returned a sum of the wrong type or shape")
            one._known = (want.grid, values)


# ------------------------------------------------------------------ what a block does


def follow(
    root: Node,
    begin: Callable[[], Block],
    into: Sequence[NDArray[np.int64]],
    known: Mapping[Point, Block] | None = None,
    keep: Collection[Point] = (),
) -> dict[Point, Block]:
    """Lead a block through the tree, and add its sums to `into`.

    Parameters
    ----------
    root : Node
    begin : function
        Returns the block as it was sealed; called only if no known point can be used.
    into : arrays of int64
    known : blocks by their points, optional
        States of this block in earlier passes.
    keep : points
        Those at which the block is returned.
    """
    kept: dict[Point, Block] = {}
    _visit(root, (), begin, into, {} if known is None else known, keep, kept)
    return kept


def _visit(
    node: Node,
    path: Point,
    before: Callable[[], Block],
    into: Sequence[NDArray[np.int64]],
    known: Mapping[Point, Block],
    keep: Collection[Point],
    kept: dict[Point, Block],
) -> None:
    """Visit a node. A closure that calls itself would hold blocks until garbage collection."""

    # The block is made on first use and then shared by all sums and nodes below.
    @cache
    def block_here() -> Block:
        # A block from an earlier pass saves all steps up to here.
        if path in known:
            return known[path]
        if node.taken is None:
            return before()
        step = node.taken.step
        # Guarded, because an error message of a step could hold a user's values.
        return guard(step.what)(step.run)(before(), node.taken.before)

    # Sums before children: what a child does to the block cannot change them.
    for want, _ in node.sums:
        _add(want, block_here(), into[want.place])
    for child, way in _ways(node, path):
        _visit(child, way, block_here, into, known, keep, kept)
    if path in keep:
        kept[path] = block_here()


def _ways(node: Node, path: Point) -> Iterator[tuple[Node, Point]]:
    """Yield the nodes after a node, and the point that each leads to."""
    for child in node.then:
        assert child.taken is not None
        yield child, (*path, child.taken.number)


def points(node: Node, path: Point = ()) -> dict[Point, bool]:
    """List all points of a tree, and whether anything follows them."""
    found = {path: bool(node.then)}
    for child, way in _ways(node, path):
        found |= points(child, way)
    return found


class Outlook:
    """Points that the next pass is likely to reach, judged from the passes so far: all public.

    These are the last points that a pass shares with the previous one: where users begin anew at
    every pass (solving for their vectors), that is the point before. Once a whole pass was the
    beginning of the next one (users who take gradient steps, or are summed twice), the ends of
    passes are among them.
    """

    def __init__(self) -> None:
        self._before: dict[Point, bool] = {}
        self._ends = False

    def worth_keeping(self, root: Node) -> frozenset[Point]:
        """Return the points of this pass at which blocks should be kept, if memory allows."""
        now = points(root)
        # At least the root: sealed blocks are reached by every pass.
        common = now.keys() & self._before.keys() or {()}
        last = {
            path
            for path in common
            if not any(other[: len(path)] == path for other in common if other != path)
        }
        # Once seen, always expected: iterative models repeat their pattern to the end.
        self._ends = self._ends or any(not self._before[path] for path in last if path)
        self._before = now
        if self._ends:
            last |= {path for path, goes_on in now.items() if not goes_on}
        return frozenset(last)


def _add(want: SumRequest, block: Block, into: NDArray[np.int64]) -> None:
    @guard(want.statistic.what)
    def run() -> NDArray[Any]:
        whole = slice(0, want.shape[0])
        return want.statistic.partial(block, want.public, want.grid)(whole)

    found = run()
    # A float sum would not be exact, and noise in units of the grid would not fit it.
    if found.dtype != np.int64:
        raise PrivacyError(f"{want.statistic.what} did not return whole numbers")
    into += found


def nothing_yet(wanted: Sequence[SumRequest]) -> list[NDArray[np.int64]]:
    """Return zeros to add sums to."""
    return [np.zeros(want.shape, np.int64) for want in wanted]


# ------------------------------------------------------------------ which steps a pass needs


def tree(asked: Sequence[tuple[tuple[RecordedStep, ...], SumRequest, frozenset[str]]]) -> Node:
    """Merge the steps of all sums into a tree, without those that no sum needs."""
    root = Node(None)
    for steps, want, reads in asked:
        at = root
        for taken in steps:
            # By identity: two equal steps at different times may follow different public values.
            known = next((node for node in at.then if node.taken is taken), None)
            if known is None:
                known = Node(taken)
                at.then.append(known)
            at = known
        at.sums.append((want, reads))
    _prune(root)
    return root


def _prune(node: Node) -> frozenset[str]:
    """Drop steps below this node that no sum reads; return the arrays needed from before it."""
    live = frozenset[str]().union(*(reads for _, reads in node.sums))
    for child in list(node.then):
        after = _prune(child)
        taken = child.taken
        assert taken is not None
        # A step that changes the ratings matters to everything after it, whatever is read.
        if taken.history or taken.writes & after:
            # Liveness analysis, as in a compiler: needed before = needed after − made + read.
            live |= (after - taken.writes) | taken.reads
        else:
            node.then.remove(child)
            # What followed the dropped step is attached to its parent.
            node.sums += child.sums
            node.then += child.then
            live |= after
    return live


def steps_of(root: Node) -> Iterator[RecordedStep]:
    """Yield all steps that are left in a tree."""
    for node in root.then:
        assert node.taken is not None
        yield node.taken
        yield from steps_of(node)


# ------------------------------------------------------------------ the empty block


class _Watched(dict[str, Any]):
    """A state that records which of its arrays were read."""

    def __init__(self, state: Any) -> None:
        # A copy: the empty block of earlier steps must keep its own state.
        super().__init__(state)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        # A test for presence is an access too: the step may behave differently without the array.
        self.asked.add(str(name))
        return super().__contains__(name)


_HISTORY = ("indptr", "indices", "values", "mean", "key")


def record_step(empty: Block, step: UserStep, public: Public) -> tuple[Block, RecordedStep]:
    """Return the empty block after the step, and the step with its recorded accesses."""
    state = _Watched(empty.state)
    after = step.run(replace(empty, state=state), public)
    names = {*empty.state, *after.state}
    made = dict(after.state.items())
    # By identity, since a step that writes equal numbers into a new array has still written.
    changed = {name for name in names if dict(empty.state).get(name) is not made.get(name)}
    history = any(getattr(after, name) is not getattr(empty, name) for name in _HISTORY)
    taken = RecordedStep(step, public, frozenset(state.asked), frozenset(changed), history)
    return replace(after, state=made), taken


def reads_of(empty: Block, statistic: Statistic, public: Public) -> frozenset[str]:
    """Return the arrays that a statistic reads; an error of it on an empty block surfaces now."""
    state = _Watched(empty.state)
    statistic.partial(replace(empty, state=state), public, 1.0)(
        # One row is enough to see which arrays are read.
        slice(0, min(1, statistic.shape(public)[0]))
    )
    return frozenset(state.asked)
