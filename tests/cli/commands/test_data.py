"""`kauldron data ...`."""

import json

import pytest


def test_element_spec_of_a_data_set(kauldron):
    code, out, _ = kauldron("data", "element_spec", "--cfg=toy.py")
    assert (code, out) == (0, "x\tfloat32\t(16, 4)\ny\tfloat32\t(16, 2)\n")
    _, out, _ = kauldron(
        "data",
        "element_spec",
        "--cfg=toy.py",
        "--ds_path=eval_ds",
        "--cfg.eval_ds.batch_size=2",
        "--json",
    )
    assert json.loads(out)["x"] == {"dtype": "float32", "shape": [2, 4]}


def test_statistics_of_batches(kauldron, folder):
    code, out, _ = kauldron(
        "data", "show", "--cfg=toy.py", "--num_batches=2", "--html=batches.html"
    )
    assert code == 0
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("batch")] == [
        "batch 0",
        "batch 1",
    ]
    name, dtype, shape, low, high, mean, std = lines[1].split("\t")
    assert (name, dtype, shape) == ("x", "float32", "(16, 4)")
    assert float(low) < float(mean) < float(high)
    assert float(std) > 0
    assert (folder / "batches.html").exists()


@pytest.mark.parametrize(
    "path, words",
    [
        ("train_dss", ["'train_ds'"]),
        ("model", ["cfg.model is not a data set", "Sequential"]),
        ("evals.test.ds", ["cfg.evals.test.ds is not set"]),
        ("workdir", ["cfg.workdir is not set"]),
    ],
)
def test_wrong_path_of_a_data_set(kauldron, path, words):
    code, out, err = kauldron("data", "show", "--cfg=toy.py", f"--ds_path={path}")
    assert (code, out) == (2, "")
    for word in words:
        assert word in err


def test_costs_of_a_data_set(kauldron):
    command = ("data", "profile", "--cfg=toy.py", "--seconds=0.05")
    code, out, _ = kauldron(*command)
    assert code == 0
    stages = [line.split("\t")[0] for line in out.splitlines() if "\t" in line]
    assert stages[0] == "source"
    assert stages[-3:] == ["batching", "transport: worker", "transport: parent"]
    assert "num_workers='auto' means" in out
    _, out, _ = kauldron(*command, "--json")
    assert json.loads(out)["stages"]["source"]["computing"] > 0


def test_page_that_cannot_be_written(kauldron):
    code, _, err = kauldron("data", "show", "--cfg=toy.py", "--html=no/page.html")
    assert code == 2
    assert err.startswith("error: --html=no/page.html: ")
