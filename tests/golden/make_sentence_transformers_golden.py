#!/usr/bin/env python3
"""Writes tests/golden/sentence_transformers/: a small model as sentence-transformers saves it, and its vectors of texts.

To regenerate (from the source root; the files committed came from sentence-transformers 6.2.0, transformers 5.24.0):

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install sentence-transformers
    /tmp/venv/bin/python tests/golden/make_sentence_transformers_golden.py

mean.jsonl, cls.jsonl and normalized.jsonl: what `cairn predict --embed --keep-columns text` writes for that pooling;
normalized means are what the folder says.
"""
import json
import os
import pathlib
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a the boat is red , . sail ##s ##ing cafe blue sea".split()
TEXTS = ["The boat is red.", "a Café, the sea", "sailing", "", "boats " * 12, "the blue sea is the sea"]

folder = pathlib.Path(__file__).parent / "sentence_transformers"
bert = folder / "bert"
bert.mkdir(parents=True)
(bert / "vocab.txt").write_text("\n".join(PIECES) + "\n")
torch.manual_seed(7)
config = BertConfig(vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=32, max_position_embeddings=24, initializer_range=0.3)
BertModel(config).save_pretrained(bert)
BertTokenizerFast(vocab=str(bert / "vocab.txt")).save_pretrained(bert)

text = Transformer(str(bert), max_seq_length=12)
models = {"mean": [Pooling(16, "mean")], "cls": [Pooling(16, "cls")], "normalized": [Pooling(16, "mean"), Normalize()]}
for name, rest in models.items():
    model = SentenceTransformer(modules=[text, *rest], device="cpu")
    model.save(str(folder), create_model_card=False)
    with open(folder / f"{name}.jsonl", "w") as out:
        for i, (x, v) in enumerate(zip(TEXTS, model.encode(TEXTS))):
            elements = ", ".join(f"{e:.9g}" for e in v)
            print(f'{{"index": {i}, "embedding": [{elements}], "text": {json.dumps(x, ensure_ascii=False)}}}', file=out)
shutil.rmtree(bert)
