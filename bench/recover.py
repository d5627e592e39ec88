#!/usr/bin/env python3
"""Starts and recoveries of two builds, interleaved: recover.py OLD NEW [--ranks N] [--rounds N] [--case CASE …]

OLD, NEW: folders of built programs (cairn, cairn_cpu.so, cairn_gloo.so). Each run is `cairn launch --ranks N -- glue`
with a tiny model on the bundled sample, one thread a rank, --peer-timeout 6 s. CASE:
  start    from the command to its end, of 5 steps; and the sockets that a rank holds
  kill:R   rank R is killed in training: to the next step that any process makes
  stop:R   rank R freezes (SIGSTOP)
  host:H   the ranks are on two hosts (network namespaces, as root); all processes of host H (1, 2) are killed
A line of JSON for each build and case: the rounds' seconds, their median.
"""
import argparse, contextlib, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("old")
parser.add_argument("new")
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--case", nargs="+", default=["start", "kill:0", "kill:1", "stop:0", "stop:1"])
args = parser.parse_args()
programs = {"old": os.path.realpath(args.old) + "/cairn", "new": os.path.realpath(args.new) + "/cairn"}

# Runs this program again between the namespaces of two hosts, h1 and h2.
ENTER = '''work=$(mktemp -d); source "$1"; within_hosts 2 -c "$ENTER" enter "$@"; shift; "$@"; rm -r -- "$work"'''
hosts = any(case.startswith("host") for case in args.case)
if hosts and "CAIRN_TEST_HOSTS" not in os.environ:
    here = os.path.dirname(os.path.realpath(__file__))
    words = [sys.executable, os.path.realpath(__file__), os.path.realpath(args.old), os.path.realpath(args.new)]
    words += ["--ranks", str(args.ranks), "--rounds", str(args.rounds), "--case", *args.case]
    os.environ["ENTER"] = ENTER
    os.execvp("bash", ["bash", "-c", ENTER, "enter", here + "/../tests/dist/hosts.sh", *words])

sample = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "tasks", "glue", "sample", "train.tsv"))
work = tempfile.mkdtemp(prefix="cairn-recover-")
os.chdir(work)

subprocess.run([programs["new"], "vocab", "--input", sample, "--size", "600", "--output", "vocab.txt"],
               check=True, stderr=subprocess.DEVNULL)
os.mkdir("data")
with open(sample) as all_rows, open("data/train.tsv", "w") as few:
    few.writelines(all_rows.readlines()[:201])
with open("config.json", "w") as f:
    json.dump({"vocab_size": sum(1 for _ in open("vocab.txt")), "hidden_size": 32, "num_hidden_layers": 2,
               "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128}, f)

with open("hosts", "w") as f:
    f.write(f"h1 slots={(args.ranks + 1) // 2}\nh2 slots={args.ranks // 2}\n")


def launch(program, steps, out):
    place = ["--ranks", str(args.ranks), *(["--hosts", "hosts"] if hosts else [])]
    words = [program, "launch", *place, "--peer-timeout", "6s", "--max-restarts", "3", "--",
             "glue", "--do-train", "--data-dir", "data", "--model-config", "config.json", "--vocab", "vocab.txt", "--max-seq-length", "16",
             "--threads", "1", "--batch-size", str(4 * args.ranks), "--max-steps", str(steps), "--output-dir", out]
    log = open(out + ".log", "w")
    return subprocess.Popen(words, env=dict(os.environ, CAIRN_SNAPSHOT_DIR=work + "/memory"), stdout=log, stderr=log)


def ranks_of(out):
    """{rank: process} of the run in that folder."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\0")
            rank = re.search(r"\0RANK=(\d+)\0", open(f"/proc/{pid}/environ").read())
        except OSError:
            continue
        if out in words and "launch" not in words and rank:
            found[int(rank[1])] = int(pid)
    return found


def sockets(pid):
    try:
        return sum(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket") for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def last_step(out):
    try:
        with open(out + "/metrics.jsonl") as f:
            return int((re.findall(r'"step": (\d+)', f.read()) or [-1])[-1])
    except OSError:
        return -1


def check(run, out, good):
    if not good:
        sys.exit(f"recover.py: {out} ended with {run.returncode}:\n" + open(out + ".log").read()[-2000:])


def start(program, out):
    begin, most = time.monotonic(), 0
    run = launch(program, 5, out)
    while run.poll() is None:
        most = max([most] + [sockets(pid) for pid in ranks_of(out).values()])
        time.sleep(0.05)
    check(run, out, run.returncode == 0)
    return time.monotonic() - begin, most


def processes_of_host(number):
    return [int(pid) for pid in subprocess.run(["ip", "netns", "pids", f"h{number}"], check=True, capture_output=True,
                                               text=True).stdout.split()]


def fault(program, out, kind, victim):
    run = launch(program, 1000000, out)
    while last_step(out) < 60:
        check(run, out, run.poll() is None)
        time.sleep(0.01)
    first = ranks_of(out)
    begin = time.monotonic()
    pids = [first[victim]] if kind != "host" else processes_of_host(victim)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a rank ends with its agent
            os.kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    while any(os.path.exists(f"/proc/{pid}") for pid in first.values()):
        time.sleep(0.005)
    reached = last_step(out)
    while last_step(out) <= reached:
        check(run, out, run.poll() is None)
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    run.terminate()
    run.wait()
    return seconds, 0


try:
    for case in args.case:
        rounds = {"old": [], "new": []}
        for i in range(args.rounds):
            for build, program in programs.items():
                kind, _, victim = case.partition(":")
                out = f"{case.replace(':', '-')}-{i}-{build}"
                rounds[build].append(start(program, out) if kind == "start" else fault(program, out, kind, int(victim)))
                shutil.rmtree(out)
        for build, each in rounds.items():
            line = {"case": case, "ranks": args.ranks, "build": build, "seconds": [round(s, 2) for s, _ in each],
                    "median": round(statistics.median(s for s, _ in each), 2)}
            if case == "start":
                line["sockets"] = max(n for _, n in each)
            print(json.dumps(line), flush=True)
finally:
    os.chdir("/")
    shutil.rmtree(work)
