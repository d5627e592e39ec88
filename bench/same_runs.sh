# What the commands of same.cases are made of: functions, flags of commands, and their data. For same.sh, which sets $cairn.
# shellcheck shell=bash disable=SC2154 # cairn, root, programs: same.sh

# begin RANKS COMMAND FLAG...: with the flags below; $at: where ranks kill, stop or signal themselves. What each rank says
# stands in said<number of the run>.<rank>. ended: waits for all, and notes their exit codes. run: both.
begin() {
    local n=$1 command=$2 r words where=()
    read -rd '' -a words <<<"${flags[$2]:-}" || true
    shift 2
    runs=$((runs + 1)) pids=() this="$n $command $*"
    for ((r = 0; r < n; r++)); do
        [ "$n" -eq 1 ] || where=(RANK="$r" WORLD_SIZE="$n" LOCAL_RANK="$r" LOCAL_WORLD_SIZE="$n"
            CAIRN_JOB_TOKEN="$PWD $runs")
        env "${where[@]}" CAIRN_BACKEND_DIR="${cairn%/*}" CAIRN_BINARY="$cairn" CAIRN_TEST_AT="${at:-}" timeout 300 \
            "$cairn" "${real[$command]:-$command}" "${words[@]}" "$@" >"said$runs.$r" 2>&1 </dev/null &
        pids+=("$!")
    done
}
ended() {
    local pid code codes=''
    for pid in "${pids[@]}"; do
        code=0
        wait "$pid" 2>/dev/null || code=$?
        codes+=" $code"
    done
    echo "$this: exit codes$codes" >>ended
}
run() { begin "$@" && ended; }
# older: run, by the old programs
older() { cairn=${programs[old]}/cairn run "$@"; }
# resume COMMAND RANKS FLAG...: the run in out/ goes on
resume() { run "$2" "$1" --override "${@:3}"; }
# vary: run, where it depends on when a snapshot was finished which step is resumed
vary() { run "$@" && rm -rf "said$runs".* out/profile; }
# lose STEP RANKS LOST COMMAND FLAG...: all ranks stop before this step; those in LOST are killed, and the others go on
lose() {
    local at='' r state child=()
    for ((r = 0; r < $2; r++)); do at+="step$1-$r=stop "; done
    begin "$2" "${@:4}"
    for ((r = 0; r < $2; r++)); do
        until child[r]=$(pgrep -P "${pids[r]}") && read -r _ _ state _ <"/proc/${child[r]}/stat" && [ "$state" = T ]; do
            kill -0 "${pids[r]}" || return 1
            sleep 0.05
        done
    done
    for r in $3; do kill -KILL "${child[r]}"; done
    kill -CONT "${child[@]}" || true
    ended
}

# The flags of a command; some commands have another name here.
train='--threads 1 --max-steps 4 --save-steps 2 --keep 9 --save-every off --log-every 1 --digest-steps 1 --bucket-size 20KiB
    --learning-rate 1e-3 --snapshot-steps 0 --snapshot-dir memory --backend cpu --precision fp32 --memory-budget 1GiB
    --do-train --do-eval'
glue="--model-config ../data/tiny.json --vocab ../data/vocab.txt --data-dir ../data/glue --max-seq-length 32 --batch-size 27
    --micro-batch-tokens 128 --max-grad-norm 0.05 $train"
declare -A real=([kfac]=glue [custom]=glue [cuda]=glue) flags=(
    [glue]="$glue --output-dir out"
    [kfac]="$glue --output-dir out --kfac-interval 3 --kfac-lag 3 --max-steps 7"
    [cuda]="$glue --output-dir out --backend cuda_host --comm gloo --model-config ../data/small.json --max-seq-length 8
        --batch-size 9 --micro-batch-tokens 16 --max-steps 2"
    [custom]="$glue --output-dir out --task custom --data-dir ../data/custom --text-columns text --label-column label"
    [squad]="--model-config ../data/squad.json --vocab ../data/squad/vocab.txt --data-dir ../data/squad --max-seq-length 64
        --doc-stride 40 --max-query-length 16 --batch-size 12 --micro-batch-tokens 256 --output-dir out $train"
    [embed]="--model-config ../data/tiny.json --vocab ../data/vocab.txt --data-dir $root/tasks/embed/sample --text-columns
        question,answer --max-seq-length 32 --batch-size 13 --micro-batch-tokens 128 --output-dir out $train"
    [pretrain]="--model-config ../data/words.json --vocab ../data/words.txt --data-dir ../data/shards
        --eval-dir ../data/shards/eval --batch-size 24 --eval-batch-size 8 --max-seq-length 64 --micro-batch-tokens 256
        --output-dir out $train"
    [adapt]="--model out --input ../data/text --max-seq-length 64 --batch-size 16 --output-dir adapted ${train%--do-train*}"
    [predict]='--threads 1 --backend cpu' [verify]='--threads 1' [plan]='--device h200 --model-config bert-base'
)
# shellcheck disable=SC2034 # by the cases
memory='--snapshot-steps 1 --save-steps 0 --keep 1 --max-steps 6'

# prepare: data/ of the cases, and rates of the machine that are always the same
prepare() {
    local file backend precision
    mkdir glue custom squad
    head -n 110 "$root/tasks/glue/sample/train.tsv" >glue/train.tsv
    for file in dev_matched dev_mismatched; do head -n 40 "$root/tasks/glue/sample/$file.tsv" >"glue/$file.tsv"; done
    cp "$root"/tasks/glue/sample/test_*.tsv glue
    cp "$root"/tests/golden/squad/{train-v1.1.json,dev-v1.1.json,vocab.txt} squad
    awk -F '\t' 'NR == 1 { print "text,label" } NR > 1 { gsub(/"/, "", $9); print "\"" $9 "\"," (NR % 3 ? "good" : "bad") }' \
        glue/train.tsv | tee custom/{train,dev,test}.csv >/dev/null
    "$cairn" vocab --input glue/train.tsv --size 600 --output vocab.txt
    "$cairn" wiki --input "$root/tasks/pretrain/sample/sample.xml" --output-dir text
    "$cairn" vocab --input text --size 600 --output words.txt
    "$cairn" shards --input text --vocab words.txt --output-dir shards --max-seq-length 64 --dupe-factor 1 --eval-fraction 0.2
    while read -r file words hidden; do
        echo "{\"vocab_size\": $(wc -l <"$words"), \"hidden_size\": $hidden, \"intermediate_size\": $((2 * hidden)),
            \"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"max_position_embeddings\": 128}" >"$file.json"
    done < <(printf '%s\n' 'tiny vocab.txt 32' 'small vocab.txt 16' 'words words.txt 32' 'squad squad/vocab.txt 32')
    # shellcheck disable=SC2016 # the program of a rank that goes to $at in the first start alone
    printf '%s\n' '#!/usr/bin/env bash' '[ ! -e "begun$RANK" ] || unset CAIRN_TEST_AT' 'touch "begun$RANK"' \
        'exec "$CAIRN_BINARY" "$@"' >once.sh && chmod +x once.sh
    for backend in ref cpu cuda_host; do
        for precision in fp32 bf16 fp16 tf32; do
            "$cairn" plan --backend $backend --precision $precision --model-config tiny.json --threads 1 >/dev/null 2>&1 || true
        done
    done
    sed -i -E 's/(flops": )[^,]*/\12e10/; s/(bytes": )[^,]*/\15e9/; s/(overhead": )[^,}]*/\12e-06/; s/, "busy": true//' \
        "$XDG_CACHE_HOME"/cairn/*
}
