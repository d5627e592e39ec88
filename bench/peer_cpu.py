#!/usr/bin/env python3
"""PyTorch + Transformers on this machine's CPU, measured as bench/cpu.sh measures Cairn: full steps (forward, backward, AdamW)
of BERT for sequence classification on random sequences that fill --seq, random weights, dropout on. Nothing is downloaded.

    python3 bench/peer_cpu.py --model-config bert-base.json --threads 2 --steps 5

Every setting runs in a process of its own, so that its peak resident memory is its own. One JSON line per setting:
seq_per_s is batch / median step; peak_rss_bytes is VmHWM after the last step, start_rss_bytes before the model is made.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

BERT_BASE = dict(vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
                 max_position_embeddings=512, type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12,
                 hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def memory(field):
    """A field of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status: expected a line {field}, found none")


def measure(args, precision, checkpointing):
    import torch
    import transformers
    from transformers import BertConfig, BertForSequenceClassification

    torch.set_num_threads(args.threads)
    torch.manual_seed(42)
    sizes = dict(BERT_BASE)
    if args.model_config:
        with open(args.model_config, encoding="utf-8") as f:
            sizes = {k: v for k, v in json.load(f).items() if k in BERT_BASE}
    config = BertConfig(**sizes, num_labels=3, attn_implementation="sdpa")
    start_rss = memory("VmRSS")
    model = BertForSequenceClassification(config).train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    ids = torch.randint(1, config.vocab_size, (args.batch, args.seq))
    inputs = dict(input_ids=ids, token_type_ids=torch.zeros_like(ids), attention_mask=torch.ones_like(ids),
                  labels=torch.randint(0, 3, (args.batch,)))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    seconds = []
    for i in range(args.warmup + args.steps):
        begin = time.perf_counter()
        loss = step()
        if i >= args.warmup:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    return dict(torch=torch.__version__, transformers=transformers.__version__,
                cpu_capability=torch.backends.cpu.get_cpu_capability(), threads=args.threads, batch=args.batch, seq=args.seq,
                precision=precision, gradient_checkpointing=checkpointing, attention="sdpa", steps=args.steps,
                step_s=[round(s, 4) for s in seconds], seq_per_s=round(args.batch / median, 4), loss=loss,
                parameters=sum(p.numel() for p in model.parameters()), start_rss_bytes=start_rss,
                peak_rss_bytes=memory("VmHWM"))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model-config", metavar="FILE", help="sizes and dropout from a config.json; default BERT-Base")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--seq", type=int, default=128)
    p.add_argument("--warmup", type=int, default=1, help="steps not timed")
    p.add_argument("--steps", type=int, default=3, help="steps timed")
    p.add_argument("--precision", choices=["fp32", "bf16", "both"], default="both", help="bf16 is autocast")
    p.add_argument("--checkpointing", choices=["off", "on", "both"], default="both")
    p.add_argument("--repeat", type=int, default=1, help="times to go through all settings, so that they interleave")
    args = p.parse_args()
    for name in ("threads", "batch", "seq", "steps", "repeat"):
        if getattr(args, name) < 1:
            p.error(f"--{name}: expected at least 1, found {getattr(args, name)}")
    return args


def main():
    args = parse()
    precisions = ["fp32", "bf16"] if args.precision == "both" else [args.precision]
    switches = ["off", "on"] if args.checkpointing == "both" else [args.checkpointing]
    settings = [(p, s) for _ in range(args.repeat) for p in precisions for s in switches]
    if len(settings) == 1:
        print(json.dumps(measure(args, precisions[0], switches[0] == "on")), flush=True)
        return
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1")
    for precision, switch in settings:  # the last value of a repeated flag counts
        subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--precision", precision, "--checkpointing",
                        switch, "--repeat", "1"], env=env, check=True)


if __name__ == "__main__":
    main()
