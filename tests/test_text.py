import pytest

from hydractl.errors import LONGEST, DataError
from hydractl.text import LONGEST_SENTENCE, abridged, first_sentence, one_line, printable, without_secrets, wrapped
from tests.hostile import FRAGMENTS, NAMES, controls, generated


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é 文 😀", "plain, é 文 😀"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J\x9b", r"\x1b[2J\x9b"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("caf\udce9", r"caf\udce9"),
        ("a\u00a0b 👩\u200d🔬", "a\u00a0b 👩\u200d🔬"),
    ],
)
def test_what_controls_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@generated(NAMES)
def test_nothing_that_controls_is_left(name: str) -> None:
    shortened = abridged(one_line(name), 9)
    for text in (printable(name), one_line(name), first_sentence(name), str(DataError(name)), shortened):
        assert not controls(text, allowed="")
        assert text.encode() or not name.strip()


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("It broke. You may try again. Or not.", "It broke."),
        ("See file.txt at https://x.org/a.b", "See file.txt at https://x.org/a.b"),
        ("Errors in loading:\n\tsize mismatch for x\n\tand y", "Errors in loading: size mismatch for x"),
        ("401 for https://me:pw@hub.org/x?Signature=abc&b=c now", "401 for https://***@hub.org/x?*** now"),
        ("token hf_abcdefGHI is invalid", "token hf_*** is invalid"),
        ("\n\n", ""),
    ],
)
def test_of_another_library_s_message_its_first_sentence(message: str, sentence: str) -> None:
    assert first_sentence(message) == sentence


def test_an_error_repeats_the_first_sentence_of_its_cause() -> None:
    error = DataError(f"file.csv: cannot be read ({'It broke. ' + 'Details. ' * 1000}): write it again")
    error.__cause__ = ValueError("It broke. " + "Details. " * 1000)
    assert str(error) == "file.csv: cannot be read (It broke.): write it again"


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_an_error_is_one_line_of_bounded_length(fragment: str) -> None:
    for cause in (None, ValueError(fragment * 200)):
        error = DataError(f"{fragment}: {fragment * 200}: correct it")
        error.__cause__ = cause
        assert len(str(error)) <= LONGEST
        assert str(error).endswith(": correct it")
    assert len(first_sentence(fragment * 500)) <= LONGEST_SENTENCE


def test_the_token_of_the_environment_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "unusual-token")
    assert without_secrets("denied to unusual-token") == "denied to ***"
    assert str(DataError("denied to unusual-token")) == "denied to ***"


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("short", ["short"]),
        ("a sentence that is long", ["a sentence", "that is long"]),
        ("  fact  one two three", ["  fact  one", "        two", "        three"]),
        ("tabs\tare\tfor\tprograms", ["tabs\tare\tfor\tprograms"]),
        ("AWordThatHasNoBlanksAtAll", ["AWordThatHasNoBlanksAtAll"]),
    ],
)
def test_a_long_line_goes_on_under_its_last_column(line: str, pieces: list[str]) -> None:
    assert wrapped(line, 12) == pieces
