"""From a config to real objects: `resolve`, and what would go wrong in it."""
