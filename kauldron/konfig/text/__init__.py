"""Configs, and objects, as text: `repr`, JSON, listings, HTML, Python source."""
