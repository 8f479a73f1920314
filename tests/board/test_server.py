"""The server: what it answers, and what it does not give away."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.board.board_runs import write_runs
from tests.board.conftest import board
from tests.inspect.written_runs import write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    base = tmp_path_factory.mktemp("server")
    (base / "secret.log").write_text("a secret")
    runs = write_runs(base / "runs")
    os.symlink(base / "secret.log", runs / "sweep/1/logs/linked.log")
    outside = write_runs(base / "outside") / "sweep/1"
    (outside / "config.json").write_text('{"password": "a secret"}')
    linking = write_run(runs / "linking")
    (linking / "config.json").unlink()
    for name in ("config.json", "train", "test"):
        os.symlink(outside / name, linking / name)
    return runs


@pytest.fixture(scope="module")
def address(root):
    with board(root) as url:
        yield url


def get(address, path, **query):
    url = f"{address}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_only_files_of_runs_can_be_read(address):
    assert get(address, "api/log", run="sweep/1", name="logs/train.log")[0] == 200
    for query in (
        {"run": "sweep/1", "name": "../../../secret.log"},
        {"run": "sweep/1", "name": "logs/linked.log"},
        {"run": "sweep/1", "name": "/etc/passwd"},
        {"run": "sweep/1", "name": "config.json"},
        {"run": "../..", "name": "secret.log"},
        {"run": "sweep", "name": "1/logs/train.log"},
    ):
        for question in ("log", "trace"):
            status, text = get(address, f"api/{question}", **query)
            assert status == 404 and "secret" not in text.replace("secret.log", "")
    for path in (
        "page/..%2fserver.py",
        "page/../server.py",
        "page/index.html",
        "..%2f",
    ):
        assert get(address, path)[0] == 404


def test_links_out_of_the_folder_are_not_followed(address):
    assert get(address, "api/config", run="linking") == (200, "{}")
    assert get(address, "api/media", run="linking") == (200, "[]")
    assert "linking" not in get(address, "api/curves", metric="train/loss")[1]


def test_other_names_of_the_server_are_turned_away(address):
    request = urllib.request.Request(address, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request)
    assert raised.value.code == 400


def test_page_forbids_foreign_scripts(address):
    with urllib.request.urlopen(address) as response:
        policy = response.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "default-src 'none'" in policy


def test_server_listens_on_this_machine_only(address):
    port = int(address.rsplit(":", 1)[1])
    with socket.socket() as other, pytest.raises(OSError):
        other.settimeout(5)
        other.connect(("127.0.0.2", port))  # where 0.0.0.0 would answer


def test_unknown_names_are_explained(address):
    status, text = get(address, "api/curves", metric="train/los")
    assert status == 404 and "Did you mean 'train/loss'?" in text
    assert get(address, "api/curves")[0] == 404
    assert get(address, "api/text", run="sweep/1", tag="x", step="one")[0] == 404
    assert get(address, "api/config", run="sweep/9")[0] == 404


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["board", "missing"], "There is no folder missing."),
        (["report", "."], "There are no runs below ."),
        (["report", "missing"], "There is no folder missing."),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "kauldron", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 2
    assert message in result.stderr
