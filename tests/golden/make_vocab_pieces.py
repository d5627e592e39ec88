#!/usr/bin/env python3
"""Pieces into which vocabularies of Hugging Face's trainer cut their own training text, for tests/unit/test_text_train.c.

Use: make_vocab_pieces.py wikitext-2-valid.txt >vocab_pieces.txt (tokenizers 0.23.3). A line: size, pieces."""
import sys

import tokenizers

path = sys.argv[1]
print("# make_vocab_pieces.py with tokenizers", tokenizers.__version__)
for size in (1000, 8000, 30522):
    t = tokenizers.BertWordPieceTokenizer(lowercase=True)
    t.train([path], vocab_size=size, min_frequency=2, limit_alphabet=1000, show_progress=False)
    with open(path, encoding="utf-8") as text:
        print(size, sum(len(t.encode(line, add_special_tokens=False).ids) for line in text))
