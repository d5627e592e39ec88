#!/usr/bin/env python3
"""Packs the sample dump (tasks/pretrain/sample/sample.xml) as bz2, multistream bz2 and gz into tests/golden/wiki.
Run from the source folder. Blocks are small (bzip2 -1), so that one stream has several."""
import bz2
import gzip
import pathlib
import re

source = pathlib.Path("tasks/pretrain/sample/sample.xml").read_bytes()
folder = pathlib.Path("tests/golden/wiki")
folder.mkdir(exist_ok=True)
(folder / "sample.xml.bz2").write_bytes(bz2.compress(source, 1))
pages = [m.start() for m in re.finditer(b"  <page>", source)]
cuts = [0] + pages[::20][1:] + [source.rindex(b"</mediawiki>"), len(source)]
streams = [bz2.compress(source[a:b], 9) for a, b in zip(cuts, cuts[1:])]
(folder / "sample-streams.xml.bz2").write_bytes(b"".join(streams))
half = len(source) // 2
packed = [gzip.compress(part, 9, mtime=0) for part in (source[:half], source[half:])]
(folder / "sample.xml.gz").write_bytes(b"".join(packed))


def draws(count):
    """Numbers below 2**16, as in tests/unit/test_wiki_input.c."""
    state = 1
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        yield state >> 15


cases = [
    b"a",
    b"ab" * 150000,  # a text that repeats: the list of its block is shorter than the block
    b"c" * 1000000,
    b"".join(bytes([97 + n % 26]) * n for n in range(1, 600)),
    bytes(x & 255 for x in draws(6000)),
    bytes(33 + ((x | 65536) & -(x | 65536)).bit_length() for x in draws(20000)),  # codes of 1 to 14 bits
]
(folder / "cases.bz2").write_bytes(b"".join(bz2.compress(case, 1) for case in cases))
