"""The plug-in: a fixture that counts, a summary, and results that are kept and compared."""

import gc
import json
import os
import shutil
import sys

import pytest

from .markers import instructions

#: A count has settled once so many calls in a row have taken the same. What a function does for the first time only,
#: as when the interpreter specialises its code or fills its caches, is not part of what it costs.
SETTLED = 3
#: The most calls that are made to get there.
MOST = 30
_RESULTS = pytest.StashKey()
_BEFORE = pytest.StashKey()
_UNSETTLED = pytest.StashKey()


def pytest_addoption(parser):
    group = parser.getgroup("lwp", "exact counts of instructions")
    group.addoption("--lwp", action="store_true", help="count: start pytest again under lwp")
    group.addoption("--lwp-save", metavar="FILE", help="keep the counts")
    group.addoption("--lwp-compare", metavar="FILE", help="show the change since counts that were kept")
    group.addoption(
        "--lwp-limit",
        metavar="PERCENT",
        type=float,
        help="with --lwp-compare: a test fails whose count has grown by more",
    )
    group.addoption(
        "--lwp-env", metavar="NAME[=VALUE]", action="append", default=[], help="let a variable through"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    if config.option.lwp_limit is not None and not config.option.lwp_compare:
        raise pytest.UsageError("--lwp-limit wants counts to compare with: --lwp-compare FILE")
    if config.option.lwp_compare:
        try:
            with open(config.option.lwp_compare, encoding="utf-8") as file:
                config.stash[_BEFORE] = json.load(file)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"{config.option.lwp_compare}: {error}") from error
    if not config.option.lwp or instructions() is not None:
        return None
    if os.environ.get("PYTEST_LWP") == "1":
        raise pytest.UsageError("lwp counts nothing here; `lwp doctor` says why")
    lwp = shutil.which("lwp")
    if lwp is None:
        raise pytest.UsageError("--lwp wants the command lwp: pip install lwp-profiler")
    fixed = ["PYTEST_LWP=1", "PYTHONHASHSEED=0", "PATH", "HOME", "TERM"]
    words = [lwp, "stat", "-o", os.devnull, "--deterministic"]
    for variable in fixed + config.option.lwp_env:
        words += ["--env", variable]
    # What earlier runs have left is not to be part of what this one does.
    words += ["--", sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    words += config.invocation_params.args
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(lwp, words)


def _overhead():
    """Instructions between two readings with a call of nothing between them."""
    return _measured(_nothing, ())[1]


def _nothing():
    pass


def _measured(function, arguments):
    """What a function returns, and how many instructions lie between the readings before and behind it."""
    before = instructions()
    result = function(*arguments)
    after = instructions()
    return result, None if before is None else after - before


def _settled(counts):
    """Whether no further call is needed."""
    if counts[-1:] == [None] or len(counts) >= MOST:
        return True
    return len(counts) >= SETTLED and len(set(counts[-SETTLED:])) == 1


@pytest.fixture
def count_instructions(request):
    """Calls a function, counts its instructions and returns what it returns."""

    def count(function, *arguments, setup=None):
        counts = []
        collects = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            while not _settled(counts):
                given = (setup(),) if setup is not None else arguments
                overhead = _overhead()
                result, taken = _measured(function, given)
                counts.append(None if taken is None else max(taken - overhead, 0))
        finally:
            if collects:
                gc.enable()
        if counts[-1] is not None:
            _keep(request, counts)
        return result

    return count


def _keep(request, counts):
    config, name = request.config, request.node.nodeid
    # Where calls never take the same, the last half of them is past the warm-up.
    late = sorted(counts[-SETTLED:] if len(counts) < MOST else counts[MOST // 2 :])
    taken = late[len(late) // 2]
    if late[0] != late[-1]:
        config.stash.setdefault(_UNSETTLED, {})[name] = (late[0], late[-1])
    config.stash.setdefault(_RESULTS, {})[name] = taken
    before = config.stash.get(_BEFORE, {}).get(name)
    limit = config.option.lwp_limit
    if before is not None and limit is not None and taken > before * (1 + limit / 100):
        pytest.fail(
            f"{before} to {taken} instructions, {_change(before, taken):+.2f} %; limit exceeded, at most +{limit:g} % are allowed",
            pytrace=False,
        )


def _change(before, now):
    return (now - before) * 100 / before if before else float("inf")


def pytest_terminal_summary(terminalreporter, config):
    results = config.stash.get(_RESULTS, {})
    if not results:
        return
    terminalreporter.section("instructions")
    width = max(map(len, results))
    before = config.stash.get(_BEFORE, {})
    unsettled = config.stash.get(_UNSETTLED, {})
    for name, taken in sorted(results.items()):
        line = f"{name:{width}} {taken:>16,}"
        if name in before:
            same = before[name] == taken
            line += "  unchanged" if same else f"  {_change(before[name], taken):+.2f} %"
        if name in unsettled:
            least, most = unsettled[name]
            line += f"  calls take {least:,} to {most:,}: they allocate, or change what they work on"
        terminalreporter.line(line)


def pytest_sessionfinish(session):
    path = session.config.option.lwp_save
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(session.config.stash.get(_RESULTS, {}), file, indent=2, sort_keys=True)
            file.write("\n")
