"""Configs that only the command line can load are not collected for doctests."""

collect_ignore = ["tiny_vit_advanced.py"]  # names a launcher that is not installed
