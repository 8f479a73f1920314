"""Checked functions and dataclasses: what happens on each call."""
