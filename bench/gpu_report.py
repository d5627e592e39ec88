#!/usr/bin/env python3
"""What bench/gpu.sh measured, as the tables of bench/RESULTS.md.

    python3 bench/gpu_report.py [--gpu NAME] [--write] DIR

DIR holds gpu-<NAME>-<part>.jsonl. Of two lines about the same thing the later one counts. With --write the section of this GPU in
bench/RESULTS.md is replaced, or added at the end."""
import argparse
import glob
import json
import os
import re
import sys

TARGETS = [  # issue's row, case, policy, seq/s
    ("G1", "large-128", "none", 2350), ("G2", "large-512", "none", 520), ("G3", "large-wiki", "none", 1050),
    ("G4", "base-128", "none", 7300), ("G4", "base-512", "none", 1600)]
PEERS = [("large-128", 1.5), ("large-512", 1.5), ("base-128", 1.8), ("base-512", 1.8), ("large-wiki", 2.8), ("base-wiki", 2.8),
         ("large-mnli", 3.0), ("base-mnli", 3.0)]
BF16_PEAK = {"h200": 989e12, "h100": 989e12, "a100": 312e12, "b200": 2250e12}


def read(folder, gpu):
    """{(kind, case, what tells lines of a case apart): line}."""
    lines = {}
    for path in sorted(glob.glob(os.path.join(folder, f"gpu-{gpu}-*.jsonl"))):
        with open(path, encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                try:
                    line = json.loads(text)
                except ValueError:
                    print(f"{path}:{number}: not JSON, passed over", file=sys.stderr)
                    continue
                line["case"] = str(line.get("case", "")).removesuffix("-policies")  # the same case, its other policies
                part = re.search(r"-([a-z]+)\.jsonl$", path).group(1)
                key = tuple(str(line.get(k, "")) for k in ("kind", "case", "policy", "setting", "phase", "op", "in", "out", "order", "proposal"))
                lines[key + ((part,) if line["kind"] in ("run", "left_out") else ())] = line
    return list(lines.values())


def of(lines, kind, **what):
    return [x for x in lines if x["kind"] == kind and all(x.get(k) == v for k, v in what.items())]


def table(out, head, rows):
    if rows:
        out.append("| " + " | ".join(head) + " |")
        out.append("|" + "---|" * len(head))
        out.extend("| " + " | ".join(r) + " |" for r in rows)
        out.append("")


def verdict(met):
    return "met" if met else "**missed**"


def goals(lines, peak):
    rows = []
    for goal, case, policy, target in TARGETS:
        for x in of(lines, "step", case=case, policy=policy):
            share = f", {100 * x['flops'] / x['step_s'] / peak:.1f} % of the peak" if peak else ""
            rows.append((goal, f"{case}, `{policy}`", f"≥ {target} seq/s", f"{x['seq_per_s']:.4g} seq/s{share}",
                         verdict(x["seq_per_s"] >= target)))
    for case, target in PEERS:
        ours = [x["seq_per_s"] for x in of(lines, "step", case=case)]
        theirs = of(lines, "peer", case=case)
        best = max((x for x in theirs if "checkpointing" not in x["setting"]), key=lambda x: x["seq_per_s"], default=None)
        if ours and best:
            ratio = max(ours) / best["seq_per_s"]
            rows.append(("G5", case, f"≥ {target} ×", f"{ratio:.2f} × ({max(ours):.4g} against {best['seq_per_s']:.4g}, {best['setting']})",
                         verdict(ratio >= target)))
        saving = max((x for x in theirs if "checkpointing" in x["setting"]), key=lambda x: x["seq_per_s"], default=None)
        within = [x for x in of(lines, "step", case=case) if saving and x["plan_bytes"] + x["context_bytes"] <= saving["peak_bytes"]]
        if within:
            target = 3.5 if case.endswith(("wiki", "mnli")) else 2.0
            own = max(within, key=lambda x: x["seq_per_s"])
            ratio = own["seq_per_s"] / saving["seq_per_s"]
            rows.append(("G6", f"{case}, `{own['policy']}`", f"≥ {target} ×", f"{ratio:.2f} × at no more memory", verdict(ratio >= target)))
    base = {x["policy"]: x for x in of(lines, "step", case="large-128")}
    if "none" in base:
        none = base["none"]["step_s"]
        bounds = {"lean": ("G7", 2.0), "selective": ("G8", 22.4), "full": ("G8", 27.2)}
        for policy, (goal, most) in bounds.items():
            if policy in base:
                slower = 100 * (base[policy]["step_s"] / none - 1)
                rows.append((goal, f"large-128, `{policy}`", f"≤ {most} % slower", f"{slower:+.1f} %", verdict(slower <= most)))
        if "lean" in base:
            kib = base["lean"]["kept_per_token_layer"] / 1024
            rows.append(("G7", "large-128, `lean`", "≤ 20.2 KiB", f"{kib:.2f} KiB per token and layer", verdict(kib <= 20.2)))
        update = base["none"]["update_s"] * 1e3
        rows.append(("G12", "large, norm, LAMB, copies", "≤ 3.6 ms", f"{update:.2f} ms", verdict(update <= 3.6)))
        cpu = base["none"]["cpu_s"] * 1e3
        rows.append(("G14", "large-128, CPU per step", "< 1 ms", f"{cpu:.2f} ms", verdict(cpu < 1)))
    for x in of(lines, "idle", case="large-128"):
        rows.append(("G14", "large-128, between instrs", "< 1 %", f"{100 * x['idle']:.2f} % (step less its instrs, each timed apart)",
                     verdict(x["idle"] < 0.01)))
    for x in of(lines, "step", case="large-128-16gib"):
        rows.append(("G9", f"large at 128, `{x['policy']}`, 16 GiB", "≥ 700", f"{x['sequences']:.0f} sequences", verdict(x["sequences"] >= 700)))
    rows.extend(memory(lines))
    rows.extend(cost_of_order(lines))
    rows.extend(rates(lines))
    cases = {}
    for x in of(lines, "step"):
        if not x["case"].endswith("-any-order"):
            cases.setdefault(x["case"], []).append(x)
    for case, steps in cases.items():
        same = all(x["same_bits"] for x in steps) and len({x["digest"] for x in steps}) == 1
        rows.append(("G11", case, "equal bits", "equal over policies and rounds" if same else "DIFFERENT", verdict(same)))
    return rows


MARGIN = 2**28  # DEVICE_MARGIN of src/train/parts/account.c


def memory(lines):
    """Of the process after its steps, and of the whole GPU at its peak, against the plan with context and libraries as
    they were measured after a product of each type. What is above it must fit the margin that --memory-budget auto
    leaves."""
    rows = []
    for x in of(lines, "step"):
        if x.get("used_bytes"):
            rows.append(peak_row(f"{x['case']}, `{x['policy']}`, the process", x["used_bytes"], x["device_bytes"] + x["context_bytes"]))
    for x in of(lines, "memory"):
        used = (x["peak_mib"] - x["before_mib"]) * 2.0**20
        most = max((s["device_bytes"] + s["context_bytes"] for s in of(lines, "step", case=x["case"])), default=0)
        if most and used > 0:
            rows.append(peak_row(f"{x['case']}, the GPU", used, most))
    return rows


def peak_row(what, used, planned):
    off = 100 * (used / planned - 1)
    above = f", {(used - planned) / 2**20:.0f} MiB of the margin of {MARGIN / 2**20:.0f}" if used > planned else ""
    return ("G10", what, "within 3 %, never over", f"{used / 2**20:.0f} MiB, planned {planned / 2**20:.0f} ({off:+.2f} %){above}",
            verdict(-3 <= off <= 0))


def cost_of_order(lines):
    """Products that add in a fixed order against those that need not; our own kernels have the fixed one only."""
    fixed, free = (of(lines, "step", case=c, policy="none") for c in ("large-128", "large-128-any-order"))
    if not fixed or not free:
        return []
    cost = 100 * (fixed[0]["step_s"] / free[0]["step_s"] - 1)
    return [("G11", "large-128, products' sums in a fixed order against any", "≤ 3 %", f"{cost:+.1f} %", verdict(cost <= 3))]


def rates(lines):
    """Bytes that must move over the time of an op on its own; of MLM_XENT what is left when its products are taken off
    at the rate of the large product of the same run."""
    rows = []
    product = [x["flops"] for x in of(lines, "machine", case="large-128")]
    for op, target in (("ADDNORM", 3.8), ("ADDNORM_BWD", 3.4), ("GELU", 3.8), ("GELU_BWD", 3.4), ("MLM_XENT", 3.4)):
        for x in of(lines, "op", case="large-128"):
            if x["op"].upper() != op:
                continue
            seconds = x["seconds"] - (x["flops"] / product[0] if x["flops"] and product else 0)
            what = f"large-128, {op}, {x['in']} columns" + (" (without its products)" if x["flops"] else "")
            if seconds <= 0:
                rows.append(("G13", what, f"≥ {target} TB/s", "the products alone would take longer", "–"))
                continue
            rate = x["bytes"] / seconds / 1e12
            rows.append(("G13", what, f"≥ {target} TB/s", f"{rate:.2f} TB/s", verdict(rate >= target)))
    return rows


def products(lines):
    """The fastest proposal for each product alone, with sums in a fixed order and in any other."""
    best = {}
    for x in of(lines, "product"):
        key = (x["case"], x["order"])
        if key not in best or x["ms"] < best[key]["ms"]:
            best[key] = x
    return [(x["case"], order, f"{x['m']} × {x['n']} × {x['k']}", f"{x['ms']:.4f}", f"{x['tflops']:.0f}", str(x["tile"]),
             str(x["split_k"]), f"{x['waves']:.2f}", f"{x['workspace'] / 2**20:.0f}") for (_, order), x in best.items()]


def kernels(lines):
    rows = []
    for x in of(lines, "op"):
        rate, speed = x["flops"] / x["seconds"] / 1e12, x["bytes"] / x["seconds"] / 1e9
        rows.append((x["calls"] * x["seconds"], (x["case"], x["phase"], x["op"], f"{x['in']} → {x['out']}", str(x["calls"]),
                                                 f"{1e3 * x['seconds']:.4f}", f"{rate:.1f}", f"{speed:.0f}")))
    return [r for _, r in sorted(rows, key=lambda r: (r[1][0], -r[0]))]


def report(lines, gpu):
    out = [f"## GPU: {gpu}", ""]
    for x in of(lines, "run"):
        out.append(f"{x['date']}, commit {x['commit']}, backend {x['backend']}, driver, power limit and clock: {x['driver'] or '–'}. Command: `bench/gpu.sh`.")
    out.append("")
    peak = next((v for k, v in BF16_PEAK.items() if k in gpu), 0)
    for x in of(lines, "machine", case="large-128") + of(lines, "machine", case="large-wiki"):
        out.append(f"The machine in the same run ({x['case']}): bf16 product {x['product'][0]}³ {x['flops'] / 1e12:.1f} TFLOP/s; GELU, read and written, {x['bytes'] / 1e12:.2f} TB/s.")
    for x in of(lines, "ceilings"):
        out.append(f"PyTorch's ({x['case']}): product {x['product'] / 1e12:.1f} TFLOP/s, copy {x['copy_bytes_per_s'] / 1e12:.2f} TB/s.")
    out.append("")
    rows = goals(lines, peak)
    if gpu == "dry-run":
        out += ["A dry run on the host executor with tiny shapes: these figures say nothing of any GPU.", ""]
        rows = [r[:4] + ("–",) for r in rows]
    table(out, ("", "what", "target", "measured", ""), rows)
    table(out, ("case", "policy", "sequences", "ms a step", "seq/s", "tokens/s", "TFLOP/s", "activations MiB", "plan MiB", "update ms"),
          [(x["case"], x["policy"], f"{x['sequences']:.6g}", f"{1e3 * x['step_s']:.3f}", f"{x['seq_per_s']:.5g}", f"{x['tokens_per_s']:.5g}",
            f"{x['tflops']:.1f}", f"{x['act_bytes'] / 2**20:.0f}", f"{x['plan_bytes'] / 2**20:.0f}", f"{1e3 * x['update_s']:.3f}")
           for x in of(lines, "step")])
    table(out, ("case", "PyTorch", "batch", "ms a step", "seq/s", "tokens/s", "peak MiB"),
          [(x["case"], x["setting"], str(x["batch"]), f"{1e3 * x['step_s']:.3f}", f"{x['seq_per_s']:.5g}", f"{x['tokens_per_s']:.5g}",
            f"{x['peak_bytes'] / 2**20:.0f}") for x in of(lines, "peer")])
    table(out, ("case", "ranks", "bytes of a sum", "ms", "bus GB/s"),
          [(x["case"], str(x["ranks"]), str(x["bytes"]), f"{1e3 * x['seconds']:.4f}", f"{x['bus_bytes_per_s'] / 1e9:.1f}")
           for x in of(lines, "all_reduce")])
    table(out, ("case", "ranks", "sequences of each", "ms a step alone", "together", "of linear", "seq/s"),
          [(x["case"], str(x["ranks"]), f"{x['sequences']} × {x['length']}", f"{1e3 * x['alone_s']:.3f}", f"{1e3 * x['step_s']:.3f}",
            f"{100 * x['efficiency']:.1f} %", f"{x['seq_per_s']:.5g}") for x in of(lines, "ranks")])
    table(out, ("product", "order of sums", "m × n × k", "ms", "TFLOP/s", "tile", "split", "waves", "workspace MiB"), products(lines))
    table(out, ("case", "phase", "op", "columns", "calls", "ms", "TFLOP/s", "GB/s"), kernels(lines))
    tests = of(lines, "test")
    if tests:
        bad = [x["case"] for x in tests if x["verdict"] != "passed"]
        out.append(f"Tests on the device: {len(tests) - len(bad)} of {len(tests)} passed" + (f"; not: {', '.join(bad)}." if bad else "."))
        out.append("")
    for x in of(lines, "failed"):
        out.append(f"Failed: {x['case']}{', ' + x['policy'] if x['policy'] else ''}: {x['why']}.")
    for x in of(lines, "left_out"):
        out.append(f"Left out: {x['case']}{' ' + x['setting'] if 'setting' in x else ''}: {x['why']}.")
    return "\n".join(out).rstrip() + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--gpu", default="*")
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    text = report(read(args.folder, args.gpu), args.gpu)
    print(text, end="")
    if args.write:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "RESULTS.md")
        with open(path, encoding="utf-8") as f:
            old = f.read()
        section = re.compile(r"^## GPU: " + re.escape(args.gpu) + r"\n.*?(?=^## |\Z)", re.S | re.M)
        new = section.sub(lambda _: text + "\n", old) if section.search(old) else old.rstrip() + "\n\n" + text
        with open(path, "w", encoding="utf-8") as f:
            f.write(new.rstrip() + "\n")


if __name__ == "__main__":
    main()
