"""Paths of modules that were joined into others."""

import pickle

from kauldron.utils import config_util


def test_modules_are_found_where_they_were():
    from kauldron.utils.root_cfg_ref import RootCfgRef

    assert RootCfgRef is config_util.RootCfgRef
    written_before = b"ckauldron.utils.root_cfg_ref\nROOT_CFG_REF\n."
    assert pickle.loads(written_before) is config_util.ROOT_CFG_REF
