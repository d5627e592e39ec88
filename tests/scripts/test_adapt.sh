#!/usr/bin/env bash
# `cairn adapt`: one command from own text to a model that fits it better, with the proof.
# shellcheck source=tests/scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# A model of Hugging Face's form, made by a short pretraining on other text.
cat >sizes.json <<'END'
{"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 48, "type_vocab_size": 2}
END
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the a cat dog sat ran on under mat tree . quick '##ly' fast slow >vocab.txt
RANDOM=5
for ((i = 0; i < 300; i++)); do
    text=''
    for _ in 1 2 3 4 5 6; do # which of the documents are held out depends on their text, so no two are the same
        k=$((RANDOM % 8)) animals=(cat dog) verbs=('sat on' 'ran under') places=('the mat' 'a tree')
        text+="The ${animals[k % 2]} ${verbs[k / 2 % 2]} ${places[k / 4]} quickly. "
    done
    printf '%s\n\n' "$text" >>text.txt
    printf '%d,"%s"\n' "$i" "$text" >>rows
    printf '{"text": "%s\\n\\n%s"}\n' "$text" "$text" >>text.jsonl
done
{ echo id,body && cat rows; } >text.csv
gzip text.jsonl
small=(--backend cpu --threads 1 --snapshot-dir none --save-every off)
expect 0 "$CAIRN_BINARY" pretrain --model-config sizes.json --vocab vocab.txt --input text.txt --max-seq-length 32 --max-steps 2 --batch-size 8 "${small[@]}" --output-dir base

adapt=("$CAIRN_BINARY" adapt --model base --batch-size 16 --learning-rate 3e-3 "${small[@]}")
expect 0 "${adapt[@]}" --input text.csv --text-columns body --output-dir adapted
says "pieces per word" "before training: mlm_accuracy" "masked words of the held-out text: loss"
! grep -q -- --eval-count <<<"$output" || complain "a default of --eval-count is spoken of: $output"
has_file adapted/model.safetensors adapted/config.json adapted/vocab.txt adapted/tokenizer_config.json adapted/adapt.json
grep -q BertForMaskedLM adapted/config.json || complain "the result has another head: $(cat adapted/config.json)"
before=$(json_number adapted/adapt.json mlm_loss_before) after=$(json_number adapted/adapt.json mlm_loss_after)
awk -v b="$before" -v a="$after" 'BEGIN { exit !(a < 0.7 * b) }' || complain "the loss was $before before and is $after"
[ "$(json_number adapted/adapt.json unknown)" = 0 ] || complain "[UNK] in a text of known words"
awk -v p="$(json_number adapted/adapt.json pieces)" -v w="$(json_number adapted/adapt.json words)" 'BEGIN { exit !(p / w > 1.1 && p / w < 1.2) }' ||
    complain "pieces per word: $(cat adapted/adapt.json)"
# The figure before is what an evaluation of the base gives, that after what one of the result gives.
expect 0 "$CAIRN_BINARY" pretrain --model adapted --data-dir adapted/shards/eval --do-eval --no-do-train --nsp off --whole-words --masking dynamic --max-seq-length 48 "${small[@]}" --output-dir again
[ "$(json_number again/eval_results.json eval_mlm_loss)" = "$after" ] || complain "another evaluation gives $(cat again/eval_results.json), not $after"
# The first sequences, as run_mlm.py takes them; --eval-count spreads them.
for flag in --max_eval_samples --eval-count; do
    expect 0 "$CAIRN_BINARY" pretrain --model adapted --data-dir adapted/shards/eval --do-eval --no-do-train --nsp off --whole-words --masking dynamic --max-seq-length 48 $flag 4 "${small[@]}" --output-dir "four$flag"
    [ "$(json_number "four$flag/eval_results.json" eval_samples)" = 4 ] || complain "$flag 4: $(cat "four$flag/eval_results.json")"
done
cmp -s four--max_eval_samples/eval_results.txt four--eval-count/eval_results.txt && complain "--max_eval_samples takes what --eval-count takes"

# The same command again shows the results; JSON lines packed by gz; ranks.
expect 0 "${adapt[@]}" --input text.csv --text-columns body --output-dir adapted
says "finished"
# A classifier has no masked-word head: said, because the losses before and after are then another thing.
mkdir labelled
{ echo body,label && printf '"the cat sat %d",%s\n' 1 x 2 y 3 x 4 y; } >labelled/train.csv
expect 0 "$CAIRN_BINARY" glue --task custom --model base --data-dir labelled --text-columns body --label-column label --max-seq-length 32 --do-train --max-steps 1 "${small[@]}" --output-dir classifier
expect 0 "$CAIRN_BINARY" adapt --model classifier --batch-size 16 "${small[@]}" --input text.csv --text-columns body --max-steps 1 --output-dir headless
says "classifier/model.safetensors has no masked-word head (cls.predictions)"

expect 0 "$CAIRN_BINARY" launch --ranks 2 -- adapt --model base --batch-size 16 --input text.jsonl.gz --max-steps 4 "${small[@]}" --output-dir ranks
says "masked words of the held-out text: loss"

# A part of what is held out is evaluated where --eval-count says so. Text without an empty line is one document of many
# parts, and no cut is complained of.
expect 0 "${adapt[@]}" --input text.csv --text-columns body --eval-count 5 --max-steps 1 --output-dir few
says "shards/eval: 5 sequences for evaluation"
for _ in {1..8}; do grep . text.txt; done >long.txt
expect 0 "$CAIRN_BINARY" shards --input long.txt --vocab vocab.txt --nsp off --max-seq-length 32 --output-dir long
! grep -q 'were cut' <<<"$output" || complain "parts without pairs are called cut: $output"

# Stopped and resumed, it knows the figure before.
expect 75 "${adapt[@]}" --input text.csv --text-columns body --max-time 0.01s --output-dir stopped
expect 0 "${adapt[@]}" --input text.csv --text-columns body --output-dir stopped
cmp adapted/model.safetensors stopped/model.safetensors || complain "a stopped run gives another model"
[ "$(json_number stopped/adapt.json mlm_loss_before)" = "$before" ] || complain "a stopped run has another figure before"

expect 2 "${adapt[@]}" --output-dir x
says --input
expect 2 "$CAIRN_BINARY" adapt --input text.txt --output-dir x
says --model
expect 1 "${adapt[@]}" --input text.csv --output-dir y
says "text.csv:1: expected a column named 'text' in the header, found 'id', 'body'"

# A start that failed before it made anything leaves no work, which the corrected command need not spare.
expect 0 "${adapt[@]}" --input text.csv --text-columns body --max-steps 1 --output-dir y
has_file y/model.safetensors
head -n 2 text.csv >row.csv
mkdir -p little/text little/shards && cp row.csv little/text/mine.csv && cp row.csv little/shards/mine.csv
expect 2 "${adapt[@]}" --input row.csv --text-columns body --output-dir little
says "little/text/mine.csv: expected only files of \`cairn wiki\` in this folder"
rm little/text/mine.csv
expect 1 "${adapt[@]}" --input row.csv --text-columns body --output-dir little
cmp row.csv little/shards/mine.csv || complain "adapt removed a file that it did not make"
says "row.csv: too little text to hold a part out"
expect 0 "${adapt[@]}" --input text.csv --text-columns body --max-steps 1 --output-dir little
mkdir -p z/unfinished && echo '{"made_of": "other options"}' >z/unfinished/progress.jsonl
expect 0 "$CAIRN_BINARY" shards --input text.txt --vocab vocab.txt --max-seq-length 32 --output-dir z

finish
