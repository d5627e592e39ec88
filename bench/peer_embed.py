#!/usr/bin/env python3
"""sentence-transformers on this machine's CPU, measured as bench/embed.sh measures Cairn: full steps (forward, backward,
gradient clipping, AdamW) of a model with random weights and mean pooling, fp32, dropout on. Nothing is downloaded.

    python3 bench/peer_embed.py --model-config config.json --vocab vocab.txt --pairs pairs.tsv --batch 512 --mini-batch 64

Its loss is MultipleNegativesRankingLoss, with --mini-batch CachedMultipleNegativesRankingLoss. The pairs are the first
lines behind the header, and tokenized before the first step. One JSON line: step_s is the mean of the timed steps.
"""
import argparse
import json
import os
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def prepare(args):
    """The model and the tokenized columns of the step's pairs."""
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizer

    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig.from_json_file(args.model_config)).save_pretrained(folder)
        BertTokenizer(args.vocab).save_pretrained(folder)
        model = SentenceTransformer(folder, device="cpu")
    with open(args.pairs, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:args.batch + 1]
    if len(rows) < args.batch:
        raise SystemExit(f"{args.pairs}: expected {args.batch} pairs, found {len(rows)}")
    return model, [model.preprocess(list(column)) for column in zip(*rows)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model-config", required=True, metavar="FILE", help="config.json")
    p.add_argument("--vocab", required=True, metavar="FILE")
    p.add_argument("--pairs", required=True, metavar="FILE.tsv")
    p.add_argument("--batch", type=int, required=True, help="pairs of a step")
    p.add_argument("--mini-batch", type=int, help="texts that the cached loss computes at once")
    p.add_argument("--steps", type=int, default=1, help="steps timed, behind one that is not")
    args = p.parse_args()
    import sentence_transformers
    import torch
    from sentence_transformers.sentence_transformer import losses

    torch.manual_seed(42)
    model, columns = prepare(args)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    loss = (losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=args.mini_batch) if args.mini_batch
            else losses.MultipleNegativesRankingLoss(model))
    for step in range(args.steps + 1):
        if step == 1:
            begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value = loss([dict(c) for c in columns], None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(json.dumps(dict(step_s=(time.perf_counter() - begin) / args.steps, loss=value.item(), torch=torch.__version__,
                          sentence_transformers=sentence_transformers.__version__, threads=torch.get_num_threads())))


if __name__ == "__main__":
    main()
