"""A tokenizer.json holds nothing that takes for ever, and those of real tokenizers are taken as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from hydractl.data.patterns import is_quick, unfit_part
from hydractl.errors import CheckpointError
from tests.data.test_damaged_preprocessing import opened
from tests.data.tokenizers_and_processors import WORDS, bert_tokenizer, text_spec
from tests.hostile import generated, within_limits

#: As tokenizers on the hub have them.
PUBLISHED = (
    r" {2,}", r" +▁", r"[\n\r\t]", r"^▁+$", r"\s{2,}|[\n\r\t]", r"\s+", r"\n", r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
    r"[0-9][0-9][0-9]", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{Script=Han}+",
    r"[!\"\#\$%\&'\(\)\*\+,\-\.:;=\?@\[\\\]\^_`\{\|\}\~]",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\s*[\r\n]+|\s+",
)  # fmt: skip
ENDLESS = (
    "(a+)+b", "(a|a)*b", "(a*)*c", "(?:a?){40}a{40}b", "a*a*b", "a+a+a+b", r"(a)\1", "(?<n>a)", r"\k<n>", r"\g<0>",
    "a{1,2}+", "a{9999}", "a?" * 30 + "a" * 30, "((a{100}){100}){100}", "(?x:a)", "a**", "a" * 3000, "[a", "(", "(?~a)",
    ".*.*x", r"\R+",
)  # fmt: skip
IDS = {word: at for at, word in enumerate([*WORDS, "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>", "▁a"])}
PIECES = [(word, -1.0) for word in IDS]
REAL: dict[str, dict[str, Any]] = {
    **{name: {"vocab": IDS} for name in ("BertTokenizer", "DistilBertTokenizer", "MPNetTokenizer")},
    # The second SigLIP has Gemma's.
    **{name: {"vocab": IDS, "merges": []} for name in ("RobertaTokenizer", "CLIPTokenizer", "GemmaTokenizer")},
    **{name: {"vocab": PIECES} for name in ("XLMRobertaTokenizer", "CamembertTokenizer", "T5Tokenizer")},
}


@pytest.mark.parametrize("name", REAL)
def test_real_tokenizers_are_taken(name: str) -> None:
    made = getattr(transformers, name)(**REAL[name])
    assert unfit_part(json.loads(made.backend_tokenizer.to_str())) is None


def test_patterns_are_told_apart() -> None:
    assert [pattern for pattern in PUBLISHED if not is_quick(pattern)] == []
    assert [pattern for pattern in ENDLESS if is_quick(pattern)] == []


ATOMS = st.sampled_from(("a", "b", "[ab]", r"\w", ".", "(?:a|b)", "|", "$", "(?=a)", "(?!b)"))
TIMES = st.sampled_from(("", "", "*", "+", "?", "{2,}", "{1,30}", "*?"))


@generated(st.lists(st.tuples(ATOMS, TIMES).map("".join), max_size=6).map("".join))
def test_whatever_is_taken_is_quick(pattern: str) -> None:
    if not is_quick(pattern):
        return
    tokenizer = Tokenizer(models.WordPiece(IDS, unk_token="[UNK]"))
    try:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.normalizer = normalizers.Replace(Regex(pattern), "x")
    except Exception:
        return  # what is no regular expression is refused by who compiles it
    for text in ("a" * 1000 + "c", "ab" * 1000, " " * 1000):
        tokenizer.encode(text)


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replaced(content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


def rounded(count: int) -> dict[str, Any]:
    start = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * count
    text = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]
    known = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": [*start, text[0]], "pair": [*start, *text], "special_tokens": known}


@pytest.mark.parametrize(
    ("part", "value", "finding"),
    [
        ("pre_tokenizer", split("(a+)+b"), 'pre_tokenizer.pattern "(a+)+b" may be searched for ever'),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [split("a"), split("a*a*b")]}, "tokenizers.1.pattern"),
        ("normalizer", {"type": "Sequence", "normalizers": [replaced("a" * 10)] * 9}, "normalizers.3 makes a text"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}, "normalizers.9 makes a text"),
        ("model", {"max_input_chars_per_word": 10**9}, "per_word is 1000000000, should be at most 1000"),
        ("post_processor", rounded(16), "the model has 16, should be more than the 16 tokens round a text"),
        ("post_processor", rounded(10**5), "the model has 16, should be more than the 100000 tokens"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "Cannot parse precompiled_charsmap"),
    ],
)  # fmt: skip
def test_what_takes_for_ever_is_refused_when_it_is_opened(
    part: str, value: dict[str, Any], finding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = bert_tokenizer(tmp_path, tokenizer_class="PreTrainedTokenizerFast") / "tokenizer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, part: {**content[part], **value} if part == "model" else value}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json or .* cannot be used") as error, within_limits():
        opened(tmp_path, text_spec())
    assert finding in str(error.value)
    assert capfd.readouterr().err == ""  # no panic of Rust's
