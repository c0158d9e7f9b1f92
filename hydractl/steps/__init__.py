"""The steps of the pipeline, one file each: what a subcommand of `hydractl` runs and what Python calls."""
