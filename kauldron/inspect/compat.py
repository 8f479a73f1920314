"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.inspect",
    {
        "graphviz_utils": "charts",
        "inspect": "kauldron.inspect",
        "plotting": "charts batches",
        "profile_utils": "kauldron.train.run.profiler",
        "trainer_visu": "trainer_page",
    },
)
