#!/usr/bin/env python3
"""PyTorch + Transformers fine-tune a BERT directory on MNLI's TSV files and evaluate dev_matched: the same run as
`cairn glue --task MNLI`, to stand beside it in RESULTS.md. The recipe is Cairn's default: length 128, batch 32, 3 epochs,
linear schedule with 10 % warmup, AdamW with bias correction (--no-bias-correction: BERT's), decay 0.01 (not biases, not
LayerNorm), clip 1.0, dropout from config.json.

    python3 bench/peer_mnli.py --model DIR --data-dir MNLI --threads 2 --precision fp32

One JSON line at the end. train_seq_per_s counts the training steps alone (no tokenising, no evaluation), as does
eval_seq_per_s for evaluation; tokenize_s is beside them. --padding max makes every sequence --max-seq-length long,
dynamic (the default) pads a batch to its longest sequence. peak_rss_bytes is VmHWM after training, start_rss_bytes after
the imports.
"""
import argparse
import json
import os
import sys
import time

from peer_cpu import memory  # beside this file

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

LABELS = ["contradiction", "entailment", "neutral"]


def read_tsv(path, limit):
    """Sentence pairs and labels, columns found by their header. Rows without a gold label ("-") are left out."""
    with open(path, encoding="utf-8-sig", newline="\n") as f:
        lines = f.read().split("\n")
    header = lines[0].rstrip("\r").split("\t")
    wanted = [header.index(name) for name in ("sentence1", "sentence2", "gold_label")]
    first, second, labels = [], [], []
    for number, line in enumerate(lines[1:], 2):
        if len(labels) == limit:
            break
        cells = line.rstrip("\r").split("\t")
        if cells == [""]:
            continue
        if len(cells) != len(header):
            raise SystemExit(f"{path}, row {number}: expected {len(header)} columns, found {len(cells)}")
        a, b, label = (cells[i] for i in wanted)
        if label == "-":
            continue
        if label not in LABELS:
            raise SystemExit(f"{path}, row {number}: expected one of {LABELS}, found {label!r}")
        first.append(a)
        second.append(b)
        labels.append(LABELS.index(label))
    return first, second, labels


class Batches:
    """Tokenised pairs; a batch is a dict of tensors padded on the right."""

    def __init__(self, torch, encoded, labels, width, pad_id):
        self.torch, self.labels, self.width, self.pad_id = torch, labels, width, pad_id
        self.ids, self.types = encoded["input_ids"], encoded["token_type_ids"]

    def take(self, rows):
        torch = self.torch
        width = self.width or max(len(self.ids[r]) for r in rows)
        ids = torch.full((len(rows), width), self.pad_id)
        types, mask = torch.zeros_like(ids), torch.zeros_like(ids)
        for i, r in enumerate(rows):
            n = len(self.ids[r])
            ids[i, :n], types[i, :n] = torch.tensor(self.ids[r]), torch.tensor(self.types[r])
            mask[i, :n] = 1
        return dict(input_ids=ids, token_type_ids=types, attention_mask=mask,
                    labels=torch.tensor([self.labels[r] for r in rows]))


class BertAdamW:
    """AdamW with decoupled decay; BERT was trained without bias_correction. Clips by the global norm first."""

    def __init__(self, torch, named, weight_decay, max_norm, bias_correction):
        self.torch, self.max_norm, self.beta1, self.beta2, self.eps = torch, max_norm, 0.9, 0.999, 1e-6
        self.bias_correction, self.steps = bias_correction, 0
        decayed = lambda name: not (name.endswith("bias") or "LayerNorm" in name)
        named = list(named)
        self.groups = []
        for decay, chosen in ((weight_decay, True), (0.0, False)):
            params = [p for n, p in named if decayed(n) == chosen]
            self.groups.append((decay, params, [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]))

    def step(self, lr):
        torch = self.torch
        self.steps += 1
        m_share, v_share = 1.0, 1.0  # of the moments' final scale that their averages hold by now
        if self.bias_correction:
            m_share, v_share = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        with torch.no_grad():
            params = [p for _, group, _, _ in self.groups for p in group]
            norm = torch.nn.utils.clip_grad_norm_(params, self.max_norm).item()
            for decay, group, m, v in self.groups:
                grads = [p.grad for p in group]
                torch._foreach_lerp_(m, grads, 1 - self.beta1)
                torch._foreach_mul_(v, self.beta2)
                torch._foreach_addcmul_(v, grads, grads, 1 - self.beta2)
                denominators = torch._foreach_sqrt(v)
                torch._foreach_div_(denominators, v_share**0.5)
                torch._foreach_add_(denominators, self.eps)
                if decay:
                    torch._foreach_mul_(group, 1 - lr * decay)
                torch._foreach_addcdiv_(group, m, denominators, -lr / m_share)
            for p in params:
                p.grad = None
        return norm


def learning_rate(peak, step, steps, warmup):
    """Linear up to the peak in `warmup` steps, then linearly down to 0 at `steps`. step counts from 0."""
    return peak * (step / warmup if step < warmup else (steps - step) / (steps - warmup))


