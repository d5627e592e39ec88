#!/usr/bin/env python3
"""PyTorch's own pipelining (torch.distributed.pipelining over Gloo) trains the BERT classifier that
`cairn glue --pipeline` does: the same weights, the same sequences in every step, the same AdamW, no dropout. Started on
each rank by torchrun; bench/pipeline.sh does so and stands both beside each other.

    torchrun --nproc-per-node 2 bench/peer_pipeline.py --model DIR --data-dir DIR --micro-batches 8 --steps 4 1f1b zbv

Schedules: gpipe, 1f1b, interleaved, zbv; none is the whole model on one rank. A JSON line for each, with the seconds and
the loss of every step, and the processor time of a step on all ranks. All rows of train.tsv are one step, so their order does not matter; each must fill
--max-seq-length, because no attention mask is given (which is the fastest for PyTorch).
"""
import argparse
import copy
import json
import math
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from transformers import BertForSequenceClassification, BertTokenizer

from peer_mnli import LABELS, BertAdamW, read_tsv

SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
             "interleaved": pipelining.ScheduleInterleaved1F1B, "zbv": pipelining.ScheduleZBVZeroBubble}


class Part(torch.nn.Module):
    """Stage `number` of `stages`: as many layers in each, the first with the embeddings, the last with the head."""

    def __init__(self, model, number, stages):
        super().__init__()
        layers = model.bert.encoder.layer
        each = len(layers) // stages
        self.embeddings = model.bert.embeddings if number == 0 else None
        self.layers = torch.nn.ModuleList(layers[number * each:(number + 1) * each])
        last = number == stages - 1
        self.pooler, self.classifier = (model.bert.pooler, model.classifier) if last else (None, None)

    def forward(self, x):
        if self.embeddings is not None:  # x: (sequences, 2, tokens) of words and types
            x = self.embeddings(input_ids=x[:, 0], token_type_ids=x[:, 1])
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x if self.pooler is None else self.classifier(self.pooler(x))


def read_batch(args, numbers):
    first, second, labels = read_tsv(os.path.join(args.data_dir, "train.tsv"), -1)
    encoded = BertTokenizer.from_pretrained(args.model)(first, second, truncation="longest_first",
                                                        max_length=args.max_seq_length)
    short = sum(len(ids) != args.max_seq_length for ids in encoded["input_ids"])
    if short:
        raise SystemExit(f"{short} of {len(labels)} rows have fewer than {args.max_seq_length} tokens")
    x = torch.stack([torch.tensor(encoded["input_ids"]), torch.tensor(encoded["token_type_ids"])], dim=1)
    return x, torch.tensor([numbers[LABELS[k]] for k in labels])


def whole(args, model, x, labels):
    """Forward, backward, as a function of nothing that returns the step's loss."""
    part = Part(model, 0, 1)

    def run():
        losses = []
        for rows, wanted in zip(x.chunk(args.micro_batches), labels.chunk(args.micro_batches)):
            loss = torch.nn.functional.cross_entropy(part(rows), wanted) / args.micro_batches
            loss.backward()
            losses.append(loss.item())
        return sum(losses)

    return part, run


def piped(args, schedule, model, x, labels):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stages = ranks if schedule in ("gpipe", "1f1b") else 2 * ranks
    own = {"interleaved": [rank, rank + ranks], "zbv": [rank, stages - 1 - rank]}.get(schedule, [rank])
    parts = torch.nn.ModuleList(Part(model, s, stages) for s in own)
    held = [pipelining.PipelineStage(part, s, stages, torch.device("cpu")) for part, s in zip(parts, own)]
    plan = SCHEDULES[schedule](held if stages > ranks else held[0], n_microbatches=args.micro_batches,
                               loss_fn=torch.nn.functional.cross_entropy)

    def run():
        losses = []
        inputs = (x,) if 0 in own else ()
        plan.step(*inputs, **({"target": labels, "losses": losses} if stages - 1 in own else {}))
        loss = torch.tensor([sum(losses).item() / len(losses) if losses else 0.0])
        dist.all_reduce(loss)  # one rank has it
        return loss.item()

    return parts, run


def measure(args, schedule, start, x, labels):
    model = copy.deepcopy(start)
    parts, run = (whole if schedule == "none" else lambda *a: piped(a[0], schedule, *a[1:]))(args, model, x, labels)
    optimizer = BertAdamW(torch, parts.named_parameters(), 0.01, math.inf, True)
    seconds, losses, processor = [], [], 0.0
    for step in range(args.steps):
        dist.barrier()
        begin, used = time.perf_counter(), time.process_time()
        losses.append(run())
        optimizer.step(args.learning_rate)
        if step > 0:
            processor += (time.process_time() - used) / (args.steps - 1)
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    total = torch.tensor([processor])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(json.dumps({"schedule": schedule, "torch": torch.__version__, "seconds": seconds, "processor": total.item(),
                          "losses": losses}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, metavar="DIR", help="config.json, weights, vocab.txt")
    p.add_argument("--data-dir", required=True, metavar="DIR", help="holds train.tsv")
    p.add_argument("--max-seq-length", type=int, default=128)
    p.add_argument("--micro-batches", type=int, default=8)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--learning-rate", type=float, default=1e-4)
    p.add_argument("--cores", help="a core for each rank, with commas between")
    p.add_argument("schedules", nargs="+", choices=["none", *SCHEDULES])
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if args.cores:
        os.sched_setaffinity(0, {int(args.cores.split(",")[dist.get_rank()])})
    start = BertForSequenceClassification.from_pretrained(
        args.model, num_labels=3, attn_implementation="sdpa", dtype=torch.float32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)
    start.train()
    x, labels = read_batch(args, start.config.label2id)
    for schedule in args.schedules:
        measure(args, schedule, start, x, labels)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
