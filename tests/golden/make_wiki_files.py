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
