"""Writes src/text/unicode_tables.h and unicode_tables.c from Python's unicodedata and Hugging Face's tokenizers library.

Cairn's tokenizer must give the ids of Hugging Face's tokenizers on every system, also in future. So the facts about
characters are frozen here, with the versions that they come from: all of Python's, and where the library's differ. The
library's tables are several of different Unicode versions, so each fact is asked of it for every scalar.

    python3.11 -m venv v && v/bin/pip install tokenizers==0.23.3 && v/bin/python tests/golden/make_unicode_tables.py

from the source root; takes two minutes. Another version of either may change the tokenizer's results.
"""
import platform
import sys
import unicodedata as u

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

END = 0x110000
SCALARS = [c for c in range(END) if not 0xD800 <= c <= 0xDFFF]

# One bit each, in this order: name, meaning.
BITS = [
    ("UC_DROP", "removed before anything else: categories Cc Cf Co but \\t \\n \\r, and U+FFFD"),
    ("UC_SPACE", "ends a word: \\t \\n \\r, category Zs, and what Python's str.split() splits at"),
    ("UC_PUNCT", "a word of its own: ASCII 33-47 58-64 91-96 123-126, and every P category"),
    ("UC_CJK", "a word of its own: the CJK ideograph ranges that BERT names"),
    ("UC_MARK", "category Mn: dropped where accents are stripped"),
    ("UC_LOWER", "Python's str.lower() changes it"),
    ("UC_DECOMPOSES", "NFD changes it"),
    ("UC_NFC", "NFC may change it or the scalar before it, or its place among marks; a word without this bit is in NFC"),
    ("UC_UNASSIGNED", "category Cn: removed, too, by Python's tokenizer"),
]
BIT = {name: 1 << i for i, (name, _) in enumerate(BITS)}
DROPPED = BIT["UC_DROP"] | BIT["UC_UNASSIGNED"]

CJK = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
       (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]


def compositions():
    """(first, second) -> composed, for every pair that NFC joins; Hangul is done by arithmetic."""
    pairs = {}
    for c in SCALARS:
        text = u.decomposition(chr(c))
        if text and not text.startswith("<"):
            parts = [int(x, 16) for x in text.split()]
            if len(parts) == 2 and u.normalize("NFC", chr(c)) == chr(c):
                assert u.combining(chr(parts[0])) == 0
                assert u.normalize("NFC", chr(parts[0]) + chr(parts[1])) == chr(c)
                pairs[tuple(parts)] = c
    return pairs


PAIRS = compositions()
JOINS_LEFT = {second for _, second in PAIRS} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))


def bits(c):
    ch, cat = chr(c), u.category(chr(c))
    space = ch in "\t\n\r" or cat == "Zs"
    drop = (cat[0] == "C" and not space) or c == 0xFFFD
    space = space or (ch.isspace() and not drop)
    ascii_punct = 33 <= c <= 47 or 58 <= c <= 64 or 91 <= c <= 96 or 123 <= c <= 126
    facts = {
        "UC_DROP": drop and cat != "Cn",
        "UC_SPACE": space,
        "UC_PUNCT": ascii_punct or cat[0] == "P",
        "UC_CJK": any(a <= c <= b for a, b in CJK),
        "UC_MARK": cat == "Mn",
        "UC_LOWER": ch.lower() != ch,
        "UC_DECOMPOSES": u.normalize("NFD", ch) != ch,
        "UC_NFC": u.normalize("NFC", ch) != ch or c in JOINS_LEFT or u.combining(ch) != 0,
        "UC_UNASSIGNED": cat == "Cn",
    }
    return sum(BIT[name] for name, true in facts.items() if true)


def check_assumptions():
    """The assumptions of src/text/normalize.c."""
    for c in SCALARS:
        low = chr(c).lower()
        # Text is lower-cased character by character, then composed, then lower-cased as a whole: the last changes nothing.
        composed = u.normalize("NFC", low)
        assert composed.lower() == composed, hex(c)
        # No later step turns a character into white space or a dropped character.
        for d in u.normalize("NFD", low) + composed + low:
            if not bits(c) & (DROPPED | BIT["UC_SPACE"]):
                assert not bits(ord(d)) & (DROPPED | BIT["UC_SPACE"]), hex(c)
        assert len(u.normalize("NFD", chr(c))) <= 4 and len(low) <= 4


