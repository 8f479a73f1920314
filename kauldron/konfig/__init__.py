"""Configs as data: calls that are written now, edited, saved, and executed later."""

# In the order of a config's life, not of the alphabet.
# isort: off

# Writing
from kauldron.konfig.tree.configdict import ConfigDict as ConfigDict
from kauldron.konfig.authoring.imports import imports as imports
from kauldron.konfig.authoring.imports import mock_modules as mock_modules
from kauldron.konfig.authoring.ref_functions import ref_fn as ref_fn
from kauldron.konfig.authoring.ref_functions import ref_copy as ref_copy
from kauldron.konfig.tree.placeholders import placeholder as placeholder
from kauldron.konfig.tree.placeholders import required as required
from kauldron.konfig.authoring.ref_functions import WithRef as WithRef
from kauldron.konfig.authoring.ref_functions import ConfigDictLike as ConfigDictLike

# Building
from kauldron.konfig.resolution.resolve import resolve as resolve
from kauldron.konfig.resolution.allow import COMMON_PACKAGES as COMMON_PACKAGES
from kauldron.konfig.resolution.allow import restricted as restricted
from kauldron.konfig.errors import CycleError as CycleError
from kauldron.konfig.errors import RequiredValueError as RequiredValueError
from kauldron.konfig.errors import NotAllowedError as NotAllowedError

# Back from real objects
from kauldron.konfig.text.export import export as export
from kauldron.konfig.text.export import export_qualname as export_qualname

# Looking
from kauldron.konfig.tree.history import history as history
from kauldron.konfig.tree.history import SetEvent as SetEvent
from kauldron.konfig.tree.history import set_history as set_history
from kauldron.konfig.resolution.problems import check as check
from kauldron.konfig.resolution.problems import Problem as Problem
from kauldron.konfig.query.diff import diff as diff
from kauldron.konfig.query.diff import ConfigDiff as ConfigDiff
from kauldron.konfig.query.flatten import flatten as flatten
from kauldron.konfig.query.flatten import fingerprint as fingerprint
from kauldron.konfig.text.listing import to_text as to_text
from kauldron.konfig.text.html_page import to_html as to_html
from kauldron.konfig.text.python_source import to_python as to_python

# Editing
from kauldron.konfig.query.select import select as select
from kauldron.konfig.query.select import Selection as Selection
from kauldron.konfig.tree.paths import get_by_path as get_by_path
from kauldron.konfig.tree.paths import set_by_path as set_by_path
from kauldron.konfig.query.materialize import (
    materialize_defaults as materialize_defaults,
)

# The command line
from kauldron.konfig.overrides.flags import DEFINE_config_file as DEFINE_config_file
from kauldron.konfig.overrides.overrides import apply_overrides as apply_overrides
from kauldron.konfig.overrides.config_files import (
    get_config_from_module as get_config_from_module,
)

# Setting up a project
from kauldron.konfig.symbols import register_aliases as register_aliases
from kauldron.konfig.authoring.default_values import (
    register_default_values as register_default_values,
)
from kauldron.konfig.authoring.imports import (
    set_lazy_imported_modules as set_lazy_imported_modules,
)

# Older names
from kauldron.konfig import compat as compat

from kauldron.lazy_namespace import suggest_names as _suggest_names

_suggest_names(__name__)
