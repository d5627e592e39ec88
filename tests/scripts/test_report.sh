#!/usr/bin/env bash
# cairn report over runs made here: what run.json says of a run, wall time over its processes, memory that adds up, a proof,
# and nothing written unasked.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data
for split in train dev_matched; do head -n 41 "$sample/$split.tsv" >"data/$split.tsv"; done
run=("$CAIRN_BINARY" glue --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt --do-train --do-eval
    --eval-splits dev_matched --max-seq-length 32 --batch-size 8 --micro-batch-tokens 128 --threads 1 --snapshot-dir none
    --digest-steps 2)
expect 0 "${run[@]}" --max-steps 4 --output-dir none
expect 0 "${run[@]}" --max-steps 4 --recompute full --output-dir full

# Without --output-dir the table alone.
mkdir empty
expect 0 env -C empty "$CAIRN_BINARY" report ../none ../full
says "losses: equal, bit for bit, over 4 steps: none = full" "processor or GPU" "hosts"
[ -z "$(ls empty)" ] || complain "written unasked: $(ls empty)"

# The rows of memory add up to the peak; what run.json says of it is below that.
expect 0 "$CAIRN_BINARY" report none full --csv table.csv
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
    NR > 1 { sum = $at["activations (MiB)"] + $at["weights; gradients; optimizer (MiB)"] + $at["all else (MiB)"]
             peak = $at["sum: planned peak memory (MiB)"]; if (peak <= 0 || (sum - peak) ^ 2 > 1e-6) exit 1 }
    END { if (NR != 3) exit 1 }' <(tr -d '\r' <table.csv | sed 's/"speed, first/"speed; first/; s/weights, gradients, /weights; gradients; /; s/"//g') ||
    complain "memory does not add up: $(cat table.csv)"
micros=$(json_number none/run.json micro_batches)
awk -v m="$micros" 'BEGIN { exit !(m > 1 && m <= 8) }' || complain "micro_batches: $micros of 8 sequences at 128 tokens"
grep -q '"model": "BERT of [0-9]* layers, hidden [0-9]*, [0-9.]* M parameters"' none/run.json || complain "run.json has no model"
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && [ -n "$model" ] && ! grep -q "driver" none/run.json; then
    grep -qF "\"device\": \"$model\"" none/run.json || complain "device: $(grep '"device"' none/run.json)"
fi

# Wall time is that of all processes: the first one took 1000 s longer.
expect 0 "${run[@]}" --max-steps 2 --save-steps 2 --output-dir two
sed -i '$s/"wall_s": [0-9.e-]*/"wall_s": 1000/' two/metrics.jsonl
expect 0 "${run[@]}" --max-steps 4 --override --output-dir two
[ "$(awk -v w="$(json_number two/run.json wall_s)" 'BEGIN { print (w > 1000) }')" = 1 ] || complain "wall_s: $(json_number two/run.json wall_s)"
tail -n 1 two/metrics.jsonl | grep -q '"wall_s": 1000\.' || complain "metrics.jsonl: $(tail -n 1 two/metrics.jsonl)"

expect 0 "$CAIRN_BINARY" report none full two --proof --output-dir proof
says "written to proof: report.html, loss.svg" "written to proof: proof.html, proof.txt"
for text in "full against none: recompute none → full" "digests of the summed gradients: equal at 4 of 4 steps, up to step 4: none = full" \
    "digests of the weights: equal at 2 of 2 steps" "the largest difference is " "flags of earlier steps (--override)" \
    "speed, first = 1" "--recompute full"; do
    grep -qF -- "$text" proof/proof.txt || complain "proof.txt lacks '$text': $(cat proof/proof.txt)"
done
has_file proof/{proof.html,report.html,loss.svg,memory.svg}
expect 2 "$CAIRN_BINARY" report none full --proof
says "--proof writes proof.html and proof.txt: give their folder with --output-dir DIR"
finish
