"""The command line: one thin file per subcommand that parses, calls the library and prints.

Nothing here imports torch, transformers, timm or datasets before a command really runs: `--help` stays instant.
"""
