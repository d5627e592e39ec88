#!/usr/bin/env python3
"""Tables and a picture of what bench/plans.sh measured.

    python3 bench/plans_report.py FILE.tsv [--svg FILE.svg]
    python3 bench/plans_report.py --published CAIRN

A case's fastest step counts, because what else runs makes steps slower; of memory the median. Memory is the peak
resident memory of the process in a step, less what is neither weights, gradients, moments nor a step's (libraries);
beside it what a micro-batch alone takes, which is what the picture shows. --published puts figures of others (bench/published.tsv) beside plans of the program CAIRN: `batch A B` is
the ratio of two policies' largest batches, `saved P` by how much activations shrink, at most, in a step that takes P %
more."""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
from html import escape

GROUPS = {  # name, colour, whether points are joined
    "cairn-auto": ("Cairn, --recompute auto", "#0072B2", True), "cairn": ("Cairn, a policy", "#56B4E9", False),
    "pytorch": ("PyTorch, checkpointing", "#D55E00", False), "pytorch-compiled": ("PyTorch, compiled for a budget", "#009E73", True)}
COLUMNS = ["shape", "round", "group", "name", "budget_mib", "step_s", "resident_mib", "other_mib", "batch_mib", "planned_s", "bound_s"]


def number(text):
    return float(text) if text else None


def read(path):
    """Lines of remarks, and {shape: (title, cases)}: a case has its group, name, seconds, and MiB."""
    remarks, shapes, cases = [], {}, {}
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n") for line in f]
    for number_of, line in enumerate(lines, 1):
        parts = line.split("\t")
        if parts[0] == "# shape":
            shapes[parts[1]] = (parts[2], [])
        elif line.startswith("#"):
            remarks.append(line[1:].strip())
        elif parts != COLUMNS:
            if len(parts) != len(COLUMNS) or parts[0] not in shapes or parts[2] not in GROUPS:
                raise SystemExit(f"{path}:{number_of}: expected {len(COLUMNS)} columns of a shape and a group that are known, found '{line}'")
            row = dict(zip(COLUMNS, parts))
            key = (row["shape"], row["group"], row["name"])
            if key not in cases:
                cases[key] = dict(group=row["group"], name=row["name"], seconds=[], resident=[], memory=[], batch=[], **{
                    k: number(row[k]) for k in ("budget_mib", "planned_s", "bound_s")})
                shapes[row["shape"]][1].append(cases[key])
            resident = float(row["resident_mib"])
            for name, value in (("seconds", float(row["step_s"])), ("resident", resident), ("memory", resident - float(row["other_mib"])),
                                ("batch", number(row["batch_mib"]))):
                if value is not None:
                    cases[key][name].append(value)
    for _, each in shapes.values():
        for c in each:
            c["rounds"], c["slowest"], c["seconds"] = len(c["seconds"]), max(c["seconds"]), min(c["seconds"])
            c.update({k: statistics.median(c[k]) for k in ("resident", "memory", "batch") if c[k]})
        each.sort(key=lambda c: (list(GROUPS).index(c["group"]), c["memory"]))
    return remarks, shapes


def against(case, cases):
    """Seconds of a case of PyTorch's over those of the fastest that --recompute auto has in no more memory, if it has any."""
    ours = [c["seconds"] for c in cases if c["group"] == "cairn-auto" and c["memory"] <= case["memory"]]
    return f"{case['seconds'] / min(ours):.2f}" if ours and not case["group"].startswith("cairn") else ""


def tables(remarks, shapes):
    out = [" · ".join(remarks[:2]) + ".", ""]
    for title, cases in shapes.values():
        out += [f"**{title}**", "", "| | what | budget, MiB | s a step (to the slowest) | rounds | peak resident, MiB | less libraries | of a micro-batch "
                "| times auto's in no more memory | predicted s, at least |", "|---|---|---|---|---|---|---|---|---|---|"]
        for c in cases:
            budget = f"{c['budget_mib']:.0f}" if c["budget_mib"] else ""
            planned = f"{c['planned_s']:.3g}, {c['bound_s']:.3g}" if c["planned_s"] else ""
            out.append(f"| {GROUPS[c['group']][0]} | `{c['name']}` | {budget} | {c['seconds']:.3g} (–{c['slowest']:.3g}) "
                       f"| {c['rounds']} | {c['resident']:.0f} | {c['memory']:.0f} | {c['batch']:.0f} | {against(c, cases)} | {planned} |")
        out.append("")
    return "\n".join(out + remarks[2:])


