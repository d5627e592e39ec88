"""Writes its part of tests/golden/tokenizer.txt: digests of the output of Hugging Face's BertTokenizer for every Unicode
scalar, random strings, and the files in shared data. tests/unit/test_text_golden.c and test_text_added.c make the same
digests with Cairn. Transformers 4 writes the lines of its tokenizer in Python, Transformers 5 those of the tokenizers
library.

    python3 -m venv v && v/bin/pip install 'transformers<5' xxhash && v/bin/python tests/golden/make_tokenizer_golden.py DATA
    python3 -m venv w && w/bin/pip install 'transformers==5.24' 'tokenizers==0.23.3' xxhash && w/bin/python … DATA

from the source root; DATA is the shared data. Versions must be those in src/text/unicode_tables.h. Takes about ten
minutes.

A line is: kind, what, options, digest (the first 64 bits of XXH3-128, in hexadecimal).
  words   one block of 4096 scalars; each c as four texts: c, a c b, A c, c c; digested: each text's words, a space after
          each, and a line end. Words are the tokens before WordPiece.
  random  texts of the generator below, digested as words are
  nasty   random texts from more tables
  added   texts with added tokens, digested as ids are (added_case)
  ids     one block of scalars as above; digested: each text's ids as int32, little-endian, and a -1
  file    every line of a file as a text, digested as ids are
Options: l lower case, a strip accents (A: do not; neither: unset), i ideographs not cut, s special pieces split, f the
tokenizers library, c its clean_text false, n never_split, w do_basic_tokenize false, - none.
"""
import bz2
import os
import re
import struct
import sys
import unicodedata

import transformers
import xxhash
from transformers import AddedToken, BertTokenizer

LIBRARY = transformers.__version__ >= "5"
VARIANTS = ["lf", "-f", "lAf", "afc"] if LIBRARY else ["l", "-", "lA", "a"]
RANDOM_VARIANTS = VARIANTS + (["lif", "lsf", "lfc"] if LIBRARY else ["li", "ls", "as"])
ADDED_VARIANTS = ["lf", "-f", "laf", "lsf", "fc"] if LIBRARY else ["l", "-", "ls", "ln", "-n", "w"]
RANDOM_TEXTS = 5000
NASTY_TEXTS = 250
ADDED_CASES, ADDED_TOGETHER = 100, 10
BLOCK = 4096
BLOCKS = [*range(0x33), 0xE0, 0xF0, 0x10F] if LIBRARY else range(0x110000 // BLOCK)

# The generator of random texts; the same tables are in test_text_golden.c.
RANGES = [(0, 128), (32, 96), (97, 26), (0xC0, 0x190), (0x300, 0x70), (0x370, 0x90), (0x400, 0x100), (0x590, 0x70),
          (0x900, 0x100), (0x1100, 0x100), (0x1E00, 0x200), (0x2000, 0x70), (0x3040, 0xC0), (0x4E00, 0x80), (0xAC00, 0x2BA4),
          (0xF900, 0x200), (0xFE00, 0x30), (0x11080, 0x60), (0x1D15E, 0x62), (0x2F800, 0x21E), (0, 0x110000)]
MORE_RANGES = RANGES + [(0xE80, 0x280), (0x13A0, 0x60), (0x1AB0, 0x50), (0x2C00, 0x80), (0x2E00, 0x80), (0xA640, 0x200),
                        (0xD7C0, 0x40), (0xDFF0, 0x30), (0xFB00, 0x50), (0xFF00, 0x100), (0x10400, 0x50), (0x1E900, 0x60),
                        (0x1F300, 0x400), (0xE0000, 0x200), (0xF8F0, 0x20)]
STRINGS = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "[unk]", "[UN\u212A]", "[M\0ASK]", "[SEP]\u0301", "[CLS", "]", " ",
           "\t", "\r\n", "\u2028", "\u0085", "\u00A0", "\u3000", "\u200B", "\uFEFF", "\uFFFD", "\u0130", "\u03A3", "<\u0338",
           "\u0344", "\u1100\u1161\u11A8"]
