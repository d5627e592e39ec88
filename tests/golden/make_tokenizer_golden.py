"""Writes tests/golden/tokenizer.txt: digests of the output of Hugging Face's Python BertTokenizer for every Unicode scalar,
random strings, and the files in shared data. tests/unit/test_text_golden.c makes the same digests with Cairn.

    python3 -m venv v && v/bin/pip install 'transformers<5' xxhash && v/bin/python tests/golden/make_tokenizer_golden.py DATA

from the source root; DATA is the shared data. Python's Unicode version must be the one in src/text/unicode_tables.h. Takes
about ten minutes.

A line is: kind, what, options, digest (the first 64 bits of XXH3-128, in hexadecimal).
  words   one block of 4096 scalars; each c as four texts: c, a c b, A c, c c; digested: each text's words, a space after
          each, and a line end. Words are the tokens before WordPiece.
  random  texts of the generator below, digested as words are
  ids     one block of scalars as above; digested: each text's ids as int32, little-endian, and a -1
  file    every line of a file as a text, digested as ids are
Options: l lower case, a strip accents (A: do not; neither: unset), i ideographs not cut, s special pieces split, - none.
"""
import bz2
import os
import struct
import sys
import unicodedata

import transformers
import xxhash
from transformers import BertTokenizer

VARIANTS = ["l", "-", "lA", "a"]
RANDOM_VARIANTS = ["l", "-", "lA", "a", "li", "ls", "as"]
RANDOM_TEXTS = 5000
BLOCK = 4096

# The generator of random texts; the same tables are in test_text_golden.c.
RANGES = [(0, 128), (32, 96), (97, 26), (0xC0, 0x190), (0x300, 0x70), (0x370, 0x90), (0x400, 0x100), (0x590, 0x70),
          (0x900, 0x100), (0x1100, 0x100), (0x1E00, 0x200), (0x2000, 0x70), (0x3040, 0xC0), (0x4E00, 0x80), (0xAC00, 0x2BA4),
          (0xF900, 0x200), (0xFE00, 0x30), (0x11080, 0x60), (0x1D15E, 0x62), (0x2F800, 0x21E), (0, 0x110000)]
STRINGS = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "[unk]", "[UN\u212A]", "[M\0ASK]", "[SEP]\u0301", "[CLS", "]", " ",
           "\t", "\r\n", "\u2028", "\u0085", "\u00A0", "\u3000", "\u200B", "\uFEFF", "\uFFFD", "\u0130", "\u03A3", "<\u0338",
           "\u0344", "\u1100\u1161\u11A8"]
MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        s = self.state
        s ^= s >> 12
        s ^= (s << 25) & MASK
        s ^= s >> 27
        self.state = s
        return ((s * 0x2545F4914F6CDD1D & MASK) >> 33) % n


def random_text(r):
    pools = [r.below(len(RANGES) + 6) for _ in range(3)]
    text = ""
    for _ in range(1 + r.below(20)):
        pool = pools[r.below(3)]
        if pool >= len(RANGES):
            text += STRINGS[r.below(len(STRINGS))]
        else:
            c = RANGES[pool][0] + r.below(RANGES[pool][1])
            text += "?" if 0xD800 <= c <= 0xDFFF else chr(c)
    return text


class Whole:
    """Takes WordPiece's place, so that tokens are words."""

    def tokenize(self, text):
        return [text]


def tokenizer(vocab, options):
    return BertTokenizer(vocab, do_lower_case="l" in options,
                         strip_accents=True if "a" in options else False if "A" in options else None,
                         tokenize_chinese_chars="i" not in options, split_special_tokens="s" in options)


def words(tok, text):
    return "".join(w + " " for w in tok.tokenize(text)).encode() + b"\n"


def ids(tok, text):
    v = tok.convert_tokens_to_ids(tok.tokenize(text))
    return struct.pack(f"<{len(v) + 1}i", *v, -1)


def digest(parts):
    h = xxhash.xxh3_128()
    for p in parts:
        h.update(p)
    return h.hexdigest()[:16]


def block_texts(block):
    for c in range(block * BLOCK, (block + 1) * BLOCK):
        if not 0xD800 <= c <= 0xDFFF:
            c = chr(c)
            yield from (c, "a" + c + "b", "A" + c, c + c)


def lines_of(data, name):
    path = os.path.join(data, name)
    raw = bz2.open(path).read() if name.endswith(".bz2") else open(path, "rb").read()
    return raw.decode("utf-8").split("\n")


def main():
    data, out = sys.argv[1], []
    vocab = {"l": os.path.join(data, "vocab/bert-base-uncased-vocab.txt"),
             "-": os.path.join(data, "vocab/bert-base-cased-vocab.txt")}
    for o in VARIANTS:
        tok = tokenizer(vocab["l"], o)
        tok.wordpiece_tokenizer = Whole()
        for block in range(0x110000 // BLOCK):
            out.append(f"words {block:x} {o} {digest(words(tok, t) for t in block_texts(block))}")
    for o in RANDOM_VARIANTS:
        tok = tokenizer(vocab["l"], o)
        tok.wordpiece_tokenizer = Whole()
        r = Random(20221121)
        out.append(f"random {RANDOM_TEXTS} {o} {digest(words(tok, random_text(r)) for _ in range(RANDOM_TEXTS))}")
    names = sorted(os.path.join("glue", d, f) for d in os.listdir(data + "/glue")
                   for f in os.listdir(os.path.join(data, "glue", d)) if f.endswith(".tsv"))
    names.append("wikipedia/wikitext-2-valid.txt")
    for o in vocab:
        tok = tokenizer(vocab[o], o)
        for block in range(0x110000 // BLOCK):
            out.append(f"ids {block:x} {o} {digest(ids(tok, t) for t in block_texts(block))}")
        for name in names:
            out.append(f"file {name} {o} {digest(ids(tok, t) for t in lines_of(data, name))}")
    with open("tests/golden/tokenizer.txt", "w", encoding="utf-8", newline="\n") as f:
        f.write(f"# Written by make_tokenizer_golden.py: Transformers {transformers.__version__}, "
                f"Python {sys.version.split()[0]}, Unicode {unicodedata.unidata_version}\n")
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
