"""Configs as data: calls that are written now, edited, saved, and executed later."""

# In the order of a config's life, not of the alphabet.
# isort: off

# Writing
from kauldron.konfig.configdict import ConfigDict as ConfigDict
from kauldron.konfig.import_context import imports as imports
from kauldron.konfig.mocking import mock_modules as mock_modules
from kauldron.konfig.ref_functions import ref_fn as ref_fn
from kauldron.konfig.ref_functions import ref_copy as ref_copy
from kauldron.konfig.placeholders import placeholder as placeholder
from kauldron.konfig.placeholders import required as required
from kauldron.konfig.annotations import WithRef as WithRef
from kauldron.konfig.annotations import ConfigDictLike as ConfigDictLike

# Building
from kauldron.konfig.resolving import resolve as resolve
from kauldron.konfig.errors import CycleError as CycleError
from kauldron.konfig.errors import RequiredValueError as RequiredValueError
from kauldron.konfig.errors import NotAllowedError as NotAllowedError

# Back from real objects
from kauldron.konfig.exporting import export as export
from kauldron.konfig.exporting import export_qualname as export_qualname

# Looking
from kauldron.konfig.field_history import history as history
from kauldron.konfig.set_events import SetEvent as SetEvent
from kauldron.konfig.set_events import set_history as set_history
from kauldron.konfig.checking import check as check
from kauldron.konfig.checking import Problem as Problem
from kauldron.konfig.diffing import diff as diff
from kauldron.konfig.diffing import ConfigDiff as ConfigDiff
from kauldron.konfig.flattening import flatten as flatten
from kauldron.konfig.fingerprinting import fingerprint as fingerprint
from kauldron.konfig.text_listing import to_text as to_text
from kauldron.konfig.html_page import to_html as to_html
from kauldron.konfig.dot_graph import to_dot as to_dot
from kauldron.konfig.python_source import to_python as to_python
from kauldron.konfig.freezing import frozen as frozen

# Editing
from kauldron.konfig.selecting import select as select
from kauldron.konfig.selecting import Selection as Selection
from kauldron.konfig.pathing import get_by_path as get_by_path
from kauldron.konfig.path_setting import set_by_path as set_by_path
from kauldron.konfig.tagging import set_tagged as set_tagged
from kauldron.konfig.signature_defaults import (
    materialize_defaults as materialize_defaults,
)
from kauldron.konfig.signature_defaults import trim_defaults as trim_defaults

# The command line
from kauldron.konfig.config_flags import DEFINE_config_file as DEFINE_config_file
from kauldron.konfig.overriding import apply_overrides as apply_overrides
from kauldron.konfig.module_configdict import (
    get_config_from_module as get_config_from_module,
)

# Setting up a project
from kauldron.konfig.aliases import register_aliases as register_aliases
from kauldron.konfig.default_values import (
    register_default_values as register_default_values,
)
from kauldron.konfig.import_context import (
    set_lazy_imported_modules as set_lazy_imported_modules,
)

# Names of the past
from kauldron.konfig.older_names import immutabledict_lib as immutabledict_lib

import kauldron.konfig.shipped_defaults  # noqa: F401 (registers what it holds)
