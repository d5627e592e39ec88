"""Writes src/text/unicode_tables.h and unicode_tables.c from Python's unicodedata.

Cairn's tokenizer must give the ids that Hugging Face's Python BertTokenizer gives, on every system and for ever, so the
character facts that one rests on are frozen here, with the Python and Unicode version they came from. Run from the source
root with no argument; needs the standard library only. Running it with another Python changes what the tokenizer does.
"""
import platform
import sys
import unicodedata as u

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
BLOCK = 128

# One bit each, in this order: name, meaning.
BITS = [
    ("UC_DROP", "removed before anything else: every C category but \\t \\n \\r, and U+FFFD"),
    ("UC_SPACE", "ends a word: \\t \\n \\r, category Zs, and what Python's str.split() splits at"),
    ("UC_PUNCT", "a word of its own: ASCII 33-47 58-64 91-96 123-126, and every P category"),
    ("UC_CJK", "a word of its own: the CJK ideograph ranges that BERT names"),
    ("UC_MARK", "category Mn: dropped where accents are stripped"),
    ("UC_LOWER", "Python's str.lower() changes it"),
    ("UC_DECOMPOSES", "NFD changes it"),
    ("UC_NFC", "NFC may change it or what stands before it: a word without this bit is in NFC"),
    ("UC_BRACKET", "'[': a special piece may begin here"),
    ("UC_BEYOND", "in unicode_ascii only: not ASCII"),
]
BIT = {name: 1 << i for i, (name, _) in enumerate(BITS)}

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
        "UC_DROP": drop,
        "UC_SPACE": space,
        "UC_PUNCT": ascii_punct or cat[0] == "P",
        "UC_CJK": any(a <= c <= b for a, b in CJK),
        "UC_MARK": cat == "Mn",
        "UC_LOWER": ch.lower() != ch,
        "UC_DECOMPOSES": u.normalize("NFD", ch) != ch,
        "UC_NFC": u.normalize("NFC", ch) != ch or c in JOINS_LEFT or u.combining(ch) != 0,
        "UC_BRACKET": ch == "[",
    }
    return sum(BIT[name] for name, true in facts.items() if true)


def check_assumptions():
    """What src/text/normalize.c relies on."""
    for c in SCALARS:
        low = chr(c).lower()
        # Text is lower-cased character by character, then composed, then lower-cased as a whole: the last changes nothing.
        composed = u.normalize("NFC", low)
        assert composed.lower() == composed, hex(c)
        # No step after the first look at a character makes white space or a dropped character of it.
        for d in u.normalize("NFD", low) + composed + low:
            if not bits(c) & (BIT["UC_DROP"] | BIT["UC_SPACE"]):
                assert not bits(ord(d)) & (BIT["UC_DROP"] | BIT["UC_SPACE"]), hex(c)
        assert len(u.normalize("NFD", chr(c))) <= 4 and len(low) <= 4


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


def two_level():
    records, record_ids, record_of = [], {}, bytearray(0x110000)
    for c in range(0x110000):
        record = (BIT["UC_DROP"], 0) if 0xD800 <= c <= 0xDFFF else (bits(c), u.combining(chr(c)))
        if record not in record_ids:
            record_ids[record] = len(records)
            records.append(record)
        record_of[c] = record_ids[record]
    blocks, block_ids, index = [], {}, []
    for start in range(0, 0x110000, BLOCK):
        block = bytes(record_of[start:start + BLOCK])
        if block not in block_ids:
            block_ids[block] = len(blocks)
            blocks.append(block)
        index.append(block_ids[block])
    assert len(records) <= 256 and len(blocks) <= 256
    return records, blocks, index


def mapping(name, function):
    keys, starts, pool = [], [], []
    for c in SCALARS:
        text = function(chr(c))
        if text != chr(c) and not 0xAC00 <= c <= 0xD7A3:
            keys.append(c)
            starts.append(len(pool))
            pool += [ord(d) for d in text]
    starts.append(len(pool))
    assert len(pool) < 65536
    return f"""static const uint32_t {name}_keys[] = {{
{rows(hex(x) for x in keys)}
}};

static const uint16_t {name}_starts[] = {{
{rows(starts)}
}};

static const uint32_t {name}_pool[] = {{
{rows(hex(x) for x in pool)}
}};

const UnicodeMapping unicode_{name} = {{{name}_keys, {name}_starts, {name}_pool, {len(keys)}}};
"""


def main():
    check_assumptions()
    version = f"Python {platform.python_version()}, Unicode {u.unidata_version}"
    note = f"""/* Written by tests/golden/make_unicode_tables.py from {version}.
   Do not edit: the ids of every text rest on it. */"""
    enum = "\n".join(f"    {name} = {BIT[name]}, /* {meaning} */" for name, meaning in BITS)
    header = f"""{note}
#ifndef CAIRN_TEXT_UNICODE_TABLES_H
#define CAIRN_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* clang-format off */
#define UNICODE_VERSION "{version}"

enum {{
{enum}
}};

typedef struct {{
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
}} UnicodeRecord;

/* A scalar's record is unicode_records[unicode_blocks[unicode_index[c / {BLOCK}]][c % {BLOCK}]]. */
extern const UnicodeRecord unicode_records[];
extern const uint8_t unicode_blocks[][{BLOCK}];
extern const uint8_t unicode_index[{0x110000 // BLOCK}];

/* Bits of every byte: those of the ASCII character, or UC_BEYOND. */
extern const uint16_t unicode_ascii[256];

/* keys (count) ascending; keys[i] becomes pool[starts[i]] … pool[starts[i + 1] − 1], at most 4. */
typedef struct {{
    const uint32_t *keys;
    const uint16_t *starts; /* (count + 1) */
    const uint32_t *pool;
    int count;
}} UnicodeMapping;

extern const UnicodeMapping unicode_lower;     /* str.lower() of one character */
extern const UnicodeMapping unicode_decompose; /* full canonical decomposition, without Hangul syllables */

/* Pairs that compose, ascending by (first, second), without Hangul. */
typedef struct {{
    uint32_t first, second, composed;
}} UnicodePair;

#define UNICODE_PAIRS {len(PAIRS)}
extern const UnicodePair unicode_pairs[UNICODE_PAIRS];
/* clang-format on */

#endif
"""
    records, blocks, index = two_level()
    ascii_bits = [bits(c) for c in range(128)] + [BIT["UC_BEYOND"]] * 128
    block_rows = "\n".join("    {" + rows(b, 110).strip().rstrip(",").replace("\n   ", "\n    ") + "}," for b in blocks)
    source = f"""{note}
#include "text/unicode_tables.h"

/* clang-format off */
const UnicodeRecord unicode_records[] = {{
{rows("{%d, %d}" % r for r in records)}
}};

const uint8_t unicode_index[{len(index)}] = {{
{rows(index)}
}};

const uint16_t unicode_ascii[256] = {{
{rows(ascii_bits)}
}};

{mapping("lower", str.lower)}
{mapping("decompose", lambda ch: u.normalize("NFD", ch))}
const UnicodePair unicode_pairs[UNICODE_PAIRS] = {{
{rows("{%#x, %#x, %#x}" % (a, b, c) for (a, b), c in sorted(PAIRS.items()))}
}};

const uint8_t unicode_blocks[][{BLOCK}] = {{
{block_rows}
}};
/* clang-format on */
"""
    for name, text in (("h", header), ("c", source)):
        with open(f"src/text/unicode_tables.{name}", "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
    print(f"{version}: {len(records)} records, {len(blocks)} blocks, {len(PAIRS)} pairs", file=sys.stderr)


if __name__ == "__main__":
    main()
