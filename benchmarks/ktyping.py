"""What `@typechecked` costs per call, against jaxtyping with beartype.

    python benchmarks/ktyping.py [--tiny]

Prints one JSON line per figure, in microseconds unless it says otherwise. `limit` is what
jaxtyping and beartype need for the same call, or for other figures the budget.
"""

import argparse
import dataclasses
import statistics
import subprocess
import sys

import beartype
import jax.numpy as jnp
import jaxtyping
import numpy as np
from figures import in_turn, show

import kauldron.ktyping as kt
import kauldron.typing as older
from kauldron.ktyping import Float

ROUNDS = 9
GOAL_US = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    tiny = parser.parse_args().tiny
    calls = 200 if tiny else 5000
    arrays = np.ones((4, 8, 16)), np.ones((4, 8, 32)), np.ones((4, 8))
    report_calls(arrays, calls)
    report_parts(arrays, calls)
    report_dataclass(calls)
    report_tree(calls)
    report_import(1 if tiny else 5)


# --------------------------------------------------------------------------------------
# Calls with three arrays
# --------------------------------------------------------------------------------------


def report_calls(arrays, calls: int) -> None:
    """Three array arguments and an array result, trivial body."""
    on_device = tuple(map(jnp.asarray, arrays))
    checked, older_checked = make_checked(kt), make_checked(older)
    reference = make_reference(np.ndarray)
    reference_jax = make_reference(jnp.ndarray)
    for name, ours, theirs, args in (
        ("call_numpy", checked, reference, arrays),
        ("call_jax", checked, reference_jax, on_device),
        ("call_numpy_older", older_checked, reference, arrays),
    ):
        time_ours, time_theirs = interleaved(
            (ours, args, calls), (theirs, args, max(20, calls // 10))
        )
        report(name, time_ours, time_theirs, goal=GOAL_US)


def make_checked(module):
    @module.typechecked
    def f(
        a: module.Float["*b d"], b: module.Float["*b e"], c: module.Float["*b"]
    ) -> module.Float["*b d"]:
        return a

    return f


def make_reference(array):
    of = jaxtyping.Float

    @jaxtyping.jaxtyped(typechecker=beartype.beartype)
    def f(
        a: of[array, "*b d"], b: of[array, "*b e"], c: of[array, "*b"]
    ) -> of[array, "*b d"]:
        return a

    return f


# --------------------------------------------------------------------------------------
# The other figures, against their budgets
# --------------------------------------------------------------------------------------


def report_parts(arrays, calls: int) -> None:
    """Everything else that is on a hot path."""

    def plain(a: Float["*b d"], b: Float["*b e"], c: Float["*b"]) -> Float["*b d"]:
        return a

    def block() -> None:
        with kt.typechecked():
            pass

    unannotated = kt.typechecked(lambda a, b, c: a)
    report("call_unannotated", timed((unannotated, arrays, calls)), 1.5)
    with kt.Config(typechecking_enabled=False):
        report("call_disabled", timed((make_checked(kt), arrays, calls)), 1.0)
    report("block", timed((block, (), calls)), 4.0)
    report("decorate", timed((kt.typechecked, (plain,), max(20, calls // 50))), 60.0)
    report("subscript", timed((lambda: Float["a b"], (), calls)), 0.5)
    for name, (function, budget) in body_functions().items():
        report(name, timed((function, (arrays[0], calls), 1)) / calls, budget)


def body_functions():
    """What is called from inside a checked function, `calls` times in a loop."""
    type_ = Float["*b d"]

    @kt.typechecked
    def dim(x: Float["*b d"], calls: int):
        for _ in range(calls):
            kt.dim["d"]

    @kt.typechecked
    def shape(x: Float["*b d"], calls: int):
        for _ in range(calls):
            kt.shape("*b d 1")

    @kt.typechecked
    def check_type(x: Float["*b d"], calls: int):
        for _ in range(calls):
            kt.check_type(x, type_)

    @kt.typechecked
    def isinstance_(x: Float["*b d"], calls: int):
        for _ in range(calls):
            kt.isinstance(x, type_)

    return {
        "dim": (dim, 1.0),
        "shape": (shape, 2.0),
        "check_type": (check_type, 4.0),
        "isinstance": (isinstance_, 4.0),
    }


def report_dataclass(calls: int) -> None:
    """Construction of a dataclass with two arrays, over that of the plain one."""

    @dataclasses.dataclass
    class Plain:
        x: Float["a b"]
        y: Float["b"]

    @kt.typechecked
    @dataclasses.dataclass
    class Checked:
        x: Float["a b"]
        y: Float["b"]

    args = np.ones((2, 3)), np.ones(3)
    ours, plain = interleaved((Checked, args, calls), (Plain, args, calls))
    report("dataclass_over_plain", ours - plain, 15.0)


def report_tree(calls: int) -> None:
    """A tree of a thousand arrays, per leaf."""

    @kt.typechecked
    def f(tree: kt.PyTree[Float["a"]]):
        return tree

    tree = {str(i): np.ones(3) for i in range(1000)}
    report("tree_leaf", timed((f, (tree,), max(2, calls // 500))) / 1000, 2.0)


def report_import(rounds: int) -> None:
    """CPU milliseconds that the import adds to that of jax and numpy."""
    script = (
        "import jax, numpy, time; start = time.process_time();"
        "import kauldron.ktyping, kauldron.typing;"
        "print(1000 * (time.process_time() - start))"
    )
    times = []
    for _ in range(rounds):
        command = [sys.executable, "-c", script]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(float(result.stdout))
    report("import", statistics.median(times), 50.0, unit="ms")


# --------------------------------------------------------------------------------------
# Measuring
# --------------------------------------------------------------------------------------


def interleaved(*works) -> list[float]:
    """Microseconds per call of each work, median of interleaved rounds."""
    for function, args, _ in works:
        function(*args)  # compile
    times = in_turn(*(repeated(*work) for work in works), rounds=ROUNDS)
    return [
        statistics.median(found) / calls * 1e6
        for found, (_, _, calls) in zip(times, works)
    ]


def timed(work) -> float:
    return interleaved(work)[0]


def repeated(function, args, calls: int):
    def run() -> None:
        for _ in range(calls):
            function(*args)

    return run


def report(
    name: str, ours: float, limit: float, *, unit: str = "us", goal=None
) -> None:
    show(f"typing/{name}", ours, limit, unit=unit, goal=goal)


if __name__ == "__main__":
    main()
