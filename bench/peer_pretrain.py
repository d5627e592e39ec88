#!/usr/bin/env python3
"""PyTorch + Transformers pretrain the BERT that `cairn pretrain` does, from the same weights, on the same batches with
the same masks, by the same AdamW and schedule; then the two loss curves are compared. Cairn's default recipe: clip 1.0,
decay 0.01 (not biases, not LayerNorm), no bias correction, linear schedule after --warmup steps.

    cairn pretrain --model-config config.json … --max-steps 1 --learning-rate 0 --output-dir start
    cairn pretrain --model start … --max-steps 1000 --warmup 100 --learning-rate 1e-3 --dropout 0 --output-dir run
    bench_batches shards vocab.txt 128 32 42 1000 > batches.jsonl
    python3 bench/peer_pretrain.py --model start --batches batches.jsonl --run run --steps 1000 --warmup 100 \
        --learning-rate 1e-3 --dropout 0

One JSON line at the end: the largest relative difference of a step's loss, over all steps and over the mean of 50
steps, for the sum of both losses and, where metrics.jsonl has them, for each.
"""
import argparse
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from peer_mnli import BertAdamW

WINDOW = 50  # steps in a mean


def learning_rate(peak, step, steps, warmup):
    """Of step 1 … steps: up to the peak at the last step of warmup, then down in a line, not quite to 0."""
    return peak * (step / warmup if step <= warmup else (steps - step + 1) / (steps - warmup))


def read_run(path):
    """Losses by step, of the steps that a run has lines of."""
    names, steps = ("loss", "mlm_loss", "nsp_loss"), {}
    with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8") as f:
        for line in map(json.loads, f):
            if "loss" in line:
                steps[line["step"]] = {n: line[n] for n in names if n in line}
    return steps


def tensors(torch, batch, pad_id):
    width = max(len(s["ids"]) for s in batch)
    ids = torch.full((len(batch), width), pad_id)
    types, mask, labels = torch.zeros_like(ids), torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, s in enumerate(batch):
        n = len(s["ids"])
        ids[i, :n], mask[i, :n] = torch.tensor(s["ids"]), 1
        types[i, s["first"]:n] = 1
        labels[i, torch.tensor(s["places"], dtype=torch.long)] = torch.tensor(s["words"])
    return ids, types, mask, labels, torch.tensor([s["next"] for s in batch])


def losses(torch, model, parts):
    """Transformers' own loss, part by part: the decoder runs on masked rows only, which changes no value."""
    ids, types, mask, labels, following = parts
    out = model.bert(input_ids=ids, token_type_ids=types, attention_mask=mask)
    chosen = labels != -100
    words = model.cls.predictions(out.last_hidden_state[chosen])
    mlm = torch.nn.functional.cross_entropy(words, labels[chosen])
    return mlm, torch.nn.functional.cross_entropy(model.cls.seq_relationship(out.pooler_output), following)


def train(args):
    import torch
    from transformers import BertForPreTraining

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    drop = {} if args.dropout is None else dict(hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
    model = BertForPreTraining.from_pretrained(args.model, attn_implementation="eager", torch_dtype=torch.float32, **drop)
    model.train()
    optimizer = BertAdamW(torch, model.named_parameters(), 0.01, 1.0, False)
    curve = {}
    with open(args.batches, encoding="ascii") as f:
        for step in range(1, args.steps + 1):
            batch = json.loads(f.readline())
            mlm, nsp = losses(torch, model, tensors(torch, batch, model.config.pad_token_id))
            (mlm + nsp).backward()
            optimizer.step(learning_rate(args.learning_rate, step, args.steps, args.warmup))
            curve[step] = {"loss": (mlm + nsp).item(), "mlm_loss": mlm.item(), "nsp_loss": nsp.item()}
    return curve


def compare(ours, theirs, name):
    pairs = [(ours[s][name], theirs[s][name]) for s in sorted(theirs) if name in ours.get(s, {})]
    if not pairs:
        return None
    relative = [abs(a - b) / abs(b) for a, b in pairs]
    means = [(sum(a for a, _ in p) / len(p), sum(b for _, b in p) / len(p))
             for p in (pairs[i:i + WINDOW] for i in range(0, len(pairs), WINDOW))]
    return {"steps": len(pairs), "worst": max(relative), "worst_step": relative.index(max(relative)) + 1,
            "mean": sum(relative) / len(relative), "worst_of_means": max(abs(a - b) / abs(b) for a, b in means),
            "first": means[0], "last": means[-1]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, metavar="DIR", help="weights to start from")
    p.add_argument("--batches", required=True, metavar="FILE", help="of bench_batches")
    p.add_argument("--run", metavar="DIR", help="Cairn's run, to compare with")
    p.add_argument("--curve", metavar="FILE", help="where the peer's losses are written")
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--learning-rate", type=float, default=1e-3)
    p.add_argument("--dropout", type=float, help="default: as config.json says")
    p.add_argument("--seed", type=int, default=0, help="of dropout")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    theirs = train(args)
    if args.curve:
        with open(args.curve, "w", encoding="ascii") as f:
            for step, values in theirs.items():
                print(json.dumps({"step": step, **values}), file=f)
    result = {}
    if args.run:
        ours = read_run(args.run)
        result = {name: compare(ours, theirs, name) for name in ("loss", "mlm_loss", "nsp_loss")}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
