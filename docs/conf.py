"""The site: `make docs`."""

import logging
import os
import pathlib
import re
import sys

import kauldron

os.environ.setdefault("JAX_PLATFORMS", "cpu")
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "site"))

project = "kauldron"
copyright = "the kauldron authors"
release = version = kauldron.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_typehints = "signature"
add_module_names = False
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
napoleon_use_ivar = True

html_theme = "furo"
html_title = "kauldron"
html_static_path = ["site/static"]
html_css_files = ["style.css"]


def _as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are Markdown: code is in backticks or in fences."""
    text = re.sub(
        r"^( *)```(?:python)?\n(.*?)^ *```$",
        lambda m: f"{m[1]}.. code-block:: python\n\n" + re.sub("(?m)^", "    ", m[2]),
        "\n".join(lines),
        flags=re.MULTILINE | re.DOTALL,
    )
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", text)
    lines[:] = text.split("\n")


def _draw_pictures(app):
    """Draw the pictures again if the code that draws them is newer."""
    import pictures

    folder = HERE / "_pictures"
    drawn = [path.stat().st_mtime for path in folder.glob("*.svg")]
    if not drawn or min(drawn) < pathlib.Path(pictures.__file__).stat().st_mtime:
        logging.getLogger("kauldron").setLevel(logging.WARNING)
        pictures.draw_all(folder)


def setup(app):
    """Called by Sphinx."""
    import reference

    app.connect("builder-inited", _draw_pictures)
    app.add_directive("namespace", reference.Namespace)
    app.connect("autodoc-skip-member", reference.skip_member)
    app.connect("autodoc-process-signature", reference.process_signature)
    app.connect("autodoc-process-docstring", _as_restructured_text)
