#!/usr/bin/env bash
# What a user gives wrongly: an exit code, a message that names the file and the place, and nothing overwritten or lost.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data
for split in train dev_matched dev_mismatched; do head -n 41 "$sample/$split.tsv" >"data/$split.tsv"; done
steps=(--max-steps 3)
train=("$CAIRN_BINARY" glue --do-train --do-eval --threads 1)
expect 0 "${train[@]}" "${steps[@]}" --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt --output-dir good
good() { (cd good && find . -type f ! -name .lock -exec sha256sum {} + | sort); }
before=$(good)

# refused CODE TEXT... -- ARGUMENTS...: training with them says TEXT, and no model comes of it.
refused() {
    local code=$1 texts=() out="out $RANDOM$RANDOM"
    shift
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    expect "$code" "${train[@]}" "${steps[@]}" --output-dir "$out" "$@"
    says "${texts[@]}"
    [ ! -e "$out/model.safetensors" ] || complain "a refused run left a model: $*"
}
# bad_data: a fresh copy of the data, to be damaged
bad_data() { rm -rf bad && cp -r data bad; }
# bad_model: a fresh copy of the model; model_put OFFSET BYTES writes into its weights
bad_model() { rm -rf model && mkdir model && cp good/{config.json,vocab.txt,tokenizer_config.json,model.safetensors} model; }
model_put() { printf '%b' "$2" | dd of=model/model.safetensors bs=1 seek="$1" conv=notrunc status=none; }
header=$(od -An -tu8 -N8 good/model.safetensors | tr -d ' ')
# tensor_at NAME: where its data begin in the file
tensor_at() {
    local offset
    offset=$(head -c $((8 + header)) good/model.safetensors | tail -c +9 | tr '{' '\n' | grep -A1 -F "\"$1\":" |
        sed -n 's/.*"data_offsets":\[\([0-9]*\),.*/\1/p' | tail -n 1)
    echo $((8 + header + offset))
}

# -- data files
refused 1 "nothere/train.tsv" "no such file" -- --data-dir nothere --model good
bad_data && rm bad/dev_mismatched.tsv
refused 1 "bad/dev_mismatched.tsv" --eval-splits -- --data-dir bad --model good
expect 0 "${train[@]}" "${steps[@]}" --data-dir bad --model good --eval-splits dev_matched --output-dir "left out"
bad_data && : >bad/train.tsv
refused 1 "bad/train.tsv: the file is empty" -- --data-dir bad --model good
bad_data && head -n 1 data/train.tsv >bad/train.tsv
refused 1 "bad/train.tsv" "found none after the header" -- --data-dir bad --model good
bad_data && sed -i '7s/\t[^\t]*$//' bad/train.tsv
refused 1 "bad/train.tsv:7: expected 12 columns, found 11" -- --data-dir bad --model good
bad_data && sed -i '9s/$/\textra/' bad/dev_matched.tsv
refused 1 "bad/dev_matched.tsv:9: expected 16 columns, found 17" -- --data-dir bad --model good
bad_data && sed -i '7s/[^\t]*$/perhaps/' bad/train.tsv
refused 1 "bad/train.tsv:7: label 'perhaps' is unknown" "entailment" -- --data-dir bad --model good
bad_data && LC_ALL=C sed -i '5s/The/Th\xff/' bad/train.tsv
refused 1 "bad/train.tsv:5: expected UTF-8, found byte 0xff" -- --data-dir bad --model good
bad_data && sed -i '1s/sentence2\t/sentenceII\t/' bad/train.tsv
refused 1 "bad/train.tsv" sentence2 -- --data-dir bad --model good
bad_data && rm bad/train.tsv && mkdir bad/train.tsv
refused 1 "bad/train.tsv" -- --data-dir bad --model good

# -- model and vocabulary
refused 2 "--recompute offload" "a device that copies while it computes" -- --data-dir data --model good --backend ref --recompute offload
refused 2 "nomodel" -- --data-dir data --model nomodel
refused 2 "--max-seq-length 200" "128 positions" "good/config.json" -- --data-dir data --model good --max-seq-length 200
head -n 100 good/vocab.txt >short.txt
refused 2 "short.txt has 100 pieces" "good/config.json" -- --data-dir data --model good --vocab short.txt
{ cat good/vocab.txt && seq 1 500; } >long.txt
refused 2 "long.txt has" "good/config.json" -- --data-dir data --model good --vocab long.txt
bad_model && sed -i 's/"num_hidden_layers": *2/"num_hidden_layers": 3/' model/config.json
refused 1 "missing" "bert.encoder.layer.2" -- --data-dir data --model model
bad_model && sed -i 's/"intermediate_size": *64/"intermediate_size": 48/' model/config.json
refused 1 "bert.encoder.layer.0.intermediate.dense.weight" "48" "64" -- --data-dir data --model model
bad_model && sed -i 's/"num_attention_heads": *2/"num_attention_heads": 5/' model/config.json
refused 1 "model/config.json" num_attention_heads -- --data-dir data --model model
bad_model && echo '{"hidden_size": 32,' >model/config.json
refused 1 "model/config.json" -- --data-dir data --model model
bad_model && rm model/model.safetensors
refused 1 "model: holds none of model.safetensors" -- --data-dir data --model model

