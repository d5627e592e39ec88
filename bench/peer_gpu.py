#!/usr/bin/env python3
"""PyTorch + Transformers on one GPU, measured beside Cairn by bench/gpu.sh --part peer: full steps (forward, backward, AdamW fused)
of BertForPreTraining, or of a classifier with three labels, from random weights, bf16 autocast, SDPA, dropout on. Nothing is
downloaded.

    python3 bench/peer_gpu.py --model-config bench/configs/bert-large.json --batch 256 --seq 128 --predictions 20 --compile

With --lengths FILE (lines: length, count) every batch has --batch sequences of such lengths, padded to its longest, with --compile to
--seq, so that it is compiled once. One JSON line a setting: seq_per_s is batch / median step; peak_bytes is what PyTorch's allocator
held at most. --ceilings measures the machine instead: a large copy, a large bf16 product, BERT's products. --settings LIST goes through
several in processes of their own (plain, checkpointing, compile, compile+checkpointing), each until --until (seconds since 1970).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
        "type_vocab_size", "hidden_act", "layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob")


def read_lengths(path):
    """Lengths in order with their shares, as src/data/lengths.h has them."""
    pairs = []
    with open(path, encoding="ascii") as f:
        for line in f:
            if line.strip() and not (line[0] == "#" or line[0].isalpha()):
                length, count = line.split()
                pairs.append((int(length), float(count)))
    return sorted(p for p in pairs if p[1] > 0)


def draw(pairs, n, generator):
    """n lengths that follow the histogram as closely as n can, mixed."""
    import torch

    total, place, out, seen = sum(c for _, c in pairs), 0, [], 0.0
    for length, count in pairs:
        seen += count
        while place < n and (place + 0.5) / n * total < seen:
            out.append(length)
            place += 1
    return [out[i] for i in torch.randperm(len(out), generator=generator).tolist()]


def make_batch(args, config, lengths, device, torch):
    width = args.seq if args.compile or not args.lengths else (max(lengths) + 7) // 8 * 8
    ids = torch.randint(1, config.vocab_size, (args.batch, width))
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, n in enumerate(lengths):
        mask[row, :n] = 1
        masked = max(1, args.predictions * n // args.seq) if args.predictions else 0
        for i in range(masked):
            labels[row, i * n // masked] = ids[row, i * n // masked]
    batch = dict(input_ids=ids, token_type_ids=torch.zeros_like(ids))
    if args.lengths:  # full sequences need none, and SDPA is faster without
        batch["attention_mask"] = mask
    if args.predictions:
        batch["labels"] = labels
        batch["next_sentence_label"] = torch.randint(0, 2, (args.batch,))
    else:
        batch["labels"] = torch.randint(0, 3, (args.batch,))
    return {k: v.to(device) for k, v in batch.items()}


def measure(args):
    import torch
    import transformers
    from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    torch.manual_seed(42)
    torch.backends.cuda.matmul.allow_tf32 = True
    with open(args.model_config, encoding="utf-8") as f:
        sizes = {k: v for k, v in json.load(f).items() if k in KEYS}
    config = BertConfig(**sizes, num_labels=3, attn_implementation="sdpa")
    model = (BertForPreTraining if args.predictions else BertForSequenceClassification)(config).to(device).train()
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    generator = torch.Generator().manual_seed(1)
    batches, tokens = [], 0
    for _ in range(4):
        n = draw(read_lengths(args.lengths), args.batch, generator) if args.lengths else [args.seq] * args.batch
        tokens += sum(n) / 4
        batches.append(make_batch(args, config, n, device, torch))
    run = torch.compile(model, mode=args.mode) if args.compile else model

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = run(**batches[i % 4]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def wait():
        if on_gpu:
            torch.cuda.synchronize()

    for i in range(max(args.warmup, 4)):
        loss = step(i)
    wait()
    seconds = []
    for _ in range(args.rounds):
        begin = time.perf_counter()
        for i in range(args.steps):
            loss = step(i)
        wait()
        seconds.append((time.perf_counter() - begin) / args.steps)
    median = statistics.median(seconds)
    return dict(kind="peer", case=args.name, setting=setting_name(args), torch=torch.__version__,
                transformers=transformers.__version__, gpu=torch.cuda.get_device_name(0) if on_gpu else "none",
                batch=args.batch, seq=args.seq, predictions=args.predictions, lengths=bool(args.lengths), tokens=tokens,
                step_s=median, seq_per_s=args.batch / median, tokens_per_s=tokens / median,
                peak_bytes=torch.cuda.max_memory_reserved() if on_gpu else 0, loss=loss.item(),
                rounds=[round(s, 6) for s in seconds])


def timed(torch, work, on_gpu, repeat):
    """Seconds of one call: the best of three rounds."""
    best = None
    for _ in range(4):
        begin = time.perf_counter()
        for _ in range(repeat):
            work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - begin) / repeat
        best = seconds if best is None else min(best, seconds)
    return best


def ceilings(args):
    """One line: bytes per second of a copy (read and written), flops per second of products."""
    import torch

    on_gpu = args.device == "cuda"
    large, copy = (8192, 1 << 32) if on_gpu else (128, 1 << 20)
    a = torch.randn(copy // 4, device=args.device)
    b = torch.empty_like(a)
    seconds = timed(torch, lambda: b.copy_(a), on_gpu, 5)
    line = dict(kind="ceilings", case=args.name, copy_bytes_per_s=2 * copy / seconds)
    del a, b

    def product(m, n, k):
        x = torch.randn(m, k, device=args.device, dtype=torch.bfloat16)
        w = torch.randn(n, k, device=args.device, dtype=torch.bfloat16)
        return 2.0 * m * n * k / timed(torch, lambda: torch.nn.functional.linear(x, w), on_gpu, 10 if on_gpu else 1)

    line["product"] = product(large, large, large)
    rows = 32768 if on_gpu else 64
    for h in (768, 1024) if on_gpu else (32,):
        for n, k in ((3 * h, h), (h, h), (4 * h, h), (h, 4 * h)):
            line[f"product_{rows}x{n}x{k}"] = product(rows, n, k)
            line[f"product_{n}x{k}x{rows}"] = product(n, k, rows)  # a weight gradient's
    return line


def setting_name(args):
    return "+".join([w for w, on in (("compile", args.compile), ("checkpointing", args.checkpointing)) if on]) or "plain"


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model-config", metavar="FILE")
    p.add_argument("--name", default="", help="what the line is called")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--seq", type=int, default=128)
    p.add_argument("--predictions", type=int, default=0, help="masked positions in a sequence of --seq; 0: a classifier")
    p.add_argument("--lengths", metavar="FILE")
    p.add_argument("--warmup", type=int, default=8)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--mode", default="default", help="torch.compile's mode")
    p.add_argument("--checkpointing", action="store_true")
    p.add_argument("--ceilings", action="store_true")
    p.add_argument("--settings", metavar="LIST", help="several, with commas between")
    p.add_argument("--until", type=float, default=0)
    args = p.parse_args()
    if not args.ceilings and not args.model_config:
        p.error("--model-config: expected a file")
    for name in ("batch", "seq", "steps", "rounds"):
        if getattr(args, name) < 1:
            p.error(f"--{name}: expected at least 1, found {getattr(args, name)}")
    return args


def several(args):
    """Each in a process of its own, so that memory is its own; what fails or takes too long is a line that says so."""
    rest = [a for i, a in enumerate(sys.argv[1:], 1) if not (a == "--settings" or sys.argv[i - 1] == "--settings")]
    for setting in args.settings.split(","):
        flags = [] if setting == "plain" else ["--" + part for part in setting.split("+")]
        left = args.until - time.time() if args.until else None
        why = "no time left" if left is not None and left < 20 else None
        if why is None:
            try:
                done = subprocess.run([sys.executable, os.path.abspath(__file__), *rest, *flags], timeout=left, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                if done.returncode == 0:
                    print(done.stdout.strip(), flush=True)
                else:
                    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
            except subprocess.TimeoutExpired:
                why = "no time left"
        if why:
            print(json.dumps(dict(kind="left_out", case=args.name, setting=setting, why=why)), flush=True)


def main():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = parse()
    if args.settings:
        several(args)
    else:
        print(json.dumps(ceilings(args) if args.ceilings else measure(args)), flush=True)


if __name__ == "__main__":
    main()
