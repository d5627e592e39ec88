#!/usr/bin/env python3
"""Writes tests/golden/bert/: small BERT and DistilBERT models, and the results of PyTorch and Transformers for them.

To regenerate (from the source root, a few seconds; the files committed came from the versions named in each golden.json):

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers safetensors numpy
    /tmp/venv/bin/python tests/golden/make_bert_golden.py tests/golden/bert

A folder per model: config.json and model.safetensors (fp32, a Hugging Face directory that Transformers itself wrote) are
Cairn's input; golden.safetensors and golden.json are the expected results. All reference values are computed in
float64 from those fp32 weights, so that a difference is Cairn's own rounding. "torch_fp32" in golden.json has the
distance of PyTorch's own fp32 results, by the measures of the test.

golden.safetensors (F32). T = tokens of batch 0, packed without padding, N = its sequences, M = its masked positions:
    hidden (T, H)   last hidden states               pooled (N, H)   tanh pooler, of BERT
    logits (N, C)   classifier, or NSP with C = 2; of a span head (T, 2)    mlm_logits (M, V)   pretraining only, rows as in mlm_rows
    grad/<parameter name>   gradient of the batch's loss, unclipped, shaped as in model.safetensors
golden.json: see `describe` in make().

Every parameter is compared. Those in "zero_gradient" (key.bias, and what moves all logits of a span head alike: softmax does not see it) have an exactly zero gradient in
exact arithmetic; the stored values are rounding noise, and under NVLAMB that noise determines their updates.
"""
import json
import math
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import (BertConfig, BertForPreTraining, BertForSequenceClassification, DistilBertConfig,
                          DistilBertForMaskedLM, DistilBertForQuestionAnswering, DistilBertForSequenceClassification)

STEPS = 10
WARMUP_STEPS = 2
ADAM = dict(beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.1, max_grad_norm=1.0)
OPTIMIZERS = {"bert_adamw": 2e-3, "adamw": 2e-3, "lamb": 2e-2, "nvlamb": 2e-2}  # name: peak learning rate

TINY = dict(vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=64, type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12)
ODD = dict(vocab_size=77, hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=52,
           max_position_embeddings=40, type_vocab_size=2, hidden_act="gelu_new", layer_norm_eps=1e-12)

DISTIL = dict(vocab_size=101, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64,
              activation="gelu")
DISTIL_HEADS = dict(classification=DistilBertForSequenceClassification, span=DistilBertForQuestionAnswering,
                    mlm=DistilBertForMaskedLM)

# name, sizes, head, LayerNorms with zero and small gamma, optimizers
MODELS = [
    ("tiny_cls", TINY, "classification", (), ("bert_adamw", "adamw", "lamb", "nvlamb")),
    ("tiny_reg", TINY, "regression", (), ("bert_adamw",)),
    ("tiny_pre", TINY, "pretraining", (), ("bert_adamw",)),
    ("odd_pre", ODD, "pretraining", (), ("bert_adamw", "adamw", "lamb", "nvlamb")),
    ("gamma_cls", TINY, "classification",
     ("bert.encoder.layer.0.attention.output.LayerNorm", "bert.encoder.layer.1.output.LayerNorm"), ("bert_adamw",)),
    ("distil_cls", DISTIL, "classification", (), ("bert_adamw", "lamb")),
    ("distil_span", DISTIL, "span", (), ("bert_adamw",)),
    ("distil_mlm", DISTIL, "mlm", (), ("bert_adamw",)),
]

# Lengths of the sequences of the three batches; step s trains on batch s % 3. The last batch holds one as long as the
# model allows (0 stands for that).
LENGTHS = [[2, 30, 17, 5, 16, 23, 11], [9, 31, 3, 15], [0, 8, 19, 2, 12]]


def norm_of(name):
    return "LayerNorm" in name or "layer_norm" in name