# ---- the picture: a panel for each shape, as src/report/svg.c draws charts ----

WIDTH, LEFT, RIGHT, PLOT, BELOW, ABOVE = 430, 58, 16, 240, 52, 34


def ticks(low, high, most=5):
    """Round numbers from `low` or below it to `high` or above it."""
    power = 1e-3
    while True:
        for factor in (1, 2, 2.5, 5):
            step = factor * power
            first, last = math.floor(low / step), math.ceil(high / step)
            if last - first <= most:
                return [i * step for i in range(first, last + 1)]
        power *= 10


class Labels:
    """Names beside points, each at the first of some places where it covers no point and no other name."""
    SIZE, LETTER = 9.5, 5.3

    def __init__(self, points):
        self.taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]

    def place(self, out, x, y, name, left, right):
        wide, middle = self.LETTER * len(name), self.SIZE / 2
        for dx, dy in ((7, 3), (-7 - wide, 3), (-wide / 2, -8), (-wide / 2, 16), (6, -6), (6, 13), (-6 - wide, -6), (-6 - wide, 13)):
            box = (x + dx, y + dy - 2 * middle + 2, x + dx + wide, y + dy + 1)
            if left < box[0] and box[2] < right and not any(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in self.taken):
                self.taken.append(box)
                out.append(f'<text x="{box[0]:.1f}" y="{y + dy:.1f}" font-size="{self.SIZE}" fill="#555">{escape(name)}</text>')
                return


def panel(out, title, cases, x0, y0):
    xs, ys = (ticks(0, max(c[k] for c in cases)) for k in ("batch", "seconds"))
    left, right, top, floor = x0 + LEFT, x0 + WIDTH - RIGHT, y0 + ABOVE, y0 + ABOVE + PLOT

    def across(mib):
        return left + (mib - xs[0]) / (xs[-1] - xs[0]) * (right - left)

    def up(s):
        return floor - s / ys[-1] * PLOT

    def at(case):
        return across(case["batch"]), up(case["seconds"])

    out.append(f'<text x="{left}" y="{y0 + 22}" font-size="14" font-weight="bold">{escape(title)}</text>')
    for v in ys:
        y = up(v)
        out.append(f'<path d="M{left},{y:.1f}H{right}" class="grid" stroke="#ddd"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{v:.4g}</text>')
    for v in xs:
        x = across(v)
        out.append(f'<path d="M{x:.1f},{floor}v5" stroke="#888"/><text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{v:.6g}</text>')
    out.append(f'<path d="M{left},{floor}H{right}" stroke="#888"/>')
    out.append(f'<text x="{(left + right) / 2}" y="{floor + 40}" text-anchor="middle">MiB that a micro-batch takes</text>')
    middle = (top + floor) / 2
    out.append(f'<text x="{x0 + 14}" y="{middle}" text-anchor="middle" transform="rotate(-90 {x0 + 14} {middle})">seconds a step</text>')
    labels = Labels([at(c) for c in cases])
    for group, (_, colour, joined) in GROUPS.items():
        own = [c for c in cases if c["group"] == group]
        if group == "pytorch-compiled":  # in the order of budgets, which that of memory need not be
            own.sort(key=lambda c: float(c["name"].removeprefix("budget:")))
        points = [(at(c), c["name"]) for c in own]
        if joined and len(points) > 1:
            out.append(f'<path d="M{"L".join(f"{x:.1f},{y:.1f}" for (x, y), _ in points)}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for (x, y), name in points:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(name)}</title></circle>')
            if group != "cairn-auto":
                labels.place(out, x, y, name.removeprefix("budget:"), left, right)


