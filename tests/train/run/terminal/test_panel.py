"""What a terminal shows of a run, in real pseudo-terminals."""

import contextlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.terminal_output import run_in_terminal, screen

pytestmark = pytest.mark.usefixtures("fast_python")

PROGRAM = """
    import sys, time, warnings
    from kauldron import kd
    from tests.train.toy import make_ds, make_trainer

    one_epoch = make_ds(num_epochs=1, shuffle=False)

    def slow(seconds):
        return make_ds().map(lambda batch: (time.sleep(seconds), batch)[1])

    def evaluator(every=10, **kwargs):
        return kd.evals.Evaluator(run=kd.evals.EveryNSteps(every), ds=one_epoch, **kwargs)
"""


def _run(tmp_path, program, **kwargs):
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
    return run_in_terminal("-c", text, tmp_path / "fm1", **kwargs)


def _plain(output):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)


def _start(lines):
    return next(i for i, line in enumerate(lines) if line.startswith("fm1 ·"))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 200])
def test_rows_line_up_below_a_header(tmp_path, columns):
    code, output = _run(
        tmp_path,
        """
        make_trainer(
            sys.argv[1],
            num_train_steps=30,
            log_metrics_every=5,
            train_ds=slow(0.03),
            evals={"test": evaluator(), "val": evaluator(20)},
            checkpointer=kd.ckpts.Checkpointer(save_interval_steps=20),
        ).train()
        """,
        columns=columns,
    )
    assert code == 0, output
    lines = screen(output, columns=columns)
    first, groups, titles, *rows = lines[_start(lines) :]
    start = f"fm1 · 10 parameters · 1 cpu · {tmp_path}"
    assert first.startswith(start[: columns - 1])
    assert groups.replace("─", "").split() == ["train", "test", "val"]
    assert titles.split() == ["step", *["loss", "norm"] * 3]
    steps = [int(row.split()[0]) for row in rows]
    assert steps == [0, 5, 10, 15, 20, 25, 29, 30]
    ends = [match.end() for match in re.finditer(r"\S+", titles)]
    for row in rows:
        values = re.sub(r" [a-z, ]+$", "", row)
        assert {match.end() for match in re.finditer(r"\S+", values)} <= set(ends)
    notes = [re.sub(r"^[\d. -]+", "", row) for row in rows]
    assert notes == ["saved", "", "best", "", "best, saved", "", "", "best, saved"]
    shown = _plain(output)
    assert all(len(line) <= columns for line in re.split(r"[\r\n]+", shown))
    assert "Starting" not in shown.rpartition("/30 ")[2]  # after the last bar
    seen = _plain(output)
    assert re.search(
        r"━╸─+ +\d+/30 +[\d.]+ steps/s  0:0\d left  data wait \d+ %  ", seen
    )
    assert "reading data" in seen


SPEAKING = """
    import logging
    from kauldron import status

    def speak(batch):
        if not spoken:
            spoken.append(1)
            warnings.warn("the model is sleepy")
            status.log_warning("low on coffee")
            logging.getLogger("library").warning("from a library")
            print("a result")
        return batch

    spoken = []
    trainer = make_trainer(
        sys.argv[1],
        train_ds=make_ds().map(speak),
        checkpointer=None,
        log_metrics_every=1,  # all steps are one program
    )
"""


@pytest.mark.slow
def test_warnings_stand_out_above_and_stdout_stays_apart(tmp_path):
    stdout = tmp_path / "stdout"
    stdout.touch()
    program = textwrap.dedent(SPEAKING) + "trainer.train()"
    code, output = _run(tmp_path, program, stdout=str(stdout))
    assert code == 0, output
    assert stdout.read_text() == "a result\n"
    lines = screen(output)
    assert " warning  low on coffee" in lines
    assert "\x1b[30;43m warning \x1b[0m \x1b[1mlow on coffee" in output
    assert any(
        line.startswith(" warning  the model is sleepy (UserWarning, ")
        for line in lines
    )
    assert "from a library" in lines
    assert lines[-1].split()[0] == "9", "the table is whole"


@pytest.mark.slow
def test_program_that_configured_logging_gets_lines_by_its_own_handlers(tmp_path):
    program = textwrap.dedent(SPEAKING) + textwrap.dedent(
        """
        logging.basicConfig(level=logging.INFO, format="APP %(message)s")
        trainer.train()
        """
    )
    code, output = _run(tmp_path, program)
    assert code == 0, output
    lines = screen(output)
    assert {"APP from a library", "APP low on coffee", "a result"} <= set(lines)
    assert any(re.match(r"APP \[5\] train  loss ", line) for line in lines)
    assert lines[-1].startswith("APP [9] train")


