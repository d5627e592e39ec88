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
    ("UC_WORD", "\\w of Python's re: letters, digits, other numbers, _; of the library with marks, but only decimal numbers"),
    ("UC_WHITE", "white space: str.isspace(), where str.split() splits; of the library White_Space"),
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
        "UC_WORD": ch.isalnum() or ch == "_",
        "UC_WHITE": ch.isspace(),
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
            "UC_WORD": self.is_word(c) if c >= 0x80 else ch.isalnum() or ch == "_",
            "UC_WHITE": cleaned == " " or c in (0x0B, 0x0C, 0x85),
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


def rows(values, width=116):
    out, line = [], "   "
    for v in values:
        s = f" {v},"
        if len(line) + len(s) > width:
            out.append(line)
            line = "   "
        line += s
    out.append(line)
    return "\n".join(out)


def strings(numbers, width=113):
    """Numbers as lines of C strings, in digits that src/text/compose.c reads: "#" to ">" count 0 to 27 and have digits
    behind them; "@" to "~" without the backslash count 0 to 61 and end a number."""
    text = ""
    for x in numbers:
        digits, x = chr(ord("@") + x % 62 + (x % 62 > 27)), x // 62
        while x:
            digits, x = chr(ord("#") + x % 28) + digits, x // 28
        text += digits
    return "\n".join(f'    "{text[i:i + width]}"' for i in range(0, len(text), width))


def find_runs(record, index):
    """Runs of scalars with one record, or with two that take turns: twice the length, and 1 if two; their indices."""
    numbers, start = [], 0
    while start < len(record):
        same = start + 1
        while same < len(record) and record[same] == record[start]:
            same += 1
        turns = min(start + 2, len(record))
        while turns < len(record) and record[turns] == record[turns - 2]:
            turns += 1
        two = turns > max(same, start + 2)
        numbers += [2 * ((turns if two else same) - start) + two]
        numbers += [index[r] for r in record[start:start + 1 + two]]
        start = turns if two else same
    return numbers


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
    """composed, first, second or 0 of all canonical decompositions by one step, ascending."""
    apart = []
    for c in SCALARS:
        text = u.decomposition(chr(c))
        if not text or text.startswith("<"):
            continue
        parts = [int(x, 16) for x in text.split()]
        apart.append((c, *parts, 0)[:3])
        if len(parts) > 1:
            assert u.normalize("NFD", chr(parts[1])) == chr(parts[1])
            assert (tuple(parts) in PAIRS) == (not bits(c) & BIT["UC_NFC"])
    return apart


def steps(values):
    """Ascending values as differences, from 0 on."""
    return [b - a for a, b in zip([0, *values], values)]


