#!/usr/bin/env python3
"""PyTorch + Transformers on this machine's CPU, measured as bench/cpu.sh measures Cairn: full steps (forward, backward, AdamW)
of BERT for sequence classification on random sequences that fill --seq, random weights, dropout on. Nothing is downloaded.

    python3 bench/peer_cpu.py --model-config bert-base.json --threads 2 --steps 5

What backward recomputes (--checkpointing, several with commas between):
  off          nothing
  on           every layer
  every:K      one layer of K; the others keep everything
  products     all but the outputs of matrix products, in every layer (selective checkpointing)
  second       all but the outputs of attention's products and of every second other one, as torchtitan's selective mode
  attention    all but attention's output
  budget:B     what torch.compile's partitioner chooses for activation_memory_budget B, from 0 to 1
  both         off,on

Every setting runs in a process of its own, so that its memory is its own. One JSON line per setting: seq_per_s is batch /
median step; resident_bytes is what the process holds at most in the timed steps (VmHWM), other_bytes of it what
is there between steps beside weights, gradients and moments: libraries above all. batch_bytes is what forward and backward
take where gradients are there already, as in all micro-batches of a step but the first. With --serve settings are read from stdin, one a line: compiled ones run in this process, which keeps what
it compiled, others in a fork of it; batch_bytes are measured once.
"""
import argparse
import ctypes
import functools
import gc
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


