#!/usr/bin/env python3
"""Writes tests/golden/bert/embedding/: PyTorch's embeddings, losses and gradients of sentence embeddings, of the model
tests/golden/bert/tiny_cls without its head.

To regenerate (from the source root, a few seconds; with the packages that make_bert_golden.py names):

    /tmp/venv/bin/python tests/golden/make_embedding_golden.py tests/golden/bert/embedding

The batch has ROWS rows of data with three texts each: anchor, right text, wrong text. Sequence k·ROWS + i is text k of
row i; a case of two texts leaves the wrong ones out. All values are computed in float64 from the fp32 weights, without
dropout, in one undivided batch.

golden.safetensors (F32), for each case of golden.json:
    <case>/embedding (texts·ROWS, H)     pooled, and of length 1 where the case says so
    <case>/grad/<parameter name>         every STRIDE-th element of the parameter's gradient, from its first on
golden.json: see main().
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional
from transformers import BertModel

from make_bert_golden import padded, write_json

MODEL = "tests/golden/bert/tiny_cls"
ROWS, STRIDE = 6, 7
LENGTHS = [[9, 3, 21, 14, 2, 17], [5, 12, 19, 7, 4, 30], [11, 6, 2, 16, 23, 8]]
SCORES = [0.9, -0.2, 0.45, 1.0, 0.0, 0.7]

# name, loss, texts, pooling, length 1, symmetric
CASES = [
    ("infonce", "infonce", 2, "mean", True, False),
    ("infonce_symmetric", "infonce", 2, "mean", True, True),
    ("infonce_wrong_texts", "infonce", 3, "mean", True, False),
    ("infonce_cls", "infonce", 3, "cls", True, True),
    ("cosine", "cosine", 2, "mean", True, False),
    ("triplet", "triplet", 3, "mean", False, False),
    ("triplet_cls", "triplet", 3, "cls", False, False),
]
TEMPERATURE, MARGIN = 0.05, 0.5


def make_batch():
    rng = np.random.default_rng(8)
    lengths = [n for texts in LENGTHS for n in texts]
    return dict(lengths=lengths, input_ids=rng.integers(1, 101, sum(lengths)).tolist(), token_type_ids=[0] * sum(lengths))


def embed(model, batch, texts, pooling, normalized):
    inputs = padded(dict(batch, labels=[0] * len(batch["lengths"])), torch.float64)
    del inputs["labels"]
    inputs = {k: v[: texts * ROWS] for k, v in inputs.items()}
    hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    return functional.normalize(vectors, dim=1) if normalized else vectors


def loss_of(loss, symmetric, vectors):
    texts = vectors.split(ROWS)
    right = torch.arange(ROWS)
    if loss == "infonce":
        forth = functional.cross_entropy(texts[0] @ torch.cat(texts[1:]).T / TEMPERATURE, right)
        back = functional.cross_entropy(texts[1] @ texts[0].T / TEMPERATURE, right)
        return (forth + back) / 2 if symmetric else forth
    if loss == "cosine":
        return ((texts[0] * texts[1]).sum(1) - torch.tensor(SCORES, dtype=torch.float64)).square().mean()
    each = (texts[0] - texts[1]).norm(dim=1) - (texts[0] - texts[2]).norm(dim=1) + MARGIN
    assert 0 < (each > 0).sum() < ROWS and each.abs().min() > 0.02, each  # rows of both kinds, none at the edge
    return each.clamp(min=0).mean()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_embedding_golden.py FOLDER")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()  # the head that the model leaves out
    transformers.utils.logging.disable_progress_bar()
    batch, golden, cases = make_batch(), {}, []
    for name, loss, texts, pooling, normalized, symmetric in CASES:
        model = BertModel.from_pretrained(MODEL, dtype=torch.float64, attn_implementation="eager",
                                          add_pooling_layer=False).eval()
        vectors = embed(model, batch, texts, pooling, normalized)
        value = loss_of(loss, symmetric, vectors)
        value.backward()
        golden[f"{name}/embedding"] = vectors
        for n, p in model.named_parameters():
            golden[f"{name}/grad/bert.{n}"] = p.grad.flatten()[::STRIDE]
        cases.append(dict(name=name, loss=loss, texts=texts, pooling=pooling, normalized=normalized,
                          symmetric=symmetric, value=value.item()))
        print(f"{name}: loss {value.item():.6f}")
    os.makedirs(sys.argv[1], exist_ok=True)
    save_file({n: t.detach().float().contiguous() for n, t in golden.items()},
              os.path.join(sys.argv[1], "golden.safetensors"))
    write_json(os.path.join(sys.argv[1], "golden.json"), dict(
        made_by=f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}",
        head="embedding", model=MODEL, rows=ROWS, stride=STRIDE, temperature=TEMPERATURE, margin=MARGIN,
        scores=SCORES,     # of the rows of data, for cosine
        batches=[batch],   # lengths, flat input_ids and token_type_ids of the 3·ROWS sequences
        cases=cases))      # value: the mean over the rows of data


if __name__ == "__main__":
    main()
