"""Faults that a hurried or careless engineer might make, each as one change of the source, and how
to plant them.

``planted(name)`` replaces a function by its own source with one piece of text exchanged, and puts
it back. That the text occurs exactly once is checked, so that no fault survives a change of the
code unnoticed.
"""

import contextlib
import importlib
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`text` of the function `where` ("module:name" in discreet.privacy) becomes `instead`; tests
    that catch it.

    A module that begins with "discreet." is named in full.
    """

    where: str
    text: str
    instead: str
    caught_by: tuple[str, ...]


NEIGHBORS = "test_neighbors.py::test_adversaries_on_the_grid"
WORST = "test_statistics.py::test_the_worst_user_reaches_the_sensitivity_and_does_not_pass_it"
GRID = "test_statistics.py::test_no_grid_makes_a_contribution_larger"
BITS = "test_neighbors.py::test_other_users_stay_as_they_are_to_the_last_bit"
WALK = "test_gradients.py::test_adversaries_on_the_grid"
WALK_GRID = "test_gradients.py::test_no_grid_makes_a_contribution_larger"
WALKED = "test_gradients.py::test_the_sensitivities_are_reached"
PAIRS = "test_pairs.py::test_adversaries_on_the_grid"
PAIRED = "test_pairs.py::test_every_user_reaches_the_sensitivity_and_does_not_pass_it"
CENTERED = "test_centered_pairs.py::test_adversaries_on_the_grid"
CENTERED_REACHED = "test_centered_pairs.py::test_every_user_with_a_pair_reaches_the_sensitivity"
MOMENTS = "test_choice_moments.py::test_adversaries_on_the_grid"
COMMUNITIES = "test_communities.py::test_adversaries_on_the_grid"
REGRESSION = "test_regression.py::test_adversaries_on_the_grid"
REGRESSED = "test_regression.py::test_the_sensitivities_are_reached"
REGISTRY = "test_registry.py::test_nobody_moves_a_statistic_further_than_it_says"
OWN = "test_user_effects.py::test_adversaries_on_the_grid"
OWN_REACHED = "test_user_effects.py::test_the_sensitivities_are_reached"
INDEPENDENT = "test_noise_independence.py::test_releases_of_one_training_have_independent_noise"
APART = "test_users_apart.py::test_what_users_add_does_not_depend_on_who_shares_their_block"
#: Noise of one pool, which `reuse` takes from for every release of a source.
POOLED = """pool = self.__dict__.get("pool")
    pool = SecureNoise().gaussian(1 << 16, 2.0**30) * 2.0**-30 if pool is None else {reuse}
    self.pool = pool
    out += np.rint(np.resize(pool, out.shape) * scale).astype(np.int64)
    for begin in range(0, out.size, BLOCK):
        to_real(begin)"""
FILL = "self._fill(out, mechanism, scale * _UP, to_real)"

FAULTS = {
    "gains are not clipped below": Fault(
        "statistics.user_effects:LeaveOneOutGains.partial",
        "neginf=-1.0), -1, 1)",
        "neginf=-1.0), -9, 1)",
        (OWN, REGISTRY),
    ),
    "gains of all ranks are charged as one": Fault(
        "statistics.user_effects:LeaveOneOutGains.partial",
        "/ math.sqrt(len(self.ranks))",
        "",
        (OWN, OWN_REACHED),
    ),
    "moments of a prior are not clipped": Fault(
        "statistics.user_effects:PriorMoments.partial",
        "-1, MOST) / MOST",
        "-1, 1e6) / MOST",
        (OWN, REGISTRY),
    ),
    "two moments are charged as one": Fault(
        "statistics.user_effects:FitMoments.reach",
        "SensitivityBounds(math.sqrt(2), 2.0",
        "SensitivityBounds(1.0, 1.0",
        (OWN,),
    ),
    "solutions are not clipped for their Gram matrix": Fault(
        "statistics.user_effects:SolutionGram.partial",
        "np.minimum(length / self.largest, 1.0)",
        "length / self.largest",
        (OWN, OWN_REACHED),
    ),
    "pairs of residuals are charged as if they had no sign": Fault(
        "statistics.user_effects:ResidualPairs.reach", "1.0, 2.0)", "1.0, 2.0**0.5)", (REGISTRY,)
    ),
    "features are not clipped": Fault(
        "statistics.regression:RegressionSum._weigh",
        "np.minimum(1.0, most / np.maximum(length, 1e-300))",
        "np.ones(len(rows))",
        (REGRESSION, REGRESSED),
    ),
    "all rows of a user count": Fault(
        "statistics.regression:RegressionSum._weigh",
        "np.minimum(1.0, self.max_rows / counts)",
        "np.ones(len(counts))",
        (REGRESSION, REGRESSED),
    ),
    "weights of rows are roots, so that a user counts as √n rows": Fault(
        "statistics.regression:RegressionSum._weigh",
        "self.max_rows / counts",
        "(self.max_rows / counts) ** 0.5",
        (REGRESSION, REGRESSED),
    ),
    "products with targets are charged as if they had no sign": Fault(
        "statistics.regression:CrossProducts.reach",
        "l2, 2.0)",
        "l2, 2**0.5)",
        (REGRESSION, REGRESSED),
    ),
    "moments and number of rows are charged as one": Fault(
        "statistics.regression:RowMoments.reach", "2**0.5 * entry, 2", "entry, 2", (REGRESSED,)
    ),
    "features are rounded away from zero": Fault(
        "statistics.regression:CrossProducts.partial",
        "X = np.trunc(X / grid**0.5)",
        "X = np.ceil(X / grid**0.5)",
        ("test_regression.py::test_no_grid_makes_a_contribution_larger",),
    ),
    "vectors are not clipped": Fault(
        "statistics.bounds:clip_rows",
        "np.minimum(1.0, bounds.norm /",
        "np.fmax(1.0, 0 *",
        (NEIGHBORS, WORST),
    ),
    "vectors are clipped by max instead of min": Fault(
        "statistics.bounds:clip_rows",
        "np.minimum(1.0, bounds.norm",
        "np.maximum(1.0, bounds.norm",
        (NEIGHBORS, "test_errata.py::test_erratum_02_clipping_takes_the_minimum"),
    ),
    "an intercept is not taken from the norm": Fault(
        "statistics.bounds:clip_rows",
        "math.sqrt(bounds.norm**2 - intercept**2)",
        "bounds.norm",
        (NEIGHBORS,),
    ),
    "√k is forgotten for Gram matrices": Fault(
        "statistics.contributions:ItemGrams.reach",
        "k**0.5 * square",
        "square",
        (NEIGHBORS, WORST),
    ),
    "√k is forgotten for right-hand sides": Fault(
        "statistics.contributions:ItemSums.reach",
        "k**0.5 * c * bounds.vector_l2",
        "c * bounds.vector_l2",
        (NEIGHBORS, WORST),
    ),
    "the sum of ratings is charged with √k instead of k": Fault(
        "statistics.contributions:RatingSum.reach",
        "public.bounds.through(public.n_items)",
        "public.bounds.through(public.n_items) ** 0.5",
        (NEIGHBORS, WORST),
    ),
    "repeated pairs are not refused": Fault(
        "statistics.bounds:check_rows",
        "len(falls) >= max(ratings.n_users, 1) or not np.isin(falls, indptr[1:-1]).all() or ",
        "",
        ("test_bounds.py::test_repeated_rows_and_pairs_are_refused_at_the_seal",),
    ),
    "repeated users are not refused": Fault(
        "statistics.bounds:check_rows",
        " or distinct != ratings.n_users",
        "",
        ("test_bounds.py::test_repeated_rows_and_pairs_are_refused_at_the_seal",),
    ),
    "one item more than k is contributed": Fault(
        "users.steps:Choose.run",
        "priority, k, self.draw",
        "priority, k + 1, self.draw",
        (NEIGHBORS,),
    ),
    "ratings are not clipped": Fault(
        "users.steps:Choose.run",
        "np.clip(value, -public.bounds.value, public.bounds.value, out=value)",
        "pass",
        (NEIGHBORS, WORST),
    ),
    "residuals on a descent are not clipped": Fault(
        "users.steps:ComputeResiduals.run", "self.largest * SHAVE", "1e300", (WALK, WALKED)
    ),
    "a gradient is charged without the vectors' length": Fault(
        "statistics.gradients:WeightedResidualGradient.reach",
        "l2 = public.cut * public.bounds.vector_l2",
        "l2 = public.cut / 9",
        (WALK,),
    ),
    "covariance rows are not clipped": Fault(
        "statistics.contributions:ContributedCovariance.partial",
        "np.minimum(1.0, self.largest / np.maximum(length, 1e-300))",
        "np.ones(block.n)",
        (NEIGHBORS, WORST),
    ),
    "pairs are divided by the number of items instead of pairs": Fault(
        "statistics.pairs:pair_weights",
        "np.sqrt(np.maximum(squared, 1))",
        "np.sqrt(np.diff(indptr) + 1e-9)",
        (PAIRS, PAIRED),
    ),
    "√2 is forgotten where pairs are replaced": Fault(
        "statistics.pairs:PairSums.reach", "1.0, 2**0.5)", "1.0, 1.0)", (PAIRS,)
    ),
    "pairs are counted in both triangles": Fault(
        "statistics.pairs:pair_weights", "math.sqrt(2.0)", "2.0", (PAIRS, PAIRED)
    ),
    "likes are not of norm 1": Fault(
        "statistics.pairs:LikeCounts.partial",
        "np.maximum(power_sums(block.indptr, level)[0], 1)",
        "1.0 + 0 * block.mean",
        (PAIRS, REGISTRY),
    ),
    "how much is liked is left out of what pairs are divided by": Fault(
        "statistics.pairs:PairSums.partial",
        "pair_weights(block.indptr, level)",
        "pair_weights(block.indptr, np.minimum(level, 1))",
        (PAIRS, PAIRED, REGISTRY),
    ),
    "a user who likes something is counted twice": Fault(
        "statistics.user_totals:UserCount.partial",
        "(block.counts > 0)",
        "2 * (block.counts > 0)",
        (PAIRS,),
    ),
    "centered pairs are divided by the root of their norm": Fault(
        "statistics.centered_pairs:CenteredPairSums.partial",
        "room / np.maximum(q, 1e-300)",
        "room / np.sqrt(np.maximum(q, 1e-300))",
        (CENTERED, CENTERED_REACHED, REGISTRY),
    ),
    "centered pairs are charged as if they had no sign": Fault(
        "statistics.centered_pairs:CenteredPairSums.reach",
        "1.0, 2.0)",
        "1.0, 2.0**0.5)",
        ("test_centered_pairs.py::test_replaced_users_are_nearly_two_apart",),
    ),
    "no margin is left for rounding after the sum is centered": Fault(
        "statistics.centered_pairs:CenteredPairSums.partial",
        "np.maximum(norm - spare, 0.0)",
        "norm",
        ("test_centered_pairs.py::test_each_user_leaves_room_for_rounding",),
    ),
    "gradients of choices are not clipped": Fault(
        "statistics.choice_moments:clip_moments",
        "np.minimum(1.0, clip / np.maximum(long, 1e-300))",
        "np.ones(len(long))",
        ("test_choice_moments.py::test_the_sensitivity_is_reached",),
    ),
    "choice moments are charged by half of their clipping bound": Fault(
        "statistics.choice_moments:ChoiceMoments.reach",
        "SensitivityBounds(1.0, ",
        "SensitivityBounds(0.5, ",
        (MOMENTS, REGISTRY),
    ),
    "choice moments are charged as if they had no sign": Fault(
        "statistics.choice_moments:ChoiceMoments.reach",
        "1.0, 2.0)",
        "1.0, 2.0**0.5)",
        ("test_choice_moments.py::test_replaced_users_with_opposite_gradients",),
    ),
    "items of a community are not of norm 1": Fault(
        "statistics.communities:CommunityCounts.partial",
        "SHAVE / np.sqrt(",
        "1.5 / np.sqrt(",
        (COMMUNITIES, REGISTRY),
    ),
    "community counts are charged as if users could not change communities": Fault(
        "statistics.communities:CommunityCounts.reach",
        "2**0.5",
        "1.0",
        ("test_communities.py::test_replaced_users_of_two_communities_are_root_two_apart",),
    ),
    "a user adds to the community that most users of its block choose": Fault(
        "statistics.communities:CommunityCounts.partial",
        "chosen = choose_communities(block, x, self.mixture)",
        "chosen = choose_communities(block, x, self.mixture)\n"
        "    chosen[:] = np.bincount(chosen, minlength=1).argmax()",
        ("test_communities.py::test_what_a_user_adds_does_not_depend_on_others",),
    ),
    "left-out hits are charged by half of their range": Fault(
        "statistics.communities:LeftOutHits.reach",
        "SensitivityBounds(1.0, 1.0",
        "SensitivityBounds(0.5, 0.5",
        (REGISTRY,),
    ),
    "pairs are rounded up": Fault(
        "statistics.pairs:PairSums.partial",
        "np.trunc(each / grid)",
        "np.ceil(each / grid)",
        ("test_pairs.py::test_no_grid_makes_a_contribution_larger",),
    ),
    "what is no number enters the sums": Fault(
        "users.sealed_users:sealed_block",
        "np.nan_to_num(ratings, nan=0.0, posinf=0.0, neginf=0.0)",
        "ratings.copy()",
        (NEIGHBORS, "test_sealed_users.py::test_extreme_ratings_warn_about_nothing"),
    ),
    "replacing a user is charged as removing one": Fault(
        "statistics.sums:Sum.sensitivity", "reach * factor if", "reach if", (NEIGHBORS, WORST)
    ),
    "off-diagonal noise is halved again": Fault(
        "statistics.base:isometry",
        "math.sqrt(2.0)",
        "2.0",
        (NEIGHBORS, WORST, "test_errata.py::test_erratum_05_the_packing_is_isometric"),
    ),
    "contributions are rounded to the nearest": Fault(
        "statistics.integer_sums:units_at", "np.trunc(", "np.rint(", (WALK_GRID,)
    ),
    "contributions are rounded away from zero": Fault(
        "statistics.contributions:ContributedCovariance.partial",
        "np.trunc(y / grid**0.5)",
        "np.copysign(np.ceil(np.abs(y / grid**0.5)), y)",
        (GRID,),
    ),
    "sums are rounded instead of contributions": Fault(
        "statistics.contributions:ItemSums.partial",
        'exact_sums(cuts, block["user"], c, exact, columns=U.shape[1])',
        'np.rint(sum_rows(cuts, block["user"], c, exact[:, : U.shape[1]]))',
        (GRID,),
    ),
    "float64 adds up more users than it can": Fault(
        "statistics.integer_sums:chunks",
        "for begin in range(0, max(n, 1), CHUNK):\n        yield slice(begin, min(begin +"
        " CHUNK, n))",
        "yield slice(0, n)",
        ("test_integer_sums.py::test_users_are_added_up_in_chunks_that_float64_can_hold",),
    ),
    "float64 adds up more entries of an item than it can": Fault(
        "statistics.integer_sums:units_at",
        "min(CHUNK, max(_PIECE, m))",
        "max(_PIECE, m)",
        ("test_integer_sums.py::test_sums_beyond_the_reach_of_float64_are_exact",),
    ),
    "users are centered by the mean of all users": Fault(
        "users.sealed_users:sealed_block",
        "mean = (summed / np.maximum(counts + bounds.prior_count, 1e-9)).astype(np.float32)",
        "mean += np.float32(summed.sum() / max(counts.sum(), 1))",
        (NEIGHBORS, BITS),
    ),
    "choices depend on the row of a user": Fault(
        "users.sealed_users:seal",
        "user_keys(ratings.user_ids, seed)",
        "user_keys(np.arange(ratings.n_users), seed)",
        (NEIGHBORS, BITS),
    ),
    "choices depend on how a column of ids was read": Fault(
        "users.item_sampling:_number",
        "form = _form(user_id)",
        "form = repr(user_id)",
        ("test_neighbors.py::test_choices_do_not_depend_on_the_ids_of_others",),
    ),
    "a user's ridge depends on all users' counts": Fault(
        "users.steps:Solve.run",
        "counts**self.exponent",
        "(counts / counts.mean()) ** self.exponent",
        ("test_errata.py::test_erratum_04_a_users_vector_depends_on_nobody_else",),
    ),
    "counts are charged as if a user had few items": Fault(
        "statistics.contributions:ItemCounts.reach",
        "SensitivityBounds(k**0.5,",
        "SensitivityBounds(1.0,",
        (REGISTRY, WORST),
    ),
    "√k is forgotten for totals": Fault(
        "statistics.contributions:ItemTotals.reach",
        "k**0.5 * c, k * c",
        "c, k * c",
        (REGISTRY,),
    ),
    "a Gram matrix is charged by the norm of a third": Fault(
        "statistics.contributions:GlobalGram.reach",
        "public.bounds.vector_l2**2",
        "public.bounds.vector_l2**2 / 3",
        (REGISTRY,),
    ),
    "the number of ratings is charged with √k instead of k": Fault(
        "statistics.contributions:RatingCount.reach",
        "public.bounds.through(public.n_items)",
        "public.bounds.through(public.n_items) ** 0.5",
        (REGISTRY, WORST),
    ),
    "a gradient of biases is charged by half of the clipping bound": Fault(
        "statistics.gradients:BiasGradient.reach",
        "SensitivityBounds(public.cut,",
        "SensitivityBounds(public.cut / 2,",
        (REGISTRY,),
    ),
    "weights of entries are not of norm 1": Fault(
        "users.steps:WeighEntries.run",
        "q / q.max(), SHAVE)",
        "q / q.max(), SHAVE) ** 0.5",
        (REGISTRY, WALK),
    ),
    "three numbers are charged as one": Fault(
        "statistics.gradients:Size.reach",
        "SensitivityBounds(3**0.5,",
        "SensitivityBounds(1.0,",
        (REGISTRY, WALK),
    ),
    "rows of residuals are not clipped": Fault(
        "statistics.covariance:ResidualCovariance.rows_of",
        "np.minimum(1.0, self.largest / np.maximum(norm, 1e-300))",
        "np.ones(block.n)",
        (REGISTRY,),
    ),
    "pairs are divided by too little": Fault(
        "statistics.covariance:PairCounts.rows_of",
        "np.sqrt(np.maximum(block.counts, 1).astype(np.float64))",
        "np.maximum(block.counts, 1).astype(np.float64) ** 0.25",
        (REGISTRY,),
    ),
    "users are counted twice": Fault(
        "statistics.user_totals:UserCount.partial",
        "else np.ones(block.n)",
        "else 2 * np.ones(block.n)",
        (REGISTRY,),
    ),
    "what users measured is not clipped": Fault(
        "statistics.user_totals:UserValues.partial",
        'np.clip(block["measured"], 0.0, np.asarray(self.most))',
        'block["measured"]',
        (REGISTRY,),
    ),
    "a training that died gives its reservation back": Fault(
        "release.budget_store_log:_add_reservation",
        "sums.units += record.units",
        "sums.units += 0",
        ("test_budget_store.py::test_a_crash_stays_spent_and_a_reservation_is_settled_once",),
    ),
    "an account is overspent by one training": Fault(
        "release.budget_store:Account._admit",
        "if units > left:",
        "if left < 0:",
        ("test_budget_store.py::test_what_would_fit_is_said_and_fits",),
    ),
    "an account mixes relations": Fault(
        "release.budget_store:Account._admit",
        "plan.budget.neighboring != balance.neighboring",
        "False",
        ("test_budget_store.py::test_relations_do_not_mix",),
    ),
    "the best of several runs is charged as one": Fault(
        "accounting.pricing:_selection_epsilon",
        "private_selection.epsilon(event.mu, private_selection.Runs(event.runs, event.law), delta /"
        " parts)",
        "gdp.epsilon(event.mu, delta / parts)",
        ("test_private_selection.py::test_a_ledger_of_tuning_is_priced_again_from_its_file",),
    ),
    "a user's gradient is not clipped": Fault(
        "statistics.gradients:_coefficients",
        "np.minimum(1.0, C / np.maximum(norm, 1e-300))",
        "np.ones(n)",
        (REGISTRY,),
    ),
    "the noise forgets the sensitivity": Fault(
        "release.session:_noise_of",
        "entry.deviation",
        "entry.noise_multiplier",
        ("test_session.py::test_a_release_is_the_statistic_plus_noise_of_the_planned_size",),
    ),
    "Laplace noise is charged in the Euclidean norm": Fault(
        "release.session:Session._charge",
        "sensitivity = _check_sensitivity(name, statistic, neighboring, noise.norm)",
        'sensitivity = _check_sensitivity(name, statistic, neighboring, "l2")',
        ("test_session.py::test_laplace_and_huber_use_the_l1_sensitivity",),
    ),
    "only the first release is charged": Fault(
        "release.ledger:Ledger.record",
        "self._append(entry)",
        "self.entries or self._append(entry)",
        (
            "test_session.py::test_unplanned_repeated_and_reshaped_releases_are_refused_unopened",
            "test_session.py::test_finish_wants_the_whole_plan",
        ),
    ),
    "a release may be made once more than planned": Fault(
        "release.session:Session._admit",
        "self._left[name] <= 0",
        "self._left[name] < 0",
        ("test_session.py::test_unplanned_repeated_and_reshaped_releases_are_refused_unopened",),
    ),
    "the data are opened before the ledger is written": Fault(
        "release.session:Session.release",
        "entry = self._charge",
        "statistic.compute(KEY)\n    entry = self._charge",
        ("test_session.py::test_the_ledger_is_written_before_the_data_are_opened",),
    ),
    "seeded noise is called secure": Fault(
        "release.session:_grade",
        'SeededNoise: "seeded"',
        'SeededNoise: "secure"',
        ("test_session.py::test_noise_is_graded_by_its_type_not_by_its_word",),
    ),
    "secure noise comes from a seed": Fault(
        "noise.sources:fresh_words",
        "os.urandom(16)",
        "bytes(16)",
        ("test_sources.py::test_blocks_threads_and_objects_are_independent",),
    ),
    "sampling uses numpy's global generator": Fault(
        "users.poisson_batches:_words",
        "fresh_words()(min(_PER_KEY, n - begin))",
        "np.random.randint(0, 2**64 - 1, min(_PER_KEY, n - begin), dtype=np.uint64)",
        ("test_poisson_batches.py::test_nobody_can_know_the_coins",),
    ),
    "sampling is 2 % too frequent": Fault(
        "users.poisson_batches:throw",
        "rate * 2.0**64",
        "min(1.02 * rate, 0.999) * 2.0**64",
        (
            "test_poisson_batches.py::test_coins_are_independent_and_have_their_rate",
            "test_poisson_batches.py::test_a_coin_falls_below_its_rate_exactly",
        ),
    ),
    "the draw of a user depends on the id": Fault(
        "users.poisson_batches:who_is_in",
        "throw(block.n, rate, seed)",
        "throw(2**16, rate, seed)[block.key % np.uint64(2**16)]",
        ("test_poisson_batches.py::test_users_do_not_share_a_coin_whatever_their_ids",),
    ),
    "what is revealed leaves epsilon finite": Fault(
        "release.ledger:Ledger.private",
        " and not any(entry.unsafe for entry in self.entries)",
        "",
        (
            "test_session.py::test_reveal_is_recorded_first_and_makes_epsilon_infinite",
            "test_errata.py::test_erratum_12_the_printed_huber_release_has_no_finite_epsilon",
        ),
    ),
    "noise is used again for the next release": Fault(
        "noise.sources:SecureNoise.add", FILL, POOLED.format(reuse="pool"), (INDEPENDENT,)
    ),
    "the next release has the same noise with the opposite sign": Fault(
        "noise.sources:SecureNoise.add", FILL, POOLED.format(reuse="-pool"), (INDEPENDENT,)
    ),
    "the next release has the same noise three places further": Fault(
        "noise.sources:SecureNoise.add",
        FILL,
        POOLED.format(reuse="np.roll(pool, 3)"),
        (INDEPENDENT,),
    ),
    "float noise is called secure": Fault(
        "noise.sources:SecureNoise.add",
        FILL,
        "drawn = mechanism.sample(values.shape, int.from_bytes(os.urandom(8)))\n"
        "    return values * grid + drawn / np.asarray(1.0 if weights is None else weights)",
        ("test_noise_independence.py::test_secure_noise_keeps_sums_on_their_grid",),
    ),
    "noise is keyed by the clock": Fault(
        "noise.sources:fresh_words",
        "os.urandom(16)",
        '__import__("time").time_ns().to_bytes(16)',
        ("test_noise_independence.py::test_noise_does_not_follow_from_clock_or_process",),
    ),
    "noise is keyed by the process": Fault(
        "noise.sources:fresh_words",
        "os.urandom(16)",
        '(os.getpid() * 2**64 + __import__("time").perf_counter_ns()).to_bytes(16)',
        ("test_noise_independence.py::test_noise_does_not_follow_from_clock_or_process",),
    ),
    "a user's ridge depends on how many users there are": Fault(
        "users.steps:Solve.run",
        "counts**self.exponent",
        "counts**self.exponent * (1.0 if block.n < 100 else 2.0)",
        (APART,),
    ),
    "private scores have no noise": Fault(
        "discreet.evaluation.private_scores:release_scores",
        "noisy = session.release(RELEASE, statistic)",
        "session.release(RELEASE, statistic)\n"
        "        from discreet.privacy.sealed import KEY\n"
        "        noisy = statistic.compute(KEY)",
        ("../auditing/test_scores_and_tuning.py::test_priced_scores_are_not_refuted",),
    ),
    "the score of a tuned training has no noise": Fault(
        "discreet.evaluation.tuning:Tuning._score",
        'return float(session.release("score",'
        " seal_values(measure_all).sum(UserValues((1.0,))))[0])",
        'session.release("score", seal_values(measure_all).sum(UserValues((1.0,))))\n'
        "    return float(measure_all().sum())",
        ("../auditing/test_scores_and_tuning.py::test_tuning_is_not_refuted",),
    ),
    "tuning makes the number of runs that is its mean": Fault(
        "discreet.evaluation.tuning:Tuning._run",
        "self._number.draw() if isinstance(self._number, Runs)",
        "int(self.runs) if isinstance(self._number, Runs)",
        ("../auditing/test_scores_and_tuning.py::test_tuning_is_not_refuted",),
    ),
}


@contextlib.contextmanager
def planted(name):
    """The library with this fault."""
    fault = FAULTS[name]
    module_name, _, path = fault.where.partition(":")
    full = module_name if module_name.startswith("discreet.") else f"discreet.privacy.{module_name}"
    module = importlib.import_module(full)
    *owners, attribute = path.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part)
    original = inspect.getattr_static(owner, attribute)
    function = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    found = list(_pattern(fault.text).finditer(source))
    assert len(found) == 1, f"{fault.where} has {len(found)} times {fault.text!r}"
    made = {}
    changed = source[: found[0].start()] + fault.instead.strip() + source[found[0].end() :]
    code = "from __future__ import annotations\n" + changed
    exec(compile(code, f"<{name}>", "exec"), vars(module), made)
    broken = made[attribute]
    places = [owner] if owners else _holders(original)
    for place in places:
        setattr(place, attribute, broken)
    try:
        yield
    finally:
        for place in places if owners else _holders(broken):  # also where it was imported meanwhile
            setattr(place, attribute, original)


def _pattern(text):
    """The text as a regular expression: lines may be broken between any two tokens."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    closing = [
        rf"(?:,\s*)?{re.escape(token)}" if token in ")]" else re.escape(token) for token in tokens
    ]
    return re.compile(r"\s*".join(closing))


def _holders(function):
    """Modules in which this function goes by its name."""
    name = function.__name__
    return [
        module
        for module in list(sys.modules.values())
        if getattr(module, "__dict__", {}).get(name) is function
    ]
