"""The command line: flags made from the fields of the steps, streams, exit codes.

Nothing here imports torch, transformers, timm or datasets before a command really runs: `--help` stays instant.
"""
