"""Real processes: killed, left in a hurry, with other devices, reading along."""

import json
import signal

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1

from kauldron import kd
from tests import processes
from tests.ckpts.states import (
    assert_equal,
    files_below,
    make_checkpointer,
    make_state,
    run_new_python,
    run_python,
    save_steps,
    start_python,
)

KILLED_WHILE_SAVING = """
    import os, signal, sys
    from kauldron import kd
    from tests.ckpts.states import make_checkpointer, make_state, random_array, full

    checkpointer = make_checkpointer(sys.argv[1])
    checkpointer.save(make_state(1), step=1)
    checkpointer.wait_until_finished()
    params = {"w": random_array(20_000_000)}
    checkpointer.save(kd.train.TrainState(step=full((), 2), params=params), step=2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_killed_during_a_save_the_one_before_is_there_and_the_next_run_cleans(tmp_path):
    run_python(KILLED_WHILE_SAVING, tmp_path, exit_code=-signal.SIGKILL)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    half_written = {name for name in names if name.startswith("ckpt_2.orbax-")}
    assert names == {"ckpt_1"} | half_written and half_written

    reader = make_checkpointer(tmp_path, create=False)
    assert_equal(reader.restore(make_state()), make_state(1))
    trainer = make_checkpointer(tmp_path)
    assert_equal(trainer.restore(make_state()), make_state(1))
    assert names == {path.name for path in (tmp_path / "checkpoints").iterdir()}
    save_steps(trainer, [2])
    assert_equal(trainer.restore(make_state()), make_state(2))
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"ckpt_1", "ckpt_2"}


LEAVING = """
    import os, pathlib, resource, sys
    from kauldron import kd
    from kauldron.ckpts import orbax_io
    from tests.ckpts.states import make_checkpointer, make_state, random_array

    kd.train.TrainState, kd.ckpts.Checkpointer  # are imported now

    def leave_by(way, workdir):
        if way == "failing save":
            params = {"w": random_array(100_000)}
            state = kd.train.TrainState(step=1, params=params)
            checkpointer = make_checkpointer(workdir)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            checkpointer.save(state, step=1)
            return
        checkpointer = make_checkpointer(workdir, max_to_keep=1)
        checkpointer.save(make_state(1, optimizer=False), step=1)
        checkpointer.save(make_state(2, optimizer=False), step=2)
        if way == "error":
            raise RuntimeError("after the save")

    # Each process leaves an interpreter that has imported everything and done nothing.
    root = pathlib.Path(sys.argv[1])
    for way in sys.argv[2:]:
        pid = os.fork()
        if pid == 0:
            output = os.open(root / f"{way}.log", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            leave_by(way, root / way)
            break
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        (root / f"{way}.code").write_text(str(code))
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The folder of processes that were left: workdirs, exit codes and outputs."""
    root = tmp_path_factory.mktemp("left")
    run_new_python(LEAVING, root, "end", "error", "failing save")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("how, status", [("end", 0), ("error", 1)])
def test_leaving_the_interpreter_right_after_a_save_commits_it(left, how, status):
    output = (left / f"{how}.log").read_text()
    assert (left / f"{how}.code").read_text() == str(status), output
    assert "cannot schedule" not in output
    checkpointer = make_checkpointer(left / how)
    assert checkpointer.all_steps == [2]
    assert (left / how / "checkpoints/ckpt_2/checksums.json").exists()
    restored = checkpointer.restore(make_state(optimizer=False))
    assert_equal(restored, make_state(2, optimizer=False))


@pytest.mark.slow
def test_save_that_fails_while_leaving_is_told(left):
    output = (left / "failing save.log").read_text()
    assert (left / "failing save.code").read_text() == "0", output
    assert "ckpt_1 failed" in output
    assert make_checkpointer(left / "failing save").all_steps == []


EIGHT_DEVICES = """
    import sys
    import jax, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from kauldron import kd
    from tests.ckpts.states import make_checkpointer

    assert jax.device_count() == 8

    def state(values, devices, spec):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
        put = lambda v, s: jax.device_put(v, NamedSharding(mesh, s))
        params = {"w": put(values, spec), "b": put(np.ones(3, np.float32), P())}
        return kd.train.TrainState(step=put(np.int32(1), P()), params=params)

    values = np.arange(64, dtype=np.float32).reshape(16, 4)
    checkpointer = make_checkpointer(sys.argv[1])
    checkpointer.save(state(values, 8, P("x")), step=1)
    for devices, spec in [(8, P("x")), (4, P(None, "x")), (2, P("x")), (1, P()), (8, P())]:
        target = state(values * 0, devices, spec)
        sharding = target.params["w"].sharding
        restored = checkpointer.restore(target)
        np.testing.assert_array_equal(restored.params["w"], values)
        assert restored.params["w"].sharding == sharding, devices
        assert restored.step.sharding.device_set == sharding.device_set

        target = state(values * 0, devices, spec)
        loader = kd.ckpts.PartialKauldronLoader(
            workdir=sys.argv[1], new_to_old={"params.w": "params.w"}
        )
        loaded = loader.transform(target)
        np.testing.assert_array_equal(loaded.params["w"], values)
        assert loaded.params["w"].sharding == sharding, devices

    assert isinstance(checkpointer.restore(kd.ckpts.items.StandardCheckpointItem()), dict)

    from flax import serialization
    from kauldron.ckpts import weight_files
    path = sys.argv[1] + "/weights.msgpack"
    open(path, "wb").write(serialization.to_bytes({"w": values, "b": np.zeros(3)}))
    loaded = kd.ckpts.MsgpackLoader(path=path).transform(state(values * 0, 8, P("x")))
    np.testing.assert_array_equal(loaded.params["w"], values)
    assert loaded.params["w"].sharding.spec == P("x")
"""


@pytest.mark.slow
def test_other_numbers_of_devices_and_other_shardings(tmp_path):
    run_python(EIGHT_DEVICES, tmp_path, device_count=8)
    assert jax.device_count() == 1
    checkpointer = make_checkpointer(tmp_path)
    values = np.arange(64, dtype=np.float32).reshape(16, 4)
    target = {"w": np.zeros((16, 4), np.float32), "b": np.zeros(3, np.float32)}
    state = kd.train.TrainState(step=0, params=jax.device_put(target))
    np.testing.assert_array_equal(checkpointer.restore(state).params["w"], values)
    stored = checkpointer.restore(kd.ckpts.items.StandardCheckpointItem())
    np.testing.assert_array_equal(stored["params"]["w"], values)


FOLLOWING = """
    import json, sys
    from tests.ckpts.states import make_checkpointer, make_state

    reader = make_checkpointer(sys.argv[1], create=False)
    with reader:
        for step in reader.iter_new_checkpoints(timeout=0, seconds_to_sleep=0.01):
            state = reader.restore(make_state(), step=step)
            print(json.dumps([step, int(state.step), reader.all_steps]))
"""


@pytest.mark.slow
def test_following_from_another_process_changes_no_file(tmp_path):
    save_steps(make_checkpointer(tmp_path), [1, 2])
    (tmp_path / "checkpoints/ckpt_3.orbax-checkpoint-tmp").mkdir()
    before = files_below(tmp_path)
    output = run_python(FOLLOWING, tmp_path)
    assert json.loads(output.splitlines()[-1]) == [2, 2, [1, 2]]
    assert files_below(tmp_path) == before


#
# One run in several processes: they save and restore together
#


WORKER = """
    import json, pathlib, sys
    import jax, numpy as np
    rank, port, workdir = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from kauldron import kd
    from tests.ckpts.states import make_checkpointer

    mesh = Mesh(np.array(jax.devices()), ("x",))

    def values(step):
        return np.arange(4096, dtype=np.float32).reshape(512, 8) + step

    def put(value, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])

    def state(step):
        random = np.random.default_rng(step)
        params = {
            "w": put(values(step), P("x")),
            "b": put(random.normal(size=(512, 512)), P()),
            "large": put(random.normal(size=(1024, 1024)), P("x")),
        }
        return kd.train.TrainState(step=put(np.asarray(step), P()), params=params)

    def check(restored, step):
        assert int(restored.step.addressable_data(0)) == step
        for shard in restored.params["w"].addressable_shards:
            np.testing.assert_array_equal(shard.data, values(step)[shard.index])

    checkpointer = make_checkpointer(workdir, max_to_keep=2)
    for step in (1, 2, 3):
        assert checkpointer.should_save(step)
        assert checkpointer.save(state(step), step=step)
    checkpointer.wait_until_finished()
    assert not checkpointer.should_save(3)
    assert checkpointer.save(state(3), step=3) is False
    multihost_utils.sync_global_devices("saved")
    check(checkpointer.restore(state(0)), 3)
    assert checkpointer.all_steps == [2, 3]
    sizes = [p.stat().st_size for p in workdir.rglob("ckpt_3/default/**/*")]
    array_bytes = (512 * 512 + 1024 * 1024) * 4
    assert array_bytes // 2 < sum(sizes) < array_bytes * 1.5  # each is written once

    # Each notes checksums of what it wrote. One changed bit: both take the one before.
    multihost_utils.sync_global_devices("restored")
    newest = workdir / "checkpoints" / "ckpt_3"
    for process in (0, 1):
        noted = json.loads((newest / f"checksums_{process}.json").read_text())["sums"]
        assert all(f"ocdbt.process_{process}" in name for name in noted) and noted
    (name,) = noted
    if rank == 0:
        content = (newest / name).read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        (newest / name).write_bytes(changed)
    multihost_utils.sync_global_devices("changed")
    restored, step = make_checkpointer(workdir).restore_newest(state(0))
    assert step == 2
    check(restored, 2)
    multihost_utils.sync_global_devices("noticed")
    if rank == 0:
        (newest / name).write_bytes(content)

    # A file that only the other process reads is damaged: both take the one before.
    if rank == 0:
        (newest / "checksums.json").unlink()
        for path in newest.glob("default/ocdbt.process_1/d/*"):
            path.write_bytes(b"")
    multihost_utils.sync_global_devices("damaged")
    again = make_checkpointer(workdir)
    restored, step = again.restore_newest(state(0))
    assert step == 2
    check(restored, 2)
    assert again.save(state(3), step=3)
    again.close()
    check(again.restore(state(0)), 3)
    print("done")
"""


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    """The workdir of the two processes, and what became of them."""
    workdir = tmp_path_factory.mktemp("two")
    port = processes.free_port()
    workers = [start_python(WORKER, rank, port, workdir) for rank in range(2)]
    try:
        return workdir, [worker.wait() for worker in workers]
    finally:
        for worker in workers:
            worker.stop()


@pytest.mark.slow
def test_two_processes_save_restore_and_agree_on_what_is_damaged(of_two_processes):
    for status, output in of_two_processes[1]:
        assert status == 0, output
        assert "done" in output


@pytest.mark.slow
def test_checkpoint_of_two_processes_is_read_with_plain_orbax_on_one_device(
    of_two_processes,
):
    folder = of_two_processes[0] / "checkpoints" / "ckpt_3"
    expected = np.arange(4096, dtype=np.float32).reshape(512, 8) + 3

    on_host = v1.load(folder, checkpointable_name="default")["params"]["w"]
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_array_equal(on_host, expected)

    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    asked = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here),
        v1.metadata(folder, checkpointable_name="default").metadata,
    )
    loaded = v1.load(folder, asked, checkpointable_name="default")
    on_device = loaded["params"]["w"]
    assert on_device.sharding == here
    np.testing.assert_array_equal(on_device, expected)
