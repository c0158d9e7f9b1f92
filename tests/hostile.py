"""What generated cases are made of, names above all, and what each may cost in time and memory."""

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

SECONDS = 10  # of the processor, so that a machine at other work makes no case fail
MEMORY = 2**30
HANGS = 300  # seconds by the clock: whoever waits for ever uses no processor
FRAGMENTS = (
    *("\n", "\r\n", "\n\n", "\t", "\x85", "\u2028", "\u2029", "\x00", "\x07", "\x0b", "\x1c", "\x7f", "\ufeff"),
    *("\ufffe", "\uffff"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1bc", "\x9b2J", "\u202e", "\u202a", "\u2066", "\u2069", "\u200f", "\ue000"),
    *("\udcff", "\ud83d", "\n---\nlicense: x\n---\n", "license: x", "'", '"', ": ", "- ", "!!python/object:x"),
    *("|", " | ", "`", "```", "``x`", "**", "*", "_", "__", "_x_", "a_b", "~", "~~", "#", "# ", "![x](y)", "[x](y)"),
    *("<", ">", "&", "&amp;", "</script>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "</td></tr>", "{{ 1 }}"),
    *("\\", "\\\\", "\\|", "\\input{/etc/hosts}", "\\end{tabular}", "$", "$$", "$\\frac{$", "\\$", "%", "^"),
    *("[red]", "[/]", "[/red]", "[link=file:///x]", "[", "]", ":smile:", "\N{GRINNING FACE}", "é", "文", "x", "1", " "),
    *("y" * 10_000, "👩\u200d🔬", "%s", "{0}", "=1+1", "@x", "&a", "*a", "1.", "---", "===", "{", "}", "{}"),
)  # fmt: skip

#: Names of one to three fragments.
NAMES = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join)

_RANGES = ((0, 0x20), (0x7F, 0xA0), (0x200E, 0x2010), (0x2028, 0x202F), (0x2066, 0x206A), (0xD800, 0xE000))
CONTROLS = frozenset(chr(code) for start, end in _RANGES for code in range(start, end)) | {*"\ufeff\ufffe\uffff"}


def controls(text: str, allowed: str = "\n") -> set[str]:
    """The characters of a text that control a terminal, turn the direction of writing or cannot be encoded."""
    return (CONTROLS & set(text)) - set(allowed)


@contextmanager
def within_limits() -> Iterator[None]:
    """Fails a generated case that takes more than SECONDS or MEMORY, or hangs; far beyond MEMORY there is none."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"was not done after {HANGS} s", pytrace=False)

    handler, (soft, hard) = signal.signal(signal.SIGALRM, fail), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 8 * MEMORY, hard))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    signal.alarm(HANGS)
    # Python hears no signal while a library's own code runs: where that takes the processor, the process ends.
    signal.setitimer(signal.ITIMER_PROF, 10 * SECONDS)
    started, before = time.process_time(), _memory("VmRSS")
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    took, grew = time.process_time() - started, _memory("VmHWM") - before
    assert took < SECONDS, f"took {took:.1f} s"
    assert grew < MEMORY, f"took {grew / 2**20:.0f} MiB"


def _memory(kind: str) -> int:
    """Bytes of this process, as Linux has them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))


def generated(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test one of generated cases, each within the limits."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def case(*args: Any, **kwargs: Any) -> None:
            with within_limits():
                test(*args, **kwargs)

        # The same cases each time; what fails is shown as it was found.
        some = settings(max_examples=25, derandomize=True, deadline=None, database=None, phases=(Phase.generate,))
        return some(given(*strategies)(case))

    return decorate