def make_model(sizes, head, small_gamma, seed):
    common = dict(sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
    if "dim" in sizes:
        rates = dict(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, qa_dropout=0.0)
        model = DISTIL_HEADS[head](DistilBertConfig(**sizes, **rates, attn_implementation="eager",
                                                    num_labels=3 if head == "classification" else 2))
    elif head == "classification":
        model = BertForSequenceClassification(BertConfig(**common, num_labels=3))
    elif head == "regression":
        model = BertForSequenceClassification(BertConfig(**common, num_labels=1, problem_type="regression"))
    else:
        model = BertForPreTraining(BertConfig(**common))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = rng.standard_normal(tuple(p.shape))
            if norm_of(name) and name.endswith("weight"):
                value = 1 + 0.1 * z
            elif norm_of(name):
                value = 0.1 * z
            elif name.endswith("bias"):
                value = 0.05 * z
            elif any(part in name for part in (".query.", ".key.", ".q_lin.", ".k_lin.")):
                value = 0.2 * z  # so that attention is far from uniform and its gradients are not tiny
            else:
                value = 0.08 * z
            p.copy_(torch.from_numpy(value).float())
        params = dict(model.named_parameters())
        for norm in small_gamma:
            gamma, beta = params[norm + ".weight"], params[norm + ".bias"]
            gamma[0], beta[0] = 0.0, 0.5
            gamma[5], beta[5] = 0.0, 0.0
            gamma[9], beta[9] = 0.05, 2.0
            gamma[17] = 1e-4
            gamma[31] = -0.02
    return model.eval()  # dropout is 0: eval and train are the same


def make_batches(sizes, head, rng):
    batches = []
    for lengths in LENGTHS:
        lengths = [n or sizes["max_position_embeddings"] for n in lengths]
        ids, types, rows, labels = [], [], [], []
        for i, n in enumerate(lengths):
            start = len(ids)
            ids += rng.integers(1, sizes["vocab_size"], n).tolist()  # never 0, the padding id
            split = n if i % 3 == 2 else int(rng.integers(1, n + 1))  # some sequences have one segment
            types += [0] * split + [1] * (n - split)
            count = 0 if n < 3 else max(1, round(0.2 * n))  # a sequence of 2 tokens has nothing masked
            for position in sorted(rng.choice(n, count, replace=False).tolist()):
                rows.append(start + position)
                labels.append(int(rng.integers(1, sizes["vocab_size"])))
                if rng.random() < 0.8:
                    ids[start + position] = 4
        batch = dict(lengths=lengths, input_ids=ids, token_type_ids=types)
        if head == "classification":
            batch["labels"] = rng.integers(0, 3, len(lengths)).tolist()
        elif head == "span":  # the first and the last token of the answer, counted from the sequence's first
            batch["labels"] = [int(rng.integers(0, n)) for n in lengths for _ in range(2)]
        elif head == "mlm":
            batch.update(mlm_rows=rows, mlm_labels=labels)
        elif head == "regression":
            batch["labels"] = [round(float(x), 3) for x in rng.uniform(0, 5, len(lengths))]
        else:
            batch.update(mlm_rows=rows, mlm_labels=labels, nsp_labels=rng.integers(0, 2, len(lengths)).tolist())
        batches.append(batch)
    return batches


def padded(batch, dtype):
    """The batch as Transformers takes it: a rectangle, padded on the right."""
    n, width = len(batch["lengths"]), max(batch["lengths"])
    ids, types, mask = (torch.zeros(n, width, dtype=torch.long) for _ in range(3))
    mlm = torch.full((n, width), -100)
    wanted = dict(zip(batch.get("mlm_rows", []), batch.get("mlm_labels", [])))
    row = 0
    for i, length in enumerate(batch["lengths"]):
        for j in range(length):
            ids[i, j], types[i, j], mask[i, j] = batch["input_ids"][row], batch["token_type_ids"][row], 1
            mlm[i, j] = wanted.get(row, -100)
            row += 1
    inputs = dict(input_ids=ids, token_type_ids=types, attention_mask=mask)
    if batch["distil"]:
        del inputs["token_type_ids"]
    if batch["distil"] and "mlm_rows" in batch:
        return dict(inputs, labels=mlm)
    if "nsp_labels" in batch:
        return dict(inputs, labels=mlm, next_sentence_label=torch.tensor(batch["nsp_labels"]))
    real = isinstance(batch["labels"][0], float)
    return dict(inputs, labels=torch.tensor(batch["labels"], dtype=dtype if real else torch.long))


def forward_spans(model, batch):
    """Sequence by sequence, because Transformers' loss counts padding among the tokens."""
    total, row, values = 0, 0, dict(hidden=[], logits=[])
    for i, n in enumerate(batch["lengths"]):
        start, end = (torch.tensor([x]) for x in batch["labels"][2 * i : 2 * i + 2])
        out = model(input_ids=torch.tensor([batch["input_ids"][row : row + n]]), start_positions=start,
                    end_positions=end, output_hidden_states=True)
        row, total = row + n, total + out.loss
        values["hidden"].append(out.hidden_states[-1][0])
        values["logits"].append(torch.stack((out.start_logits[0], out.end_logits[0]), -1))
    return total / len(batch["lengths"]), {name: torch.cat(parts) for name, parts in values.items()}


def forward(model, batch):
    """The values a test compares, and the loss with its graph."""
    batch = dict(batch, distil=not isinstance(model, (BertForPreTraining, BertForSequenceClassification)))
    if isinstance(model, DistilBertForQuestionAnswering):
        return forward_spans(model, batch)
    inputs = padded(batch, next(model.parameters()).dtype)
    out = model(**inputs, output_hidden_states=True)
    hidden = out.hidden_states[-1]
    real = inputs["attention_mask"].bool()
    values = dict(hidden=hidden[real])
    if not batch["distil"]:
        values["pooled"] = model.bert.pooler(hidden)
    if isinstance(model, DistilBertForMaskedLM):
        values["mlm_logits"] = out.logits[real][batch["mlm_rows"]]
    elif isinstance(model, BertForPreTraining):
        values["logits"] = out.seq_relationship_logits
        values["mlm_logits"] = out.prediction_logits[real][batch["mlm_rows"]]
    else:
        values["logits"] = out.logits
    return out.loss, values


def learning_rate(peak, step):
    """Linear warmup to the peak over WARMUP_STEPS, then linearly towards 0 at STEPS. step counts from 0."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    return peak * (STEPS - step) / (STEPS - WARMUP_STEPS)


def decayed(name):
    return not (name.endswith("bias") or norm_of(name))


class Optimizer:
    """AdamW as BERT's own training code has it, and LAMB: one tensor after another, as the formulas are written."""

    def __init__(self, kind, params):
        self.kind, self.params, self.t = kind, params, 0
        self.m = {n: torch.zeros_like(p) for n, p in params.items()}
        self.v = {n: torch.zeros_like(p) for n, p in params.items()}

    def step(self, lr):
        self.t += 1
        b1, b2 = ADAM["beta1"], ADAM["beta2"]
        correct1, correct2 = (1, 1) if self.kind == "bert_adamw" else (1 - b1**self.t, 1 - b2**self.t)
        for name, p in self.params.items():
            m, v = self.m[name], self.v[name]
            wd = ADAM["weight_decay"] if decayed(name) else 0.0
            m.mul_(b1).add_(p.grad, alpha=1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            u = (m / correct1) / ((v / correct2).sqrt() + ADAM["eps"]) + wd * p
            ratio = 1.0
            if self.kind == "nvlamb" or (self.kind == "lamb" and wd != 0):
                norm_p, norm_u = p.norm().item(), u.norm().item()
                ratio = norm_p / norm_u if norm_p > 0 and norm_u > 0 else 1.0
            p.sub_(lr * ratio * u)


def train(model, batches, kind):
    """STEPS updates. `adamw` is PyTorch's own optimizer, the others are written out above."""
    params = dict(model.named_parameters())
    if kind == "adamw":
        groups = [dict(params=[p for n, p in params.items() if decayed(n) == d],
                       weight_decay=ADAM["weight_decay"] if d else 0.0) for d in (True, False)]
        optimizer = torch.optim.AdamW(groups, betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    else:
        optimizer = Optimizer(kind, params)
    steps = []
    for step in range(STEPS):
        lr = learning_rate(OPTIMIZERS[kind], step)
        model.zero_grad(set_to_none=True)
        loss, _ = forward(model, batches[step % len(batches)])
        loss.backward()
        with torch.no_grad():
            norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in params.values()))
            for p in params.values():
                p.grad.mul_(ADAM["max_grad_norm"] / max(norm, ADAM["max_grad_norm"]))
            if kind == "adamw":
                for group in optimizer.param_groups:
                    group["lr"] = lr
                optimizer.step()
            else:
                optimizer.step(lr)
        steps.append(dict(lr=lr, loss=loss.item(), grad_norm=norm))
    return steps


def summary(name, final, first):
    flat, start = final.detach().double().flatten(), first.double().flatten()
    at = sorted({0, len(flat) // 3, 2 * len(flat) // 3, len(flat) - 1})
    return dict(name=name, sum=flat.sum().item(), l2=flat.norm().item(), moved=(flat - start).norm().item(), at=at,
                values=[flat[i].item() for i in at])


def distance(a, b):
    """‖a − b‖ / ‖b‖"""
    a, b = a.detach().double(), b.detach().double()
    return ((a - b).norm() / b.norm()).item()


def rounded(value):
    """Floats to 12 digits: beyond what fp32 can tell apart, and the files stay small."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def write_json(path, value):
    """One line per list of plain values, so that the file can be read and compared."""
    def text(v, indent):
        inner = "\n" + " " * (indent + 1)
        flat = json.dumps(v)
        if isinstance(v, dict) and (len(flat) > 300 or any(isinstance(x, (dict, list)) for x in v.values())) and "at" not in v:
            return "{" + ",".join(f"{inner}{json.dumps(k)}: {text(x, indent + 1)}" for k, x in v.items()) + "}"
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return "[" + ",".join(inner + text(x, indent + 1) for x in v) + "]"
        return flat
    with open(path, "w", encoding="utf-8") as f:
        f.write(text(rounded(value), 0) + "\n")


def make(out, name, sizes, head, small_gamma, optimizers, seed):
    model = make_model(sizes, head, small_gamma, seed)
    batches = make_batches(sizes, head, np.random.default_rng(seed + 1000))
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    model_class = type(model)

    def load(dtype):
        loaded = model_class.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
        assert next(loaded.parameters()).dtype == dtype
        return loaded.eval()

    first = {n: p.detach().clone() for n, p in model.named_parameters()}
    exact, single = load(torch.float64), load(torch.float32)
    loss, values = forward(exact, batches[0])
    loss.backward()
    loss32, values32 = forward(single, batches[0])
    loss32.backward()
    grads = {n: p.grad for n, p in exact.named_parameters()}
    grads32 = {n: p.grad for n, p in single.named_parameters()}
    zero = [n for n in grads if n.endswith(("attention.self.key.bias", "attention.k_lin.bias"))]
    if head == "span":  # what moves all tokens alike
        zero += ["distilbert.transformer.layer.1.output_layer_norm.bias", "qa_outputs.bias"]
    worst = max((n for n in grads if n not in zero), key=lambda n: distance(grads32[n], grads[n]))
    golden = dict(values, **{"grad/" + n: g for n, g in grads.items()})
    save_file({n: t.detach().float().contiguous() for n, t in golden.items()}, os.path.join(folder, "golden.safetensors"))

    torch_fp32 = dict(loss=abs(loss32.item() - loss.item()), worst_grad=distance(grads32[worst], grads[worst]),
                      worst_grad_name=worst, **{n: distance(values32[n], values[n]) for n in values})
    runs = {}
    for kind in optimizers:
        exact, single = load(torch.float64), load(torch.float32)
        steps, steps32 = train(exact, batches, kind), train(single, batches, kind)
        final, final32 = dict(exact.named_parameters()), dict(single.named_parameters())
        params = [summary(n, final[n], first[n]) for n in final]
        # how far fp32 ends from the reference, on the scale of how far the tensor moved
        off = {p["name"]: (final32[p["name"]].detach().double() - final[p["name"]].detach()).norm().item() / p["moved"]
               for p in params if p["name"] not in zero}
        far = max(off, key=off.get)
        runs[kind] = dict(peak_lr=OPTIMIZERS[kind], steps=steps, params=params,
                          torch_fp32=dict(loss=max(abs(a["loss"] - b["loss"]) for a, b in zip(steps, steps32)),
                                          worst_param=off[far], worst_param_name=far))
    describe = dict(
        made_by=f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}",
        head=head,           # classification (mean cross-entropy), regression (mean squared error), pretraining (MLM + NSP), mlm,
                             # span (mean over the sequences of the mean of both ends)
        small_gamma=list(small_gamma),  # LayerNorms with zero and small entries in gamma
        loss=loss.item(),    # of batch 0
        zero_gradient=zero,
        torch_fp32=torch_fp32,
        batches=batches,     # lengths, flat input_ids and token_type_ids; labels (span: two each), or mlm_rows (into the flat rows),
                             # mlm_labels and nsp_labels. Positions restart at 0 in every sequence.
        adam=ADAM,           # clipping: g *= max_grad_norm / max(norm, max_grad_norm); decay not for biases and LayerNorm
        no_decay=[n for n in first if not decayed(n)],
        optimizers=runs)     # step s: batch s % 3, its lr, the loss before and the gradient norm before clipping; then
                             # for every parameter after the last step: sum, l2 norm, how far it moved (l2), entries
    write_json(os.path.join(folder, "golden.json"), describe)
    print(f"{name}: {sum(p.numel() for p in first.values())} parameters, loss {loss.item():.6f}, "
          f"PyTorch fp32: hidden {torch_fp32['hidden']:.1e}, worst gradient {torch_fp32['worst_grad']:.1e} ({worst})")
    for kind, run in runs.items():
        print(f"    {kind}: loss {run['steps'][0]['loss']:.4f} → {run['steps'][-1]['loss']:.4f}, norms "
              f"{min(s['grad_norm'] for s in run['steps']):.2f}–{max(s['grad_norm'] for s in run['steps']):.2f}, PyTorch "
              f"fp32: loss {run['torch_fp32']['loss']:.1e}, {run['torch_fp32']['worst_param']:.1e} "
              f"({run['torch_fp32']['worst_param_name']})")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_bert_golden.py FOLDER")
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for i, (name, sizes, head, small_gamma, optimizers) in enumerate(MODELS):
        make(sys.argv[1], name, sizes, head, small_gamma, optimizers, 100 + i)


if __name__ == "__main__":
    main()