def draw(shapes):
    drawn = [(title, cases) for title, cases in shapes.values() if cases]
    height, width = 28 + (len(drawn) + 1) // 2 * (ABOVE + PLOT + BELOW), 2 * WIDTH
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#333" role="img">',
           f'<rect width="{width}" height="{height}" class="paper" fill="#fff"/>']
    x = 14
    for name, colour, _ in (each for group, each in GROUPS.items() if any(c["group"] == group for _, cases in drawn for c in cases)):
        out.append(f'<circle cx="{x + 6}" cy="16" r="4" fill="{colour}"/><text x="{x + 16}" y="20">{escape(name)}</text>')
        x += 34 + 6.4 * len(name)
    for i, (title, cases) in enumerate(drawn):
        panel(out, title, cases, i % 2 * WIDTH, 28 + i // 2 * (ABOVE + PLOT + BELOW))
    return "\n".join(out + ["</svg>", ""])


# ---- figures of others ----

def plan(cairn, flags, extra=()):
    """{policy: its plan}, in fp32, on this host's CPU or on a device that it may lack."""
    model, length, budget, device = flags.split()
    where = [] if device == "cpu" else ["--device", device]
    done = subprocess.run([cairn, "plan", "--model-config", model, "--max-seq-length", length, "--padded", "--batch-size", "32",
                           "--precision", "fp32", "--memory-budget", budget, "--json", *where, *extra],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    try:
        return {p["name"].split()[0]: p for p in json.loads(done.stdout)["policies"]}
    except ValueError:
        return {}  # no plan fits, or there is no such program


def saved(cairn, flags, percent):
    """The smallest activations within the time, of --recompute auto by halving the budget, and of the policies."""
    plans = plan(cairn, flags)
    none = plans["none"]
    best, low, high = none, 0, none["peak"]
    for _ in range(12):
        middle = (low + high) // 2
        auto = plan(cairn, flags, ["--recompute", "auto", "--memory-budget", str(middle)]).get("auto")
        if auto and auto["step_s"] <= (1 + percent / 100) * none["step_s"]:
            best, high = auto, middle
        else:
            low = middle
    ratio = none["bytes"]["activations"] / best["bytes"]["activations"]
    return f"{ratio:.1f} times less ({100 - 100 / ratio:.0f} %), overhead {100 * (best['step_s'] / none['step_s'] - 1):.0f} %: `{best['name']}`"


def published(cairn):
    out = ["| | of | published | Cairn, planned | for | source |", "|---|---|---|---|---|---|"]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "published.tsv"), encoding="utf-8") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            kind, *words = row["ours"].split()
            if kind == "batch":
                a, b = (plan(cairn, row["flags"])[w] for w in words)
                ours = (f"{a['max_batch'] / b['max_batch']:.1f} × ({words[0]} {a['max_batch']}, {words[1]} {b['max_batch']}), "
                        f"throughput {100 * (a['seq_per_s'] / b['seq_per_s'] - 1):+.0f} %")
            else:
                ours = saved(cairn, row["flags"], float(words[0]))
            out.append(f"| {row['system']}, {row['where']} | {row['of']} | {row['figure']} | {ours} | {row['flags']} | {row['source']} |")
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", nargs="?")
    p.add_argument("--svg", metavar="FILE")
    p.add_argument("--published", metavar="CAIRN")
    args = p.parse_args()
    if args.published:
        print(published(args.published))
        return
    if not args.file:
        p.error("expected a FILE.tsv of bench/plans.sh, or --published CAIRN")
    remarks, shapes = read(args.file)
    if not any(cases for _, cases in shapes.values()):
        raise SystemExit(f"{args.file}: expected lines of measured steps, found none")
    print(tables(remarks, shapes))
    if args.svg:
        with open(args.svg, "w", encoding="utf-8") as f:
            f.write(draw(shapes))
        print(f"drawn: {args.svg}", file=sys.stderr)


if __name__ == "__main__":
    main()
