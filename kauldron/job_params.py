"""Names of the parameters that describe a job. Imports nothing."""

# What launchers take, and what standalone evaluations carry for them.
JOB_PARAMS: tuple[str, ...] = (
    "target",
    "platform",
    "requirements",
    "executor",
    "args",
    "env_vars",
    "files",
    "debug",
    "add_jax_flags",
    "interpreter_info",
    "python",
    "cwd",
    "after",
    # Kept for older configs; they have no effect.
    "priority",
    "cell",
    "citc_source",
    "use_interpreter",
    "constraints",
    "bazel_args",
)