def main():
    check_assumptions()
    library = Library()
    record = [(BIT["UC_DROP"], 0) if 0xD800 <= c <= 0xDFFF else (bits(c), u.combining(chr(c))) for c in range(END)]
    others = differences(library)
    theirs = record[:]
    for first, last, other in others:
        theirs[first:last + 1] = [other] * (last + 1 - first)
    both = list(zip(record, theirs))
    changes = [c for c in range(1, END) if both[c] != both[c - 1]]
    dense = (max(c for c in changes if c < 0xE0000) | 0xFF) + 1
    beyond = [dense] + [c for c in changes if c > dense]
    index = {r: i for i, r in enumerate(dict.fromkeys(record + theirs))}
    assert len(index) <= 256
    runs = find_runs(record[:dense], index)
    others = [r for r in others if r[0] < dense]
    ranges, apart = lower_ranges(library), decompositions()
    version = f"Python {platform.python_version()}, Unicode {u.unidata_version}, tokenizers {tokenizers.__version__}"
    note = f"""/* Written by tests/golden/make_unicode_tables.py from {version}.
   Do not edit: the ids of every text depend on it. */"""
    enum = "\n".join(f"    {name} = {BIT[name]}, /* {meaning} */" for name, meaning in BITS)
    header = f"""{note}
#pragma once

#include <stdint.h>

/* clang-format off */
enum {{
{enum}
}};

typedef struct {{
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
}} UnicodeRecord;

/* All records that some scalar has. */
extern const UnicodeRecord unicode_records[{len(index)}];

/* Scalars from UNICODE_DENSE on: those from `first` up to the next row have the records by Python, by the library. */
#define UNICODE_DENSE  {dense:#x}
#define UNICODE_BEYOND {len(beyond)}
typedef struct {{
    uint32_t first;
    UnicodeRecord records[2];
}} UnicodeBeyond;
extern const UnicodeBeyond unicode_beyond[UNICODE_BEYOND];

/* Lists of numbers as text. "#" to ">" count 0 to 27 and have a digit behind them; "@" to "~" without the backslash
   count 0 to 61 and end a number.

   unicode_runs: runs of the scalars below UNICODE_DENSE in Python: twice the length, and 1 where two records take
   turns; index of the first scalar's record, and of the second's where two take turns.
   unicode_differences: runs of the scalars whose record in the library is another: scalars since the last run, length,
   index of the record. */
#define UNICODE_DIFFERENCES {len(others)}
extern const char unicode_runs[], unicode_differences[];

/* Lower case of one character, if UC_LOWER is in its record: first, first + step … last become delta more. Only U+0130
   becomes two, i and U+0307, and is not here. As text: scalars since the last row's last; twice their number, and 1
   where step is 2; twice delta, or −1 − twice delta where that is negative. */
typedef struct {{
    uint32_t first, last, step;
    int32_t delta;
}} UnicodeLower;
#define UNICODE_LOWER {len(ranges)}
extern const char unicode_lower_text[]; /* ascending */

/* Canonical decompositions by one step, without Hangul. A `first` may decompose again, a `second` does not; `second` is
   0 where there is one scalar. Two whose `composed` is without UC_NFC compose, too. As text: the scalars since the last
   row's composed, first, second. */
typedef struct {{
    uint32_t composed, first, second;
}} UnicodePair;
#define UNICODE_PAIRS    {len(apart)}
#define UNICODE_COMPOSED {len(PAIRS)}
extern const char unicode_pairs_text[]; /* ascending by composed */
/* clang-format on */
"""
    differing = [(first - last, length, index[r]) for first, last, length, r in
                 zip([r[0] for r in others], [0] + [r[1] + 1 for r in others], [r[1] + 1 - r[0] for r in others],
                     [r[2] for r in others])]
    lowering = [(first - last, (end - first) // step * 2 + 2 + (step == 2), 2 * delta if delta >= 0 else -1 - 2 * delta)
                for (first, end, step, delta), last in zip(ranges, [0] + [r[1] for r in ranges])]
    pairs = zip(steps([p[0] for p in apart]), [p[1] for p in apart], [p[2] for p in apart])
    source = f"""{note}
#include "text/unicode_tables.h"

/* clang-format off */
const UnicodeRecord unicode_records[{len(index)}] = {{
{rows("{%d, %d}" % r for r in index)}
}};

const UnicodeBeyond unicode_beyond[UNICODE_BEYOND] = {{
{rows("{%#x, {{%d, %d}, {%d, %d}}}" % (c, *record[c], *theirs[c]) for c in beyond)}
}};

const char unicode_runs[] =
{strings(runs)};

const char unicode_differences[] =
{strings(sum(differing, ()))};

const char unicode_lower_text[] =
{strings(sum(lowering, ()))};

const char unicode_pairs_text[] =
{strings(sum(pairs, ()))};
/* clang-format on */
"""
    for name, text in (("h", header), ("c", source)):
        with open(f"src/text/unicode_tables.{name}", "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
    print(f"{version}: {len(index)} records, {len(apart)} decompositions", file=sys.stderr)


if __name__ == "__main__":
    main()