def forget_peak():
    """From here on VmHWM is what the process holds at most."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def trim():
    """Gives freed memory back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def selective(how):
    """Contexts of a checkpoint that keeps the outputs of some products. On a CPU attention with dropout is two bmm."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    plain, own = {aten.mm.default, aten.addmm.default}, {aten.bmm.default, aten._scaled_dot_product_flash_attention_for_cpu.default}
    seen = {}

    def policy(ctx, op, *_args, **_kwargs):
        group = "plain" if op in plain else "own" if op in own else None
        if group is None:
            return CheckpointPolicy.PREFER_RECOMPUTE
        key = (group, ctx.is_recompute)
        seen[key] = seen.get(key, 0) + 1
        second = seen[key] % 2 == 0
        if how == "products" or (how == "second" and (group == "own" or not second)):
            return CheckpointPolicy.MUST_SAVE
        fused = op is not aten.bmm.default
        return CheckpointPolicy.MUST_SAVE if how == "attention" and group == "own" and (second or fused) else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        seen.clear()
        return create_selective_checkpoint_contexts(policy)

    return contexts


def prepare(model, how):
    """The model with what `how` has backward recompute."""
    import torch

    kind, _, number = how.partition(":")
    if kind == "budget":
        torch._functorch.config.activation_memory_budget = float(number)
        names = {"model": model}
        exec("def run(**inputs): return model(**inputs)", names)  # code of its own: what is compiled belongs to the code
        return torch.compile(names["run"], fullgraph=True)
    if kind == "off":
        return model
    each = {} if kind in ("on", "every") else {"context_fn": selective(kind)}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, **each})
    for i, layer in enumerate(model.bert.encoder.layer):
        layer.gradient_checkpointing = kind != "every" or i % int(number) == 0
    return model


class Training:
    """A model with random weights, its optimizer and a batch."""

    def __init__(self, args):
        import torch
        from transformers import BertConfig, BertForSequenceClassification

        self.args, self.torch, self.compiled = args, torch, {}
        torch.set_num_threads(args.threads)
        torch.manual_seed(42)
        sizes = dict(BERT_BASE)
        if args.model_config:
            with open(args.model_config, encoding="utf-8") as f:
                sizes = {k: v for k, v in json.load(f).items() if k in BERT_BASE}
        if args.dropout is not None:
            sizes |= dict(hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
        config = BertConfig(**sizes, num_labels=3, attn_implementation="sdpa")
        self.model = BertForSequenceClassification(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
        ids = torch.randint(1, config.vocab_size, (args.batch, args.seq))
        self.inputs = dict(input_ids=ids, token_type_ids=torch.zeros_like(ids), attention_mask=torch.ones_like(ids),
                           labels=torch.randint(0, 3, (args.batch,)))

    def micro_batch(self, run):
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.args.precision == "bf16"):
            loss = run(**self.inputs).loss
        loss.backward()
        return loss.item()

    def step(self, run):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.micro_batch(run)
        self.optimizer.step()
        return loss

    def batch_bytes(self, run):
        held = memory("VmRSS")
        forget_peak()
        self.micro_batch(run)
        return memory("VmHWM") - held

    def prepared(self, how):
        """Compiled and called once, where it is to be compiled."""
        if not how.startswith("budget:"):
            return prepare(self.model, how)
        if how not in self.compiled:
            self.compiled[how] = prepare(self.model, how)
            self.step(self.compiled[how])
        return self.compiled[how]

    def measure(self, how, batch=True):
        import transformers

        args, torch = self.args, self.torch
        run = self.prepared(how)
        trim()
        for _ in range(args.warmup):
            self.step(run)
        forget_peak()
        seconds = []
        for _ in range(args.steps):
            begin = time.perf_counter()
            loss = self.step(run)
            seconds.append(time.perf_counter() - begin)
        resident = memory("VmHWM")
        trim()
        parameters = sum(p.numel() for p in self.model.parameters())
        other = memory("VmRSS") - 16 * parameters  # gradients are there
        median = statistics.median(seconds)
        return dict(torch=torch.__version__, transformers=transformers.__version__,
                    cpu_capability=torch.backends.cpu.get_cpu_capability(), threads=args.threads, batch=args.batch, seq=args.seq,
                    precision=args.precision, checkpointing=how, attention="sdpa", steps=args.steps,
                    rounds=[round(s, 4) for s in seconds], step_s=round(median, 4), seq_per_s=round(args.batch / median, 4), loss=loss,
                    parameters=parameters, resident_bytes=resident,
                    other_bytes=other, **(dict(batch_bytes=self.batch_bytes(run)) if batch else {}))


def say(line):
    print(json.dumps(line), flush=True)


def answer(training, how, batch):
    try:
        say(training().measure(how, batch))
    except Exception as e:  # the next setting may still run
        say(dict(checkpointing=how, failed=(str(e).strip().splitlines() or [repr(e)])[0][:300]))


def serve(args):
    """Imports once. A fork before the first parallel region has threads of its own."""
    import torch  # noqa: F401
    from transformers import BertForSequenceClassification  # noqa: F401

    training, seen = functools.cache(lambda: Training(args)), set()
    for how in map(str.strip, sys.stdin):
        first = how not in seen
        seen.add(how)
        if how.startswith("budget:"):
            answer(training, how, first)
            continue
        child = os.fork()
        if not child:
            answer(training, how, first)
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        if ended:
            say(dict(checkpointing=how, failed=f"the process ended with {os.waitstatus_to_exitcode(ended)}"))


def is_setting(text):
    kind, _, number = text.partition(":")
    if kind == "every":
        return number.isdigit() and int(number) > 0
    if kind == "budget":
        return number.replace(".", "", 1).isdigit() and float(number) <= 1
    return text in ("off", "on", "products", "second", "attention")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model-config", metavar="FILE", help="sizes and dropout from a config.json; default BERT-Base")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--seq", type=int, default=128)
    p.add_argument("--dropout", type=float, help="all rates; default as the configuration says")
    p.add_argument("--warmup", type=int, default=1, help="steps not timed")
    p.add_argument("--steps", type=int, default=3, help="steps timed")
    p.add_argument("--precision", choices=["fp32", "bf16", "both"], default="both", help="bf16 is autocast")
    p.add_argument("--checkpointing", default="both", metavar="LIST")
    p.add_argument("--repeat", type=int, default=1, help="times to go through all settings, so that they interleave")
    p.add_argument("--serve", action="store_true")
    args = p.parse_args()
    for name in ("threads", "batch", "seq", "steps", "repeat"):
        if getattr(args, name) < 1:
            p.error(f"--{name}: expected at least 1, found {getattr(args, name)}")
    args.checkpointing = "off,on" if args.checkpointing == "both" else args.checkpointing
    for text in args.checkpointing.split(","):
        if not is_setting(text):
            p.error(f"--checkpointing: expected off, on, every:K, products, second, attention, budget:B or both, found '{text}'")
    if args.serve and args.precision == "both":
        p.error("--serve: expected --precision fp32 or bf16, found both")
    return args


def main():
    args = parse()
    if args.serve:
        serve(args)
        return
    precisions = ["fp32", "bf16"] if args.precision == "both" else [args.precision]
    settings = [(p, s) for _ in range(args.repeat) for p in precisions for s in args.checkpointing.split(",")]
    if len(settings) == 1:
        say(Training(args).measure(args.checkpointing))
        return
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1")
    for precision, setting in settings:  # the last value of a repeated flag counts
        subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--precision", precision, "--checkpointing",
                        setting, "--repeat", "1"], env=env, check=True)


if __name__ == "__main__":
    main()
