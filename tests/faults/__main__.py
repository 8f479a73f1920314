"""`python -m tests.faults --rounds N --seed S`: kills at random instants."""

import argparse
import pathlib
import random
import signal
import tempfile
import time

from tests.faults import harness


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        begin = time.monotonic()
        status, output = harness.run(root / "reference")
        assert status == 0, output
        duration = time.monotonic() - begin
        print("round  killed after  result")
        for index in range(args.rounds):
            delay = rng.uniform(0, duration)
            process = harness.start(root / str(index))
            try:
                process.communicate(timeout=delay)
            except harness.subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
            harness.finish(root / str(index))
            harness.assert_same_run(root / str(index), root / "reference")
            print(f"{index:5}  {delay:10.2f} s  identical")


if __name__ == "__main__":
    main()
