"""What keys can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kauldron.inspect.spec_tree import json_spec_like, tree_html, tree_text
from kauldron.inspect.views import View, show

if TYPE_CHECKING:
    from kauldron.train import Trainer


def plot_context(trainer: Trainer) -> Any:
    """Show everything that keys can name after a train step, with its shape.

    Nothing is computed: shapes are enough.

    Args:
      trainer: The experiment.

    Returns:
      In a notebook nothing, it is displayed as a tree that folds. Elsewhere a view that
      prints as text; `view.save("context.html")` writes a page.
    """
    return show(view_context(trainer))


def view_context(trainer: Trainer) -> View:
    """What `plot_context` shows."""
    context = trainer.context_specs
    fields = {name: value for name, value in vars(context).items() if value is not None}
    tree = json_spec_like(fields)
    for name in ("grads", "updates"):
        if name in tree:
            tree[name] = "same structure as params"
    return View(html=tree_html(tree, "context"), text=tree_text(tree), title="Context")
