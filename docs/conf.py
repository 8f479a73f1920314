"""The site: `make docs`."""

import kauldron

project = "kauldron"
copyright = "the kauldron authors"
release = version = kauldron.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "kauldron"
