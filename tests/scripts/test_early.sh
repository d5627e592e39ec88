#!/usr/bin/env bash
# What a run refuses at once: every flag of every stage, folders, sizes and the plan, before it reads or writes data. And
# what it warns of.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data
for split in train dev_matched dev_mismatched; do head -n 21 "$sample/$split.tsv" >"data/$split.tsv"; done
dump=$source_dir/tasks/pretrain/sample/sample.xml

# -- from a dump: refused before the first stage
from_dump=("$CAIRN_BINARY" pretrain --input "$dump" --model-config bert-tiny --output-dir "made/run" --threads 1)
refused() { # CODE TEXT... -- FLAG...
    local code=$1 texts=()
    shift
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    expect "$code" "${from_dump[@]}" "$@"
    says "${texts[@]}"
    [ ! -e made ] || { complain "$*: refused, but something was written" && rm -r made; }
}
refused 2 "--recompute 'half' is unknown" -- --recompute half
refused 2 "--recompute 'full×3' is for 3 layers; its numbers must add up to the model's 2" -- --recompute full*3
refused 2 "--schedule 'zigzag' is unknown" -- --schedule zigzag
refused 2 "--warmup 'soon'" -- --warmup soon
refused 2 "--warmup '20' is more than the 10 steps" -- --warmup 20 --max-steps 10
refused 2 "--micro-batch-tokens 'many'" -- --micro-batch-tokens many
refused 2 "--loss-scale 'big'" -- --loss-scale big
refused 2 "--snapshot-steps 'often'" -- --snapshot-steps often
refused 2 "--snapshot-replicas 'all'" -- --snapshot-replicas all
refused 2 "backend 'abacus'" -- --backend abacus
refused 2 "--max-seq-length 600 is more than the 512 positions" -- --max-seq-length 600
refused 2 "pairs need 8" -- --max-seq-length 6
refused 2 "--eval-dir nowhere" -- --eval-dir nowhere
refused 2 "tiny/vocab.txt has" -- --model-config "$sample/config.json" --vocab tiny/vocab.txt --max-seq-length 64
refused 76 "memory budget of 10.0 MiB" -- --memory-budget 10MiB
refused 1 "nowhere.xml" -- --input nowhere.xml
refused 2 "/proc/nowhere" -- --output-dir /proc/nowhere
mkdir other && sed 's/"hidden_size": 32/"hidden_size": 64/' tiny/config.json >other/config.json
cp tiny/vocab.txt other/
expect 0 "$CAIRN_BINARY" glue --do-train --max-steps 1 --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt \
    --output-dir trained --threads 1
cp trained/model.safetensors other/
refused 1 "wrong shape" -- --model other --model-config other/config.json

# -- with data: refused before it is read
train=("$CAIRN_BINARY" glue --do-train --do-eval --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt --max-seq-length 64
    --max-steps 2 --threads 1)
at_once() { # CODE TEXT -- FLAG...
    local code=$1 text=$2
    shift 3
    expect "$code" "${train[@]}" --output-dir fresh "$@"
    says "$text"
    grep -q 'examples,' <<<"$output" && complain "$*: told only after the data was read"
    [ ! -e fresh ] || { complain "$*: refused, but something was written" && rm -r fresh; }
}
at_once 2 /proc/nowhere -- --submission /proc/nowhere
at_once 2 /proc/nowhere -- --output-dir /proc/nowhere
at_once 2 "--schedule 'zigzag'" -- --schedule zigzag
at_once 2 "--recompute 'half'" -- --recompute half
at_once 2 "--recompute 'none×1' is for 1 layer;" -- --recompute none*1
at_once 2 "no split 'dev_other'" -- --eval-splits dev_other
at_once 2 "--task 'Quora' is unknown" -- --task Quora
echo kept >notes.txt
at_once 2 "--persist-file notes.txt: expected nothing, or the empty file" -- --persist-file notes.txt
[ "$(cat notes.txt)" = kept ] || complain "--persist-file cost a file of the user's"
at_once 2 "--persist-file data: expected nothing, or the empty file" -- --persist-file data
expect 2 "$CAIRN_BINARY" vocab --input "$dump" --output nowhere/vocab.txt
says "the folder nowhere does not exist"

# -- doubts: warned of, and done all the same
expect 0 "${train[@]}" --output-dir doubts --threads 64 --learning-rate 50 --wire bf16 --bucket-size 1MiB --batch-size 64 \
    --max-steps 1 --max-seq-length 16
says "--threads 64 on" "--learning-rate 50 is far above" "--wire, --bucket-size are without effect" \
    "there are 20, so every step takes all of them"
expect 0 "${train[@]}" --output-dir alone --max-steps 1 --peer-timeout 9s --connect-timeout 9s --rendezvous "file:$work" \
    --iface lo --comm gloo --snapshot-replicas 0
says "warning: --rendezvous, --iface, --connect-timeout, --peer-timeout, --comm are without effect: this run has one rank"
grep -q -- --snapshot-replicas <<<"$output" && complain "one rank keeps its snapshots: $output"
# The steps of --epochs are known only after the data: a longer warmup is cut.
expect 0 "$CAIRN_BINARY" glue --do-train --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt --max-seq-length 16 \
    --threads 1 --epochs 1 --batch-size 4 --output-dir cut --schedule cosine --warmup 10 --learning-rate 5e-5
says "warning: --warmup 10 is more than the 5 steps of this run by --epochs 1"
tail -n 1 cut/metrics.jsonl | grep -qE '"(learning_rate|lr)": ?5e-0?5[,}]' || complain "the rate's peak: $(tail -n 1 cut/metrics.jsonl)"
# Without training. A file of options may be that of a training run.
evaluate=("$CAIRN_BINARY" glue --do-eval --data-dir data --model doubts --threads 1)
expect 0 "${evaluate[@]}" --output-dir evaluated --wire bf16 --label-smoothing 0.1 --schedule constant --iface lo
says "warning: --schedule, --label-smoothing, --wire are without effect: this run does not train" \
    "warning: --iface is without effect: this run has one rank"
expect 0 "${evaluate[@]}" --output-dir evaluated --config alone/run.json --no-do-train
grep -q 'only training' <<<"$output" && complain "a training run's file warns where it evaluates: $output"
printf 'text\nA fine day.\n' >texts.csv
expect 0 "$CAIRN_BINARY" predict --model doubts --input texts.csv --text-columns text,text --comm gloo --iface lo --threads 1
says "warning: --iface, --comm are without effect: this run has one rank"
if [ -e "$(dirname "$CAIRN_BINARY")/cairn_gloo.so" ]; then # the launcher uses them
    CAIRN_TEST_AGENT_SILENCE=1h expect 0 "$CAIRN_BINARY" launch --ranks 1 -- "${train[@]:1}" --output-dir launched --batch-size 8 --peer-timeout 9s --connect-timeout 9s
    grep -q '^warning' <<<"$output" && complain "one rank of a launcher warns: $output"
fi
expect 0 "${train[@]}" --output-dir plain --batch-size 8
grep -q '^warning' <<<"$output" && complain "an ordinary run warns: $output"
finish