@pytest.mark.slow
def test_error_of_a_step_is_readable_below_the_table(tmp_path):
    code, output = _run(
        tmp_path,
        """
        def fail(batch):
            count.append(1)
            if len(count) > 12:
                raise RuntimeError("out of coffee")
            return batch

        count = []
        make_trainer(
            sys.argv[1], num_train_steps=50, train_ds=make_ds().map(fail),
            checkpointer=None, log_metrics_every=1,
        ).train()
        """,
    )
    assert code == 1
    lines = screen(output)
    row = next(i for i, line in enumerate(lines) if line.split()[:1] == ["0"])
    start = lines.index("Traceback (most recent call last):")
    assert row < start
    assert any("RuntimeError: " in line for line in lines[start:])
    assert not any("steps/s" in line for line in lines), "the live line is gone"
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h"), "the cursor is back"


@pytest.mark.slow
def test_ctrl_c_leaves_a_clean_screen(tmp_path):
    def interrupt(process):
        path = tmp_path / "fm1" / "train" / "scalars.jsonl"
        for _ in _until_deadline():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size:
                    break
        process.send_signal(signal.SIGINT)

    code, output = _run(
        tmp_path,
        """
        trainer = make_trainer(
            sys.argv[1], num_train_steps=10**6, log_metrics_every=1, train_ds=slow(0.01)
        )
        try:
            trainer.train()
        except KeyboardInterrupt:
            sys.exit(130)
        """,
        on_start=interrupt,
    )
    assert code == 130, output
    lines = screen(output)
    assert any(line.startswith("Received SIGINT") for line in lines)
    assert any("as asked; a new start continues" in line for line in lines)
    assert not any("steps/s" in line for line in lines)
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h")


def _until_deadline(seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
    raise TimeoutError


LINES = """
    make_trainer(
        sys.argv[1],
        evals={"test": evaluator()},
        checkpointer=None,
        setup=kd.train.Setup(
            tqdm_info=kd.train.TqdmInfo(display=sys.argv[2])
        ),
    ).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dumb", "setting", "pipe"])
def test_lines_where_there_is_no_panel(tmp_path, way):
    program = LINES.replace(
        "sys.argv[2]", repr("lines" if way == "setting" else "auto")
    )
    if way == "pipe":
        text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
        output = subprocess.run(
            [sys.executable, "-c", text, str(tmp_path / "fm1")],
            check=True,
            text=True,
            capture_output=True,
        ).stderr
    else:
        environment = {"TERM": "dumb"} if way == "dumb" else {}
        code, output = _run(tmp_path, program, environment=environment, columns=200)
        assert code == 0, output
    assert "\x1b" not in output
    lines = [line.split(" ", 1)[1] for line in output.splitlines()]
    expected = [
        r"Preparing the state",
        r"The trainer was not built from a config.*",
        rf"fm1 · 10 parameters · 1 cpu · {tmp_path}/fm1",
        r"Starting the training loop at step 0",
        r"\[0\] test  loss [\d.]+  norm [\d.]+",
        r"\[0\] train  loss [\d.]+  norm [\d.]+  [\d.]+ steps/s.*",
        r"\[5\] train  loss .*",
        r"\[9\] train  loss .*",
        r"\[10\] test  loss [\d.]+  norm [\d.]+",
    ]
    assert len(lines) == len(expected), output
    for line, pattern in zip(lines, expected):
        assert re.fullmatch(pattern, line)


@pytest.mark.slow
def test_continued_run_knows_its_earlier_best_and_two_trainers_share_a_process(
    tmp_path,
):
    code, output = _run(
        tmp_path,
        """
        def train(steps):
            make_trainer(
                sys.argv[1],
                num_train_steps=steps,
                evals={"test": evaluator()},
                checkpointer=kd.ckpts.Checkpointer(save_interval_steps=6),
            ).train()

        train(10)
        train(20)
        """,
        environment={"NO_COLOR": "1"},
    )
    assert code == 0, output
    lines = screen(output)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", output), "no colours"
    second = next(i for i, line in enumerate(lines) if "· from step 10 ·" in line)
    assert _start(lines) < second
    steps = [int(line.split()[0]) for line in lines[second + 3 :]]
    assert steps == [10, 15, 19, 20], "not those that were only saved"
    assert lines[-1].endswith("best, saved")
