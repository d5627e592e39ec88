#!/usr/bin/env bash
# run.json and report.html say who, where, when and how, and --config of run.json makes the same run again.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data
for split in train dev_matched dev_mismatched; do head -n 21 "$sample/$split.tsv" >"data/$split.tsv"; done

# text_of DIR KEY: a text of run.json.
text_of() { sed -n "s/^ \"$2\": \"\(.*\)\",\$/\1/p" "$1/run.json"; }

run=("$CAIRN_BINARY" glue --do-train --do-eval --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt
    --batch-size 8 --max-steps 3 --seed 7 --threads 1)
expect 0 "${run[@]}" --output-dir "first one"
[[ $(text_of "first one" command) == *"cairn glue --do-train"*"--output-dir 'first one'" ]] || complain "command: $(text_of "first one" command)"
[ "$(text_of "first one" hosts)" = "$(uname -n)" ] || complain "hosts: $(text_of "first one" hosts)"
[ "$(text_of "first one" folder)" = "$work" ] || complain "folder: $(text_of "first one" folder)"
[ "$(text_of "first one" version)" = "$("$CAIRN_BINARY" --version | cut -d' ' -f2)" ] || complain "version: $(text_of "first one" version)"
[[ $(text_of "first one" started) =~ ^20[0-9]{2}-[0-9-]+T[0-9:]+Z$ ]] || complain "started: $(text_of "first one" started)"
[ "$(json_number "first one/run.json" ranks)" = 1 ] || complain "ranks: $(json_number "first one/run.json" ranks)"
for text in "$(uname -n)" "--seed 7" "cairn glue --config 'first one/run.json' --output-dir OTHER" "$(text_of "first one" started)"; do
    grep -qF -- "$text" "first one/report.html" || complain "report.html lacks '$text'"
done

