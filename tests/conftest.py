"""What every test may use."""

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from discreet.privacy.noise import sources
from support.fixed_keys import FixedKeys

# How long an example takes says more about the machine than about the code. CI repeats the same
# examples in every run; new ones are searched on the machines of contributors.
hypothesis.settings.register_profile(
    "discreet", deadline=None, derandomize=os.environ.get("CI") == "true"
)
hypothesis.settings.load_profile("discreet")

KEYS = FixedKeys()
if os.environ.get("DISCREET_TEST_NOISE") != "secret":
    sources.os = KEYS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give every test noise of its own that is the same in every run."""
    KEYS.start(item.nodeid)
    return (yield)


# Shells and nohup let background jobs ignore these, and the jobs hand that on to what they start.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (getattr(signal, "SIGHUP", None), signal.SIG_DFL),
):
    if number is not None and signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)


#: Files and folders whose tests take long: real servers, browsers and Spark, commands in processes
#: of their own, planted faults, whole research entries. `make test-fast` leaves them out.
SLOW = """
    auditing cli research report engines/test_spark.py engines/test_spark_cluster.py engines/spark
    engines/test_blocks.py engines/test_block_cache.py models/storage/test_hostile_folders.py
    models/storage/test_save_load.py models/test_private.py models/test_fold_in.py
    privacy/test_faults.py privacy/test_audit.py privacy/test_neighbors.py privacy/test_registry.py
    privacy/test_noise_independence.py privacy/release/test_store_damage.py
    privacy/release/test_budget_store.py privacy/release/test_budget_store_postgres.py
    privacy/users/test_poisson_batches.py data/test_other_rows.py data/test_broken_files.py
    evaluation/test_tuning.py kernels/test_dual.py models/dpmf/test_feature_prior.py
    models/dpmf/test_profile.py models/dpmf/test_dpmf_communities.py timeline benchmarks
    serve test_build.py test_notebooks.py test_pages.py test_examples.py
""".split()  # noqa: SIM905


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `SLOW` files."""
    root = Path(__file__).resolve().parent
    slow = [root / name for name in SLOW]
    for item in items:
        if any(item.path == place or place in item.path.parents for place in slow):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data sets, which may not be part of the project: ``../shared/data`` or
    ``DISCREET_DATA``.
    """
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DISCREET_DATA", default))
    if (folder / "ml-100k").is_dir():
        return folder
    message = (
        f"real data not found at {folder}: set DISCREET_DATA to the folder that holds ml-100k/ and"
        " ml-1m/"
    )
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server of this process; skipped where there is none, which is an error
    with CI=true.
    """
    from support import postgres

    if postgres.find() is None:
        message = "there is no PostgreSQL: make postgres installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of a new, empty database."""
    from support import postgres

    return postgres.new_database(postgres_server)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def same_logger() -> Iterator[None]:
    """Leave the library's logger as it was: a command that a test runs gives it other handlers."""
    logger = logging.getLogger("discreet")
    before = logger.handlers, logger.propagate, logger.level, logger.disabled
    logger.propagate = True
    yield
    logger.handlers, logger.propagate, logger.level, logger.disabled = before


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """``run("train", "ratings.csv")`` does what a shell would do, without the second that a
    process costs.
    """
    from discreet.cli import main
    from discreet.kernels import set_threads

    logger = logging.getLogger("discreet")
    before = logger.handlers, logger.propagate, logger.level, warnings.showwarning
    monkeypatch.setenv("DISCREET_DEBUG", "")
    capsys.readouterr()

    def call(*args: object) -> Result:
        with pytest.raises(SystemExit) as left:
            main([str(arg) for arg in args])
        os.environ["DISCREET_DEBUG"] = ""
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Result(left.value.code, out, err)

    yield call
    logger.handlers, logger.propagate, logger.level, warnings.showwarning = before
    set_threads(None)
