"""The shape language: parse a spec, match a shape, evaluate to sizes."""
