"""Which dims are known, and who may ask for them."""