MORE_STRINGS = STRINGS + ["x" * 99, "y" * 100, "z" * 101, "e\u0301" * 60, "\u1EC7" * 100, "\U0001F469\u200D\U0001F467", "\U0001F1E9",
                          "\u0391\u03A3", "\u0391\u03A3.", "\u0131", "I\u0307", "\uFB03", "\uFF21", "\u0B95\u0BCD", "o\u0323\u0302",
                          "o\u0302\u0323", "\uAC00\u11A8", "\u302A\u0301", "\u1D16D\u1D165", "##ing", "can't", "\x0B", "\x1C",
                          "\u2029", "\x00"]
# Added tokens begin with one of these each, and contain some more; texts have them, tokens and case changed.
FIRST = ["<", "Ab", "#", "\u4E2D", "[E", "\u00C9"]
ATOMS = ["a", "b", "A", "B", "e", "e\u0301", "\u00E9", "\u4E2D", "\u6587", "\u0130", "\u00DF", "#", "@", "_", "-", ">", "1]", "\u0301",
         "\u200B", "\u0904", "\u093E", "\u00B2", "[SEP]", "[MASK]", "[CLS", "foo", "foo-bar", "Foo", "C++"]
SPACES = [" ", " ", "  ", "\t", "\u3000"]
NEVER_SPLIT = ["foo-bar", "c++", "Foo", "zz"]
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


def random_text(r, ranges=RANGES, strings=STRINGS):
    pools = [r.below(len(ranges) + 6) for _ in range(3)]
    text = ""
    for _ in range(1 + r.below(20)):
        pool = pools[r.below(3)]
        if pool >= len(ranges):
            text += strings[r.below(len(strings))]
        else:
            c = ranges[pool][0] + r.below(ranges[pool][1])
            text += "?" if 0xD800 <= c <= 0xDFFF else chr(c)
    return text


class Whole:
    """Takes WordPiece's place, so that tokens are words."""

    def tokenize(self, text):
        return [text]


def tokenizer(vocab, options):
    """Of a path, or of a list of lines."""
    lines = vocab if isinstance(vocab, list) else open(vocab, encoding="utf-8").read().split("\n")[:-1]
    said = {"do_lower_case": "l" in options, "strip_accents": True if "a" in options else False if "A" in options else None,
            "tokenize_chinese_chars": "i" not in options, "split_special_tokens": "s" in options}
    if LIBRARY:
        tok = BertTokenizer(vocab={line: i for i, line in enumerate(lines)}, **said)
        tok.backend_tokenizer.normalizer.clean_text = "c" not in options
        return tok
    with open("/tmp/vocab.txt", "w", encoding="utf-8", newline="\n") as f:
        f.write("\n".join(lines) + "\n")
    return BertTokenizer("/tmp/vocab.txt", **said, do_basic_tokenize="w" not in options,
                         never_split=NEVER_SPLIT if "n" in options else None)


def library_words(tok, text):
    """Tokens before WordPiece, and special pieces."""
    backend = tok.backend_tokenizer
    parts = [text] if backend.encode_special_tokens else re.split(r"(\[PAD\]|\[UNK\]|\[CLS\]|\[SEP\]|\[MASK\])", text)
    for i, part in enumerate(parts):
        if i % 2:
            yield part
        else:
            yield from (w for w, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(part)))


def words(tok, text):
    if LIBRARY:
        # Cairn writes a NUL as two bytes that are not UTF-8.
        return "".join(w + " " for w in library_words(tok, text)).encode().replace(b"\0", b"\xC0\x80") + b"\n"
    return "".join(w + " " for w in tok.tokenize(text)).encode() + b"\n"


def ids(tok, text):
    v = tok(text, add_special_tokens=False)["input_ids"] if LIBRARY else tok.convert_tokens_to_ids(tok.tokenize(text))
    return struct.pack(f"<{len(v) + 1}i", *v, -1)


def added_vocab():
    chars = []
    for c in "".join(FIRST + ATOMS + [a.lower() for a in FIRST + ATOMS]):
        if c not in chars:
            chars.append(c)
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "foo", "c++", *chars, *("##" + c for c in chars)]


