"""`kauldron run eval_shape` and `kauldron run memory`."""

import pytest


def test_eval_shape_prints_state_and_context(kauldron, folder):
    code, out, err = kauldron("run", "eval_shape", "--cfg=toy.py")
    assert code == 0
    lines = out.splitlines()
    assert lines[:3] == ["# --cfg=toy.py", "", "State"]
    assert "params.layers_0.kernel\tf32[4 2]" in lines
    assert "batch.x\tf32[16 4]" in lines[lines.index("Context") :]
    assert "Shapes of a train step: " in err
    assert not list(folder.glob("run*"))


def test_eval_shape_follows_overrides_and_patches(kauldron):
    _, out, _ = kauldron(
        "run", "eval_shape", "--cfg=toy.py", "--patch.batch_size=3", "--cfg.seed=1"
    )
    assert "batch.x\tf32[3 4]" in out
    assert "# patched: train_ds.batch_size=3" in out


def test_memory_prints_bytes_per_device(kauldron):
    code, out, _ = kauldron("run", "memory", "--cfg=toy.py")
    assert code == 0
    sizes = {row.split("\t")[0]: int(row.split("\t")[2]) for row in out.splitlines()}
    assert sizes["parameters"] == (4 * 2 + 2) * 4
    assert sizes["optimizer state"] == 2 * sizes["parameters"] + 4
    assert sizes["batch"] == 16 * (4 + 2) * 4
    assert sizes["total"] >= sizes["parameters"] + sizes["optimizer state"]


def test_wrong_key_is_an_error_of_eval_shape(kauldron):
    with pytest.raises(KeyError, match=r"'preds\.z'"):
        kauldron("run", "eval_shape", "--cfg=problems.py", "--cfg.train_losses={}")