def bert_normalizer(**options):
    none = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**none, **options}).normalize_str


class Library:
    """Facts of the tokenizers library."""

    clean, lower = bert_normalizer(clean_text=True), bert_normalizer(lowercase=True)
    strip, chinese = bert_normalizer(strip_accents=True), bert_normalizer(handle_chinese_chars=True)
    both, nfd = bert_normalizer(strip_accents=True, lowercase=True), normalizers.NFD().normalize_str
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str

    def __init__(self):
        self.single = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
        self.single.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self.single.add_tokens([AddedToken("X", single_word=True, normalized=False)])
        # A scalar of each combining class, to find the class of others from their order.
        last = "\u0345"
        self.of_class = {240: last}
        for c in SCALARS:
            k = u.combining(chr(c))
            if k and k not in self.of_class and self.nfd(last + chr(c)) == chr(c) + last:
                self.of_class[k] = chr(c)

    def combining(self, c):
        """The canonical combining class of a scalar that does not decompose."""
        ch, marks = chr(c), self.of_class
        first, last = marks[min(marks)], marks[max(marks)]
        if self.nfd(ch + first) == ch + first and self.nfd(last + ch) == last + ch and ch not in (first, last):
            return 0
        here = [k for k, mark in marks.items()
                if mark == ch or (self.nfd(mark + ch) == mark + ch and self.nfd(ch + mark) == ch + mark)]
        assert len(here) == 1, hex(c)
        return here[0]

    def record(self, c):
        """As (bits(c), combining class), with Python's facts where the library's walk does not ask."""
        ch, said = chr(c), bits(c)
        cleaned, apart = self.clean(ch), self.nfd(ch)
        decomposes = apart != ch
        found = {
            "UC_DROP": cleaned == "",
            "UC_SPACE": cleaned == " ",
            "UC_PUNCT": [w for w, _ in self.words("a" + ch + "b")] == ["a", ch, "b"],
            "UC_CJK": self.chinese(ch) != ch,
            "UC_LOWER": self.lower(ch) != ch,
            "UC_DECOMPOSES": decomposes,
        }
        if not decomposes:
            found["UC_MARK"] = self.strip(ch) == ""
        for name, true in found.items():
            said = said | BIT[name] if true else said & ~BIT[name]
        # What src/text assumes: its own decompositions and lower case where there are any; no order of the two steps.
        assert not decomposes or apart == u.normalize("NFD", ch), hex(c)
        assert self.lower(ch) in (ch, ch.lower()) or ch.lower() == ch, hex(c)
        assert self.strip(self.lower(ch)) == self.both(ch), hex(c)
        return said, u.combining(ch) if decomposes else self.combining(c)

    def is_word(self, c):
        """\\w of the library's regular expressions."""
        return self.single.encode("X" + chr(c)).tokens[:1] != ["X"]


def differences(library):
    """[first, last, record]: runs of scalars whose record in the library is another than Python's."""
    runs = []
    for c in SCALARS:
        record = library.record(c)
        if record == (bits(c), u.combining(chr(c))):
            continue
        if runs and runs[-1][1:] == [c - 1, record]:
            runs[-1][1] = c
        else:
            runs.append([c, c, record])
    return runs


def ranges_of(true):
    """[first, last] of the scalars beyond ASCII for which true(c)."""
    ranges = []
    for c in SCALARS:
        if c < 0x80 or not true(c):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def rows(values, width=112):
    out, line = [], "   "
    for v in values:
        s = f" {v},"
        if len(line) + len(s) > width:
            out.append(line)
            line = "   "
        line += s
    out.append(line)
    return "\n".join(out)