same() { # DIR DIR
    cmp "$1/model.safetensors" "$2/model.safetensors" || complain "$2: another model"
    cmp <(losses "$1") <(losses "$2") || complain "$2: other losses"
    cmp "$1/eval_results.txt" "$2/eval_results.txt" || complain "$2: other results"
}
expect 0 "$CAIRN_BINARY" glue --config "first one/run.json" --output-dir again
same "first one" again
# Threads that wait yield early, unless the user set a policy, and no policy changes a bit (in fp32 on every CPU). The
# counts are libgomp's.
if [ -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_cpu.so" ]; then
    expect 0 "${run[@]}" --backend cpu --precision fp32 --output-dir waits
    for policy in "1000" "0 OMP_WAIT_POLICY=passive" "[0-9]{4,} OMP_WAIT_POLICY=active"; do
        read -r count policy <<<"$policy"
        expect 0 env -u OMP_WAIT_POLICY ${policy:+"$policy"} OMP_DISPLAY_ENV=VERBOSE "${run[@]}" --backend cpu --precision fp32 --threads 3 \
            --output-dir "waits$policy"
        ! grep -q "GOMP_SPINCOUNT" <<<"$output" || grep -qE "GOMP_SPINCOUNT = '$count'" <<<"$output" ||
            complain "${policy:-no policy}: $(grep GOMP_SPINCOUNT <<<"$output")"
        same waits "waits$policy"
    done
fi
# From another folder its paths are those of the folder where it was started; a name of a size stays one.
mkdir elsewhere
expect 0 env -C elsewhere "$CAIRN_BINARY" glue --config "../first one/run.json" --output-dir again
same "first one" elsewhere/again
expect 0 env -C elsewhere "$CAIRN_BINARY" glue --config "../first one/run.json"
says "this run was finished before"
sed 's|"model-config": "[^"]*"|"model-config": "bert-tiny"|' "first one/run.json" >elsewhere/sized.json
config=$(env -C elsewhere "$CAIRN_BINARY" glue --config sized.json --print-config)
[[ $config == *'"model-config": "bert-tiny"'* ]] || complain "a size became a path: $config"
[[ $config == *"\"vocab\": \"$work/tiny/vocab.txt\""* && $config == *'"submission": ""'* && $config == *'"resume": "auto"'* ]] ||
    complain "paths of run.json from elsewhere: $config"
# In its own folder it is finished; a flag still comes first.
expect 0 "$CAIRN_BINARY" glue --config "first one/run.json"
says "this run was finished before"
# Options that would alter its steps are refused, and --override cannot alter them either, except for more steps.
for override in "" --override; do
    expect 2 "$CAIRN_BINARY" glue --config "first one/run.json" --seed 8 --learning-rate 1e-3 $override
    says "first one/checkpoint-3 is the end of a finished run" "--learning-rate was 2e-05, is 0.001" "--seed was 7, is 8"
    expect 2 "$CAIRN_BINARY" glue --config "first one/run.json" --max-seq-length 100 $override
    says "finished run" "--max-seq-length was 128, is 100"
done
cp -r "first one" longer
expect 0 "$CAIRN_BINARY" glue --config longer/run.json --output-dir longer --seed 8 --max-steps 4 --override
says "--override: resuming from longer/checkpoint-3 with other flags: " "--seed was 7, is 8" "trained 4 steps"
# Results of other evaluation data are no results of this run.
cp -r data whole-data
head -n 20 whole-data/dev_matched.tsv >data/dev_matched.tsv
expect 0 "$CAIRN_BINARY" glue --config "first one/run.json"
says "dev_matched: accuracy"
[ "$(json_number "first one/eval_results.json" eval_samples)" = 19 ] || complain "the results are those of the other data"
cp whole-data/dev_matched.tsv data
expect 0 "$CAIRN_BINARY" glue --config "first one/run.json" --max-steps 2 --output-dir shorter
[ "$(steps_in shorter)" -eq 2 ] || complain "a flag beside run.json did not count"

# From a dump, whose stages give the run its data.
make_tiny_config model.json
dump=$source_dir/tasks/pretrain/sample/sample.xml
"$CAIRN_BINARY" pretrain --input "$dump" --model-config model.json --eval-fraction 0.2 --max-seq-length 32 --batch-size 8 --max-steps 3 \
    --threads 1 --output-dir dumped >notes 2>&1 || { grep -q 'built without' notes && echo "skipped: pretraining" && finish; cat notes; complain "pretraining failed"; }
expect 0 "$CAIRN_BINARY" pretrain --config dumped/run.json --output-dir "dumped again"
same dumped "dumped again"
cp "$dump" a.xml && cp "$dump" b.xml
sed 's|"input": "[^"]*"|"input": "a.xml,b.xml"|' dumped/run.json >two.json
config=$(env -C / "$CAIRN_BINARY" pretrain --config "$work/two.json" --print-config)
[[ $config == *"\"input\": \"$work/a.xml,$work/b.xml\""* ]] || complain "inputs of run.json from elsewhere: $config"

# Several ranks.
if [ -e "$(dirname "$CAIRN_BINARY")/cairn_gloo.so" ]; then
    expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${run[@]:1}" --output-dir ranks
    [ "$(text_of ranks hosts)" = "$(uname -n) (2 ranks)" ] || complain "hosts: $(text_of ranks hosts)"
    [ "$(json_number ranks/run.json ranks)" = 2 ] || complain "ranks: $(json_number ranks/run.json ranks)"
    # Where that start's ranks met, and its launcher's time limit, are no options of the run.
    expect 0 "$CAIRN_BINARY" launch --ranks 2 --config ranks/run.json --connect-timeout 30s -- glue --config ranks/run.json \
        --connect-timeout 30s --max-time 1h --output-dir "ranks again"
    same ranks "ranks again"
    grep -q '"rendezvous": "auto"' "ranks again/run.json" || complain "$(grep rendezvous "ranks again/run.json")"
    grep -q '"max-time": "off"' "ranks again/run.json" || complain "$(grep max-time "ranks again/run.json")"
fi
finish