size=$(stat -c %s good/model.safetensors)
for keep in 0 6 $((8 + header / 2)) $((size - 10)); do
    bad_model && truncate -s "$keep" model/model.safetensors
    refused 1 "model/model.safetensors" -- --data-dir data --model model
done
bad_model && model_put 0 '\0377\0377\0377\0377\0377\0377\0377\0177' # a header of 8 EiB
refused 1 "model/model.safetensors: the header claims" -- --data-dir data --model model
bad_model && sed -i 's/"data_offsets":\[0,/"data_offsets":[9,/' model/model.safetensors
refused 1 "model/model.safetensors" -- --data-dir data --model model
bad_model && mv model/model.safetensors model/pytorch_model.bin
refused 0 -- --data-dir data --model model --dry-run # contents tell what a file is, not its name
bad_model && rm model/model.safetensors && printf 'PK\003\004 not a zip file at all' >model/pytorch_model.bin
refused 1 "model/pytorch_model.bin" -- --data-dir data --model model
bad_model && rm model/model.safetensors && printf '\200\002cos\nsystem\n(S"touch owned"\ntR.' >model/pytorch_model.bin
refused 1 "model/pytorch_model.bin" -- --data-dir data --model model
[ ! -e owned ] || complain "a pickle was executed"
mkdir tf && printf 'not a bundle index' >tf/bert.ckpt.index && : >tf/bert.ckpt.data-00000-of-00001
refused 1 "tf/bert.ckpt.index" -- --data-dir data --model tf/bert.ckpt --model-config tiny/config.json --vocab tiny/vocab.txt

# -- numbers that are not finite
bad_model && model_put $(($(tensor_at bert.encoder.layer.1.output.dense.weight) + 4 * (64 + 1))) '\0\0\0300\0177'
refused 1 "bert.encoder.layer.1.output.dense.weight" "NaN at [1, 1]" -- --data-dir data --model model
bad_model && model_put "$(tensor_at bert.encoder.layer.0.output.LayerNorm.weight)" '\0\0\0140\0177' # 3e38: finite
expect 1 "${train[@]}" "${steps[@]}" --data-dir data --model model --output-dir overflow
says "step 1" "not finite" "last good state"
[ ! -e overflow/model.safetensors ] || complain "a run that ended in NaN left a model"
# A learning rate that throws the weights away: the state before is saved, and can be gone on from. A state from which
# training ends so at the same step three times is not taken again, but the one before.
throw=("${train[@]}" --data-dir data --model good --output-dir thrown --learning-rate 100 --weight-decay 10
    --warmup 0 --schedule constant --max-steps 100 --save-steps 1 --keep 2)
expect 1 "${throw[@]}"
says "not finite" "last good state"
last=$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' thrown/not_finite.json)
{ [ -d "thrown/checkpoint-$((last - 1))" ] && [ -d "thrown/checkpoint-$((last - 2))" ]; } || complain "not both states: $(ls thrown)"
for _ in 2 3; do
    expect 1 "${throw[@]}"
    says "resuming from thrown/checkpoint-$((last - 1)):"
done
expect 1 "${throw[@]}"
says "ended 3 times because a value was not finite at step $last" "resuming from thrown/checkpoint-$((last - 2)):"
expect 1 "${throw[@]}"
says "thrown has no state before step $((last - 2))" "resuming from thrown/checkpoint-$((last - 1)):"
expect 0 "${train[@]}" --data-dir data --model good --output-dir thrown --learning-rate 1e-5 --max-steps 3 --resume never

# -- places and sizes
expect 2 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir /proc/nowhere
says "/proc/nowhere" "cannot make the directory"
expect 2 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir good/vocab.txt/below
says "good/vocab.txt" "Not a directory"
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 555 locked
    expect 2 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir locked/out
    says "locked/out" "Permission denied"
fi
for policy in auto full none; do
    refused 76 "memory budget of 1.0 MiB" "It fits with --memory-budget " -- --data-dir data --model good --memory-budget 1MiB --recompute $policy
