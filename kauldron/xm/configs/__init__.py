"""Experiments to start from: `--xp=kd_base`, which is the default, and `--xp=single`."""
