"""BERT's tokenizer by the library `tokenizers` alone: the same tensors as by `transformers`, seconds earlier.

What is not known here, to the last setting, is left to `transformers`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from hydractl.data.reading import Text

NO_LIMIT = int(1e30)  # transformers' number for it
CLASSES = ("BertTokenizer", "BertTokenizerFast")
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
#: Settings that decide tokens, and settings that change none. Any other that is not empty is unknown.
USED = frozenset({"do_lower_case", "strip_accents", "tokenize_chinese_chars", "model_max_length", *SPECIAL})
DESCRIPTIVE = frozenset(
    {"name_or_path", "tokenizer_class", "backend", "is_local", "local_files_only", "clean_up_tokenization_spaces",
     "special_tokens_map_file", "tokenizer_file", "do_basic_tokenize"}
)  # fmt: skip


class PlainTexts:
    """A tokenizer with what `TextPreprocessor` uses of one of `transformers`."""

    is_fast = True

    def __init__(self, tokenizer: Tokenizer, pad_token: str, model_max_length: int) -> None:
        self._tokenizer, self.pad_token, self.model_max_length = tokenizer, pad_token, model_max_length
        self.get_vocab, self.num_special_tokens_to_add = tokenizer.get_vocab, tokenizer.num_special_tokens_to_add

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def __call__(
        self,
        texts: Sequence[Text],
        padding: bool | str,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
    ) -> Encoded:
        """Returns the tokens of texts or pairs of texts: as tensors `[B,T]` padded to the longest, or as they are."""
        if truncation and max_length is not None:
            self._tokenizer.enable_truncation(max_length)
        else:
            self._tokenizer.no_truncation()
        if padding:
            number = self._tokenizer.token_to_id(self.pad_token)
            self._tokenizer.enable_padding(pad_id=number, pad_token=self.pad_token)
        else:
            self._tokenizer.no_padding()
        return Encoded(self._tokenizer.encode_batch(list(texts)), as_tensors=return_tensors is not None)


class Encoded(dict[str, Tensor]):
    """Tokens by the names of a network's inputs, and `encodings` as the library `tokenizers` has them."""

    def __init__(self, encodings: list[Encoding], as_tensors: bool) -> None:
        self.encodings = encodings
        fields = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}
        names = fields.items() if as_tensors else ()
        super().__init__({name: torch.tensor([getattr(one, field) for one in encodings]) for name, field in names})


def plain_texts(files: Mapping[str, Any]) -> PlainTexts | None:
    """Returns the tokenizer of a checkpoint's files, or None where only `transformers` knows how."""
    settings, content = files.get("tokenizer_config.json"), files.get("tokenizer.json")
    if not isinstance(settings, dict) or not isinstance(content, dict) or "added_tokens.json" in files:
        return None
    special = {name: settings.get(name, token) for name, token in SPECIAL.items()}
    if settings.get("tokenizer_class") not in CLASSES or not all(isinstance(one, str) for one in special.values()):
        return None
    others = {name: value for name, value in settings.items() if name not in DESCRIPTIVE | USED and value}
    given = [*others.pop("added_tokens_decoder", {}).values(), *files.get("special_tokens_map.json", {}).values()]
    if others or not all(_is_plain(token, special.values()) for token in given):
        return None
    if not _is_built_from_settings(content, settings, special):
        return None
    from tokenizers import Tokenizer

    longest = settings.get("model_max_length", NO_LIMIT)
    return PlainTexts(Tokenizer.from_str(json.dumps(content)), special["pad_token"], longest)


def _is_plain(token: Any, special: Collection[str]) -> bool:
    """Returns whether a token is one of the special ones, found in a text as it is."""
    if not isinstance(token, dict):
        return token in special
    flags = [name for name in ("lstrip", "rstrip", "normalized", "single_word") if token.get(name)]
    return token.get("content") in special and not flags


def _is_built_from_settings(
    content: Mapping[str, Any], settings: Mapping[str, Any], special: Mapping[str, str]
) -> bool:
    """Returns whether transformers, which builds BERT's tokenizer anew, builds what tokenizer.json holds."""
    rules = dict(content.get("model") or {})
    vocabulary = rules.pop("vocab", None)
    if not isinstance(vocabulary, dict) or not vocabulary.keys() >= set(special.values()):
        return False
    first, last = special["cls_token"], special["sep_token"]
    single = [_special(first, 0), _text("A", 0), _special(last, 0)]
    ends = {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (first, last)}
    parts = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, _text("B", 1), _special(last, 1)],
            "special_tokens": ends,
        },
    }
    words = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    added = content.get("added_tokens") or []
    sides = [(content.get(name) or {}).get("direction", "Right") for name in ("padding", "truncation")]
    return (
        all(content.get(name) == part for name, part in parts.items())
        and rules == {**words, "unk_token": special["unk_token"]}
        and {token.get("content"): token.get("id") for token in added} == {t: vocabulary[t] for t in special.values()}
        and all(token.get("special") and _is_plain(token, special.values()) for token in added)
        and set(sides) == {"Right"}
    )


def _special(token: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": segment}}


def _text(which: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": which, "type_id": segment}}
