"""`python -m hydractl` is the command `hydractl`."""

from hydractl.cli.main import run

if __name__ == "__main__":
    run()
