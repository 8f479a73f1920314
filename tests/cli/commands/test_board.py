"""`kauldron report`."""


def test_report_that_cannot_be_written(kauldron, folder):
    (folder / "run").mkdir()
    (folder / "run" / "run_info.json").write_text("{}")
    code, out, err = kauldron("report", "run", "-o", "run")
    assert (code, out) == (2, "")
    assert err == "error: Cannot overwrite: run is a directory\n"