def added_case(seed, options):
    """A tokenizer with up to five added tokens, and 40 texts with them."""
    r = Random(seed)
    tok, tokens = tokenizer(added_vocab(), options), []
    for first in FIRST:
        content = first + "".join(ATOMS[r.below(len(ATOMS))] for _ in range(r.below(3)))
        if r.below(4) == 0:
            content += SPACES[r.below(len(SPACES))] + ATOMS[r.below(5)]
        flags = [r.below(3) == 0 for _ in range(5)]
        if flags[2]:
            flags[3] = flags[4] = False
        if r.below(4):
            tokens.append(content)
            special, normalized, single_word, lstrip, rstrip = flags
            tok.add_tokens([AddedToken(content, special=special, normalized=normalized, single_word=single_word, lstrip=lstrip,
                                       rstrip=rstrip)], special_tokens=special)
    texts = []
    for _ in range(40):
        text = ""
        for _ in range(1 + r.below(8)):
            kind = r.below(10)
            text += tokens[r.below(len(tokens))] if kind < 4 and tokens else (
                SPACES[r.below(len(SPACES))] if kind < 6 else ATOMS[r.below(len(ATOMS))])
        texts.append(text)
    return tok, texts


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
    vocab = {VARIANTS[0]: os.path.join(data, "vocab/bert-base-uncased-vocab.txt"),
             VARIANTS[1]: os.path.join(data, "vocab/bert-base-cased-vocab.txt")}
    for o in VARIANTS:
        tok = tokenizer(vocab[VARIANTS[0]], o)
        tok.wordpiece_tokenizer = Whole()
        for block in BLOCKS:
            out.append(f"words {block:x} {o} {digest(words(tok, t) for t in block_texts(block))}")
    for o in RANDOM_VARIANTS:
        tok = tokenizer(vocab[VARIANTS[0]], o)
        tok.wordpiece_tokenizer = Whole()
        r = Random(20221121)
        out.append(f"random {RANDOM_TEXTS} {o} {digest(words(tok, random_text(r)) for _ in range(RANDOM_TEXTS))}")
        r = Random(20261128)
        texts = [random_text(r, MORE_RANGES, MORE_STRINGS) for _ in range(RANDOM_TEXTS)]
        for part in range(0, RANDOM_TEXTS, NASTY_TEXTS):
            some = texts[part:part + NASTY_TEXTS]
            out.append(f"nasty {part} {o} {digest(words(tok, t) for t in some)}")
    for o in ADDED_VARIANTS:
        for seed in range(1, ADDED_CASES, ADDED_TOGETHER):
            cases = [added_case(s, o) for s in range(seed, seed + ADDED_TOGETHER)]
            out.append(f"added {seed} {o} {digest(ids(tok, t) for tok, texts in cases for t in texts)}")
    names = sorted(os.path.join("glue", d, f) for d in os.listdir(data + "/glue")
                   for f in os.listdir(os.path.join(data, "glue", d)) if f.endswith(".tsv"))
    names.append("wikipedia/wikitext-2-valid.txt")
    for o in vocab:
        tok = tokenizer(vocab[o], o)
        for block in BLOCKS:
            out.append(f"ids {block:x} {o} {digest(ids(tok, t) for t in block_texts(block))}")
        for name in names:
            out.append(f"file {name} {o} {digest(ids(tok, t) for t in lines_of(data, name))}")
    path, mark = "tests/golden/tokenizer.txt", "# Transformers "
    parts = {part.split(".")[0]: part for part in open(path, encoding="utf-8").read().split(mark)[1:]}
    parts[transformers.__version__.split(".")[0]] = (
        f"{transformers.__version__}, Python {sys.version.split()[0]}, Unicode {unicodedata.unidata_version}\n" +
        "\n".join(out) + "\n")
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write("# Written by make_tokenizer_golden.py.\n" + "".join(mark + parts[version] for version in sorted(parts)))


if __name__ == "__main__":
    main()
