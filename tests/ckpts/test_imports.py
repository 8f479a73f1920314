"""What importing checkpoints costs, and under which names they are found."""

import importlib

from kauldron import kd
from tests.ckpts.states import run_python


def test_orbax_is_loaded_only_when_something_is_saved_or_read(tmp_path):
    script = """
        import sys
        from kauldron import kd

        checkpointer = kd.ckpts.Checkpointer(workdir=sys.argv[1], save_interval_steps=1)
        kd.ckpts.PartialKauldronLoader(workdir=sys.argv[1])
        assert checkpointer.latest_step is None and checkpointer.should_save(0)
        kd.train.Trainer(workdir=sys.argv[1], checkpointer=checkpointer)
        loaded = {name.split(".")[0] for name in sys.modules}
        assert not loaded & {"orbax", "tensorstore", "tensorflow"}, loaded
    """
    run_python(script, tmp_path)


def test_older_names_of_the_packages():
    assert importlib.import_module("kauldron.checkpoints") is kd.ckpts
    assert importlib.import_module("kauldron.modules") is kd.nn
    assert kd.ckpts.PartialLoader is kd.ckpts.PartialKauldronLoader
    assert kd.ckpts.checkpointer.CHECKPOINT_FOLDER_NAME == "checkpoints"