def evaluate(torch, model, data, batch, autocast):
    model.eval()
    # batches of like length waste least padding; accuracy does not depend on the order
    order = sorted(range(len(data.labels)), key=lambda r: len(data.ids[r]))
    right = 0
    begin = time.perf_counter()
    with torch.inference_mode(), autocast():
        for i in range(0, len(order), batch):
            inputs = data.take(order[i:i + batch])
            labels = inputs.pop("labels")
            right += (model(**inputs).logits.float().argmax(-1) == labels).sum().item()
    return right / len(order), len(order) / (time.perf_counter() - begin)


def run(args):
    import torch
    import transformers
    from transformers import BertForSequenceClassification, BertTokenizer

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    start_rss = memory("VmRSS")
    tokenizer = BertTokenizer.from_pretrained(args.model)
    begin = time.perf_counter()
    sets = []
    for name, limit in (("train", args.max_train), ("dev_matched", args.max_eval)):
        first, second, labels = read_tsv(os.path.join(args.data_dir, name + ".tsv"), limit)
        encoded = tokenizer(first, second, truncation="longest_first", max_length=args.max_seq_length)
        width = args.max_seq_length if args.padding == "max" else 0
        sets.append(Batches(torch, encoded, labels, width, tokenizer.pad_token_id))
    train, dev = sets
    tokenize_s = time.perf_counter() - begin

    model = BertForSequenceClassification.from_pretrained(args.model, num_labels=3, attn_implementation="sdpa",
                                                          dtype=torch.float32)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = BertAdamW(torch, model.named_parameters(), args.weight_decay, args.max_grad_norm,
                          args.bias_correction)
    autocast = lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16")

    n = len(train.labels)
    per_epoch = (n + args.batch_size - 1) // args.batch_size
    steps = per_epoch * args.epochs
    warmup = int(args.warmup * steps)
    step, sequences, seconds, losses = 0, 0, 0.0, []
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(n).tolist()
        for i in range(0, n, args.batch_size):
            if step == args.max_steps:
                break
            rows = order[i:i + args.batch_size]
            begin = time.perf_counter()
            with autocast():
                loss = model(**train.take(rows)).loss
            loss.backward()
            norm = optimizer.step(learning_rate(args.learning_rate, step, steps, warmup))
            losses.append(loss.item())
            seconds += time.perf_counter() - begin
            sequences += len(rows)
            step += 1
            if step % args.log_every == 0:
                print(f"epoch {epoch} step {step}/{steps} loss {sum(losses[-args.log_every:]) / args.log_every:.4f} "
                      f"grad norm {norm:.3f} {sequences / seconds:.1f} seq/s", file=sys.stderr, flush=True)
    peak = memory("VmHWM")
    accuracy, eval_rate = evaluate(torch, model, dev, args.eval_batch_size, autocast)
    tail = losses[-50:]
    return dict(torch=torch.__version__, transformers=transformers.__version__,
                cpu_capability=torch.backends.cpu.get_cpu_capability(), threads=args.threads, model=args.model,
                precision=args.precision, gradient_checkpointing=args.gradient_checkpointing, padding=args.padding,
                max_seq_length=args.max_seq_length, batch_size=args.batch_size, learning_rate=args.learning_rate,
                epochs=args.epochs, seed=args.seed, train_rows=n, eval_rows=len(dev.labels), steps=step,
                train_tokens=sum(map(len, train.ids)), accuracy=accuracy, last_loss=sum(tail) / len(tail) if tail else None,
                train_seq_per_s=sequences / seconds if seconds else None, eval_seq_per_s=eval_rate, train_s=seconds,
                tokenize_s=tokenize_s, start_rss_bytes=start_rss, peak_rss_bytes=peak)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, metavar="DIR", help="config.json, weights, vocab.txt")
    p.add_argument("--data-dir", required=True, metavar="DIR", help="holds train.tsv and dev_matched.tsv")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--max-seq-length", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--eval-batch-size", type=int, default=64)
    p.add_argument("--learning-rate", type=float, default=2e-5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--max-steps", type=int, default=-1, help="stop early; the schedule stays that of all epochs")
    p.add_argument("--warmup", type=float, default=0.1, help="fraction of all steps")
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--bias-correction", action=argparse.BooleanOptionalAction, default=True,
                   help="AdamW's, from the first step; BERT was trained without it")
    p.add_argument("--max-grad-norm", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast")
    p.add_argument("--padding", choices=["max", "dynamic"], default="dynamic")
    p.add_argument("--gradient-checkpointing", action="store_true")
    p.add_argument("--max-train", type=int, default=-1, metavar="ROWS", help="use the first rows only")
    p.add_argument("--max-eval", type=int, default=-1, metavar="ROWS")
    p.add_argument("--log-every", type=int, default=50)
    return p.parse_args()


if __name__ == "__main__":
    print(json.dumps(run(parse())), flush=True)