done
# A run fits the budget that the message names, without a save buffer.
sed 's/"hidden_size": [0-9]*/"hidden_size": 128/' tiny/config.json >wide.json
wide=("${train[@]}" --data-dir data --model-config wide.json --vocab tiny/vocab.txt --recompute auto)
expect 76 "${wide[@]}" "${steps[@]}" --output-dir fits --memory-budget 1MiB
budget=$(sed -n 's/.*It fits with --memory-budget \([0-9]*MiB\).*/\1/p' <<<"$output")
expect 0 "${wide[@]}" "${steps[@]}" --output-dir fits --memory-budget "$budget"
says "no room for the save buffer"

# A full disk: a small file system of its own, where that may be made.
mkdir disk
if mount -t tmpfs -o size=400k none disk 2>/dev/null; then
    trap 'umount -- "$work/disk"; rm -rf -- "$work"' EXIT
    expect 1 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir disk/out # seen before training
    says "disk/out" "free"
    [ ! -e disk/out/metrics.jsonl ] || complain "trained although the disk has no room"
    mount -o remount,size=4M disk
    expect 0 "${train[@]}" --data-dir data --model good --output-dir disk/out --max-steps 2
    kept=$(cd disk/out && sha256sum checkpoint-2/* model.safetensors)
    dd if=/dev/zero of=disk/filler bs=4k status=none 2>/dev/null || true
    expect 1 "${train[@]}" --data-dir data --model good --output-dir disk/out --max-steps 6 --override
    says "disk/out"
    [ "$kept" = "$(cd disk/out && sha256sum checkpoint-2/* model.safetensors)" ] || complain "a full disk cost the checkpoint"
    rm disk/filler
    expect 0 "${train[@]}" --data-dir data --model good --output-dir disk/out --max-steps 6 --override
    says "resuming from disk/out/checkpoint-2"
else
    echo "skipped: a full disk (mounting a tmpfs is not allowed here)"
fi
expect 2 "$CAIRN_BINARY" plan --model-config tiny/config.json --task Quora
says "--task 'Quora' is unknown" QQP
expect 1 "$CAIRN_BINARY" plan --model-config tiny/config.json --svg /dev/full
says /dev/full
expect 2 "$CAIRN_BINARY" plan --model-config tiny/config.json --svg nowhere/memory.svg
says nowhere/memory.svg

# A save that fails in the middle costs no training: limited by the size of a file, without a buffer to save from.
(
    ulimit -f 150
    "${wide[@]}" --max-steps 6 --output-dir limited --save-steps 2 --memory-budget "$budget" >limited.txt 2>&1
) && complain "the last save failed and the exit code is 0"
grep -q "step 2 is not saved, training continues" limited.txt || { complain "a failed save is not said" && tail limited.txt; }
[ "$(losses limited | wc -l)" -eq 6 ] || complain "a save that failed ended training"

# -- flags that cannot be meant
bad_model && sed -i 's/"type_vocab_size": *2/"type_vocab_size": 1/' model/config.json
refused 2 "type_vocab_size" "model/config.json" -- --data-dir data --model model
for warmup in 1e30 inf 5; do
    refused 2 "--warmup '$warmup'" -- --data-dir data --model good --warmup $warmup
done
expect 2 "$CAIRN_BINARY" glue --do-train --data-dir data --model good --max-steps 2 --eval-every 1 --output-dir x
says --do-eval
sed 's/"max_position_embeddings": *128/"max_position_embeddings": 20000/' tiny/config.json >long.json
expect 0 "${train[@]}" --data-dir data --model-config long.json --vocab tiny/vocab.txt --max-seq-length 20000 --max-steps 1 \
    --batch-size 2 --eval-splits dev_matched --output-dir long
# The tensor that is named first is the same in one micro-batch and in several.
bad_model && model_put "$(tensor_at bert.encoder.layer.0.output.LayerNorm.weight)" '\0\0\0140\0177'
for micro in step 128; do
    expect 1 "${train[@]}" --max-steps 1 --data-dir data --model model --micro-batch-tokens $micro --output-dir "micro $micro"
    sed -n "s/.*in tensor '\([^']*\)'.*/\1/p" <<<"$output" | head -n 1 >"tensor $micro.txt"
done
has_file "tensor step.txt"
cmp "tensor step.txt" "tensor 128.txt" || complain "the tensor that is blamed depends on the micro-batch"

# Names that would be a line of their own, or colour the terminal; letters stay.
expect 2 "$CAIRN_BINARY" plan --model-config tiny/config.json --task $'a\nerror: \e[31m\xff\xc3\xa9'
[ "$output" = "${output%%$'\n'*}" ] || complain "a line feed of a flag begins a line: $output"
says $'a\\nerror: \\x1b[31m\\xff\xc3\xa9'

# -- existing output
[ "$before" = "$(good)" ] || complain "the good model's folder changed"
mkdir foreign && cp good/{config.json,vocab.txt,model.safetensors} foreign
kept=$(sha256sum foreign/*)
expect 2 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir foreign
says "foreign/model.safetensors" "Use another --output-dir"
[ "$kept" = "$(sha256sum foreign/*)" ] || complain "another's model was changed"

# A new run in the folder of another: the old results are gone before the first step, and are not taken for its own.
cp -r good reused
expect 1 "${train[@]}" "${steps[@]}" --data-dir data --model model --output-dir reused --resume never
[ ! -e reused/run.json ] || complain "the results of the run before are left after one that failed"
# Another run's checkpoints cannot be resumed.
kept=$(sha256sum good/checkpoint-3/*)
expect 0 "${train[@]}" --max-steps 2 --data-dir data --model good --output-dir other
expect 2 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir good --resume other/checkpoint-2
says "would be lost" "good"
[ "$kept" = "$(sha256sum good/checkpoint-3/*)" ] || complain "--resume of another folder cost a checkpoint"
# Evaluating into the folder of the training leaves its record alone; converting takes no model's place.
kept=$(sha256sum good/run.json)
cp -r good evaluated
expect 0 "$CAIRN_BINARY" glue --do-eval --threads 1 --data-dir data --model evaluated --output-dir evaluated
[ "${kept%% *}" = "$(sha256sum evaluated/run.json | cut -d' ' -f1)" ] || complain "evaluating changed run.json"
expect 2 "$CAIRN_BINARY" convert --model good --output other
says "other/model.safetensors"
sed 's/"num_hidden_layers": *2/"num_hidden_layers": 340/; s/"hidden_size": *32/"hidden_size": 65536/; s/"intermediate_size": *64/"intermediate_size": 262144/' \
    tiny/config.json >huge.json
expect 1 "$CAIRN_BINARY" convert --model good/model.safetensors --model-config huge.json --output converted
says "good/model.safetensors" "wrong shape"

# A classifier with its labels in another order gives the same figures.
mkdir permuted && cp good/{config.json,vocab.txt,tokenizer_config.json,model.safetensors} permuted
sed -i 's/"0": *"entailment"/"0": "neutral"/; s/"1": *"neutral"/"1": "entailment"/' permuted/config.json
expect 0 "$CAIRN_BINARY" glue --do-eval --threads 1 --data-dir data --model permuted --output-dir permuted-eval --verbose
says "another order"
probabilities() { tail -n +2 "$1/predictions_dev_matched.tsv" | cut -f3-5; }
cmp <(probabilities good | awk -F'\t' '{ print $2, $1, $3 }' OFS='\t') <(probabilities permuted-eval) ||
    complain "labels in another order: other probabilities"

# A damaged checkpoint is named and the one before is used; with none left, that is said (79) and nothing is started again.
expect 0 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir damaged --save-steps 1 --keep 2
for folder in damaged/checkpoint-*; do
    printf 'x' | dd of="$folder/optimizer.safetensors" bs=1 seek=300 conv=notrunc status=none
    rm -f damaged/eval_results.json
    if [ "$folder" = damaged/checkpoint-2 ]; then
        rm -rf again && cp -r damaged again
        expect 0 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir again --save-steps 1 --keep 2
    fi
done
expect 79 "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir damaged --save-steps 1 --keep 2
says damaged/checkpoint-3 optimizer.safetensors
# -- limits on the address space (ulimit -v): refused before a library runs out of it
limited() { # limited KIB CODE TEXT
    expect "$2" bash -c 'ulimit -v "$1" && shift && exec "$@"' bash "$1" "${train[@]}" "${steps[@]}" --data-dir data \
        --model good --output-dir limited --snapshot-dir none
    says "$3"
}
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && ! ldd "$CAIRN_BINARY" | grep -q libasan; then
    for kib in 80000 110000; do limited "$kib" 76 "ulimit -v"; done
    ulimit -c 0
    for kib in 140000 170000 210000 260000 320000 390000; do # wherever it ends between opening the backend and training
        code=0
        (ulimit -v "$kib" && exec "${train[@]}" "${steps[@]}" --data-dir data --model good --output-dir limited \
            --snapshot-dir none --threads 4 --resume never) >"$work/.stdout" 2>"$work/.stderr" || code=$?
        { [ "$code" = 76 ] && grep -q "ulimit -v" "$work/.stderr"; } || [ "$code" = 0 ] || complain "ulimit -v $kib: code $code: $(tail -n 1 "$work/.stderr")"
    done
fi
finish