def find_runs(others):
    """Runs of scalars with one record, or with two that take turns: [(start, kind)], and the kinds, also of `others`."""
    record = [(BIT["UC_DROP"], 0) if 0xD800 <= c <= 0xDFFF else (bits(c), u.combining(chr(c))) for c in range(END)]
    runs, kinds, start = [], {}, 0
    while start < END:
        same = start + 1
        while same < END and record[same] == record[start]:
            same += 1
        turns = min(start + 2, END)
        while turns < END and record[turns] == record[turns - 2]:
            turns += 1
        end = turns if turns > max(same, start + 2) else same
        kind = record[start] + record[start + 1 if end == turns and end > same else start]
        runs.append((start, kinds.setdefault(kind, len(kinds))))
        start = end
    for _, _, other in others:
        kinds.setdefault(other + other, len(kinds))
    assert len(kinds) <= 128
    for i, (start, kind) in enumerate(runs):
        for c in range(start, runs[i + 1][0] if i + 1 < len(runs) else END):
            assert list(kinds)[kind][(c - start) % 2 * 2:][:2] == record[c]
    return runs, list(kinds)


def lower_ranges(library):
    """[first, last, step, delta]: first, first + step … last become delta more."""
    ranges = []
    for c in SCALARS:
        low = chr(c).lower()
        if low == chr(c):
            low = library.lower(low)
        if low == chr(c):
            continue
        if len(low) > 1:
            assert c == 0x130 and low == "i\u0307"
            continue
        delta = ord(low) - c
        if ranges and ranges[-1][3] == delta and c - ranges[-1][1] <= 2 and ranges[-1][2] in (0, c - ranges[-1][1]):
            ranges[-1][2] = c - ranges[-1][1]
            ranges[-1][1] = c
        else:
            ranges.append([c, c, 0, delta])
    return [[first, last, step or 1, delta] for first, last, step, delta in ranges]


def decompositions():
    """Pairs that compose, ascending by (first, second), then those that only decompose; scalars with one in place."""
    apart, single = [], []
    for c in SCALARS:
        text = u.decomposition(chr(c))
        if not text or text.startswith("<"):
            continue
        parts = [int(x, 16) for x in text.split()]
        if len(parts) == 1:
            single.append((c, parts[0]))
        elif tuple(parts) not in PAIRS:
            apart.append((*parts, c))
        assert len(parts) == 1 or u.normalize("NFD", chr(parts[1])) == chr(parts[1])
    return sorted((*pair, c) for pair, c in PAIRS.items()) + apart, single


