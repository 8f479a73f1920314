"""Flax modules that carry their parameters: `y = model(x)`, `model.encoder(x)`.

from kauldron import klinen as knn
"""

from kauldron.klinen import compat as compat

# In the order in which a reader meets them.
# isort: off
from kauldron.klinen.module import Module as Module
from kauldron.klinen.layers import convert as convert
from kauldron.klinen.layers import Dense as Dense
from kauldron.klinen.layers import Dropout as Dropout
from kauldron.klinen.layers import Sequential as Sequential
from kauldron.klinen.intermediate_fields import Intermediate as Intermediate
from kauldron.klinen.intermediates import Intermediates as Intermediates
from kauldron.lazy_namespace import suggest_names as _suggest_names

# As an annotation it reads better: `def step(model: knn.Model, x): ...`.
Model = Module

_suggest_names(__name__)
