"""Compiled annotations: one class per kind, and the compiler that picks it."""