def main():
    check_assumptions()
    library = Library()
    others = differences(library)
    runs, kinds = find_runs(others)
    dense = (max(start for start, _ in runs if start < 0xE0000) | 0xFF) + 1
    assert others[-1][1] < dense
    ranges, words = lower_ranges(library), ranges_of(lambda c: chr(c).isalnum())
    other_words = ranges_of(lambda c: chr(c).isalnum() != library.is_word(c))
    pairs, single = decompositions()
    by_composed = sorted(range(len(pairs)), key=lambda i: pairs[i][2])
    version = f"Python {platform.python_version()}, Unicode {u.unidata_version}, tokenizers {tokenizers.__version__}"
    note = f"""/* Written by tests/golden/make_unicode_tables.py from {version}.
   Do not edit: the ids of every text depend on it. */"""
    enum = "\n".join(f"    {name} = {BIT[name]}, /* {meaning} */" for name, meaning in BITS)
    header = f"""{note}
#ifndef CAIRN_TEXT_UNICODE_TABLES_H
#define CAIRN_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* clang-format off */
enum {{
{enum}
}};

typedef struct {{
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
}} UnicodeRecord;

/* A run of scalars, start << 8 | kind, ascending. Its first scalar, the third, … have the record unicode_kinds[kind][0],
   the others [1]. Few runs begin at UNICODE_DENSE or above. */
#define UNICODE_KINDS {len(kinds)}
#define UNICODE_RUNS  {len(runs)}
#define UNICODE_DENSE {dense:#x}
extern const UnicodeRecord unicode_kinds[UNICODE_KINDS][2];
extern const uint32_t unicode_runs[UNICODE_RUNS];

/* The scalars, all below UNICODE_DENSE, whose record in the tokenizers library is unicode_kinds[kind][0], ascending. */
typedef struct {{
    uint32_t first, last;
    uint8_t kind;
}} UnicodeDifference;
#define UNICODE_DIFFERENCES {len(others)}
extern const UnicodeDifference unicode_differences[UNICODE_DIFFERENCES];

/* Bits of every byte: those of the ASCII character, else 0. */
extern const uint16_t unicode_ascii[256];

/* Lower case of one character, if UC_LOWER is in its record: first, first + step … last become delta more. Only U+0130
   becomes two, i and U+0307, and is not here. */
typedef struct {{
    uint32_t first, last, step;
    int32_t delta;
}} UnicodeLower;
#define UNICODE_LOWER {len(ranges)}
extern const UnicodeLower unicode_lower[UNICODE_LOWER]; /* ascending */

/* Canonical decompositions by one step, without Hangul. A `first` may decompose again, a `second` does not. The first
   UNICODE_COMPOSED pairs compose, too, and are ascending by (first, second). */
typedef struct {{
    uint32_t first, second, composed;
}} UnicodePair;
#define UNICODE_PAIRS    {len(pairs)}
#define UNICODE_COMPOSED {len(PAIRS)}
extern const UnicodePair unicode_pairs[UNICODE_PAIRS];
extern const uint16_t unicode_by_composed[UNICODE_PAIRS]; /* indices of the pairs, ascending by composed */

/* Scalars with a decomposition to one other: {{from, to}}, ascending. */
#define UNICODE_SINGLE {len(single)}
extern const uint32_t unicode_single[UNICODE_SINGLE][2];

/* Beyond ASCII, what \\w of Python's re matches: {{first, last}}, ascending. */
#define UNICODE_WORDS {len(words)}
extern const uint32_t unicode_words[UNICODE_WORDS][2];

/* Beyond ASCII, where the tokenizers library's \\w says the opposite: {{first, last}}, ascending. */
#define UNICODE_OTHER_WORDS {len(other_words)}
extern const uint32_t unicode_other_words[UNICODE_OTHER_WORDS][2];
/* clang-format on */

#endif
"""
    ascii_bits = [bits(c) for c in range(128)] + [0] * 128
    source = f"""{note}
#include "text/unicode_tables.h"

/* clang-format off */
const UnicodeRecord unicode_kinds[UNICODE_KINDS][2] = {{
{rows("{{%d, %d}, {%d, %d}}" % kind for kind in kinds)}
}};

const uint32_t unicode_runs[UNICODE_RUNS] = {{
{rows(hex(start << 8 | kind) for start, kind in runs)}
}};

const UnicodeDifference unicode_differences[UNICODE_DIFFERENCES] = {{
{rows("{%#x, %#x, %d}" % (a, b, list(kinds).index(r + r)) for a, b, r in others)}
}};

const uint16_t unicode_ascii[256] = {{
{rows(ascii_bits)}
}};

const UnicodeLower unicode_lower[UNICODE_LOWER] = {{
{rows("{%#x, %#x, %d, %d}" % tuple(r) for r in ranges)}
}};

const UnicodePair unicode_pairs[UNICODE_PAIRS] = {{
{rows("{%#x, %#x, %#x}" % p for p in pairs)}
}};

const uint16_t unicode_by_composed[UNICODE_PAIRS] = {{
{rows(by_composed)}
}};

const uint32_t unicode_single[UNICODE_SINGLE][2] = {{
{rows("{%#x, %#x}" % s for s in single)}
}};

const uint32_t unicode_words[UNICODE_WORDS][2] = {{
{rows("{%#x, %#x}" % tuple(r) for r in words)}
}};

const uint32_t unicode_other_words[UNICODE_OTHER_WORDS][2] = {{
{rows("{%#x, %#x}" % tuple(r) for r in other_words)}
}};
/* clang-format on */
"""
    for name, text in (("h", header), ("c", source)):
        with open(f"src/text/unicode_tables.{name}", "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
    print(f"{version}: {len(runs)} runs of {len(kinds)} kinds, {len(pairs)} pairs", file=sys.stderr)


if __name__ == "__main__":
    main()
