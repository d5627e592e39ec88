#!/usr/bin/env bash
# `cairn predict --embed`, and folders of sentence-transformers: read as they are, and written so that they are read.
# shellcheck source=tests/scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

golden=$source_dir/tests/golden/sentence_transformers
texts=$golden/mean.jsonl
embed=("$CAIRN_BINARY" predict --embed --backend cpu --precision fp32 --threads 1 --keep-columns text)

# near A B: equal but for numbers, which may differ by 1e-5.
near() {
    [ "$(wc -l <"$1")" -eq "$(wc -l <"$2")" ] || { complain "$1 and $2 have other numbers of rows" && return; }
    awk -v other="$2" '{
        getline line <other
        n = split($0, a, /[][, ]+/)
        if (split(line, b, /[][, ]+/) != n) exit 1
        for (i = 1; i <= n; i++) if (a[i] != b[i] && (a[i] - b[i] > 1e-5 || b[i] - a[i] > 1e-5 || a[i] !~ /^-?[0-9.e-]+$/)) exit 1
    }' "$1" || complain "$1 and $2 differ"
}

# ---- vectors of sentence-transformers ----
expect 0 "${embed[@]}" --model "$golden" --input "$texts" --output out.jsonl
says "says: --pooling mean --normalize on --max-seq-length 12" "6 texts in" ", 1 cut at 12 tokens; their vectors are in out.jsonl"
near out.jsonl "$golden/normalized.jsonl"
expect 0 "${embed[@]}" --model "$golden" --input "$texts" --output mean.jsonl --normalize off --eval-batch-size 2
near mean.jsonl "$golden/mean.jsonl"
expect 0 "${embed[@]}" --model "$golden" --input "$texts" --output cls.jsonl --normalize off --pooling cls
near cls.jsonl "$golden/cls.jsonl"

# The older form: the BERT in a folder of the folder, and a key per mode.
mkdir -p older/0_Transformer older/1_Pooling
cp "$golden"/{config.json,model.safetensors,tokenizer.json,tokenizer_config.json} older/0_Transformer
echo '{"max_seq_length": 12, "do_lower_case": true}' >older/0_Transformer/sentence_bert_config.json
echo '{"word_embedding_dimension": 16, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' >older/1_Pooling/config.json
cat >older/modules.json <<'END'
[{"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
END
expect 0 "${embed[@]}" --model older --input "$texts" --output out.jsonl
near out.jsonl "$golden/cls.jsonl"
# Without modules.json it is a BERT: the mean.
expect 0 "${embed[@]}" --model older/0_Transformer --input "$texts" --output out.jsonl
cmp mean.jsonl out.jsonl || complain "a plain BERT gives no means"
sed -i 's/"max_seq_length": 12/"max_seq_length": 5/' older/0_Transformer/sentence_bert_config.json
expect 0 "${embed[@]}" --model older --input "$texts"
says "as older says: --pooling cls --normalize off --max-seq-length 5"
mv older/0_Transformer/sentence_{bert,roberta}_config.json # an older name of the file
expect 0 "${embed[@]}" --model older --input "$texts"
says "as older says: --pooling cls --normalize off --max-seq-length 5"
mv older/0_Transformer/sentence_{roberta,bert}_config.json

# do_lower_case of sentence-transformers, where the tokenizer keeps capitals.
sed -i 's/"do_lower_case": true/"do_lower_case": false/' older/0_Transformer/tokenizer_config.json
sed -i 's/"lowercase": true/"lowercase": false/' older/0_Transformer/tokenizer.json
printf '%s\n' "The Boat" "cafÉ" >capitals.txt && printf '%s\n' "the boat" "café" >small.txt
embed_lines=("$CAIRN_BINARY" predict --embed --backend cpu --threads 1 --model older)
"${embed_lines[@]}" --input capitals.txt 2>messages >capitals.jsonl || complain "it fails: $(cat messages)"
"${embed_lines[@]}" --input small.txt --do-lower-case no 2>messages | cmp capitals.jsonl - || complain "do_lower_case is not honoured: $(cat messages)"
"${embed_lines[@]}" --input capitals.txt --do-lower-case no 2>messages | cmp -s capitals.jsonl - && complain "--do-lower-case no is not honoured"

# The BERT is found in the folder's folder, or the message names it.
for pooling in auto cls mean; do
    expect 0 "$CAIRN_BINARY" plan --task embed --model older --pooling $pooling --batch-size 8 --max-seq-length 12 --json
    grep -o '"activations": [0-9]*' .stdout >$pooling.bytes
done
cmp auto.bytes cls.bytes || complain "the plan has another pooling than the folder"
cmp -s auto.bytes mean.bytes && complain "--pooling is not planned"
for command in inspect "glue --task CoLA --do-eval" "predict --input capitals.txt" "adapt --input capitals.txt --output-dir other" "plan --task CoLA"; do
    # shellcheck disable=SC2086
    expect 2 "$CAIRN_BINARY" $command --model older
    says "give --model older/0_Transformer"
done

# ---- in, out, in ----
echo '{"prompts": {"query": "query: ", "b": "é"}, "default_prompt_name": null, "similarity_fn_name": "dot"}' >older/config_sentence_transformers.json
expect 0 "$CAIRN_BINARY" convert --model "$golden" --output again
expect 0 "${embed[@]}" --model again --input "$texts" --output out.jsonl
near out.jsonl "$golden/normalized.jsonl"
sed -i 's/"max_seq_length": 5/"max_seq_length": 12/' older/0_Transformer/sentence_bert_config.json
expect 0 "$CAIRN_BINARY" convert --model older --output again_older
expect 0 "${embed[@]}" --model older --input "$texts" --output older.jsonl
expect 0 "${embed[@]}" --model again_older --input "$texts" --output out.jsonl
cmp older.jsonl out.jsonl || complain "a converted model gives other vectors"
kept() { tr -d ' \n' <"$1/config_sentence_transformers.json" | grep -qF '"prompts":{"query":"query:","b":"é"},"similarity_fn_name":"dot"}' || complain "$1 has other prompts"; }
kept again_older
for folder in again again_older; do
    expect 0 "$CAIRN_BINARY" inspect --verify --model $folder
    says "1_Pooling/config.json" "modules.json" "sentence_bert_config.json" "config_sentence_transformers.json"
done
grep -q '"path": "2_Normalize"' again/modules.json || complain "no Normalize is written"
grep -q Normalize again_older/modules.json && complain "a Normalize is written"
expect 0 "$CAIRN_BINARY" inspect --model again
grep -q '^embeddings.word_embeddings.weight ' .stdout || complain "the names are not a BertModel's"
sed -i 's/cls_token": true, "/max_tokens": true, "/' older/1_Pooling/config.json
expect 1 "$CAIRN_BINARY" convert --model older --output refused
says "older/1_Pooling/config.json: 'pooling_mode_max_tokens' is true; expected the mode mean or cls"
[ ! -e refused ] || complain "a refused folder is written"
sed -i 's/max_tokens": true, "/cls_token": true, "/' older/1_Pooling/config.json

# A trained model, its checkpoint and a run that is verified.
mkdir data
{ echo '{"a": "the red boat", "b": "a boat is red"}' && echo '{"a": "blue sea", "b": "the sea, the sea"}'; } >data/train.jsonl
expect 0 "$CAIRN_BINARY" embed --model older --data-dir data --text-columns a,b --do-train --batch-size 2 --epochs 3 --max-seq-length 12 --learning-rate 1e-3 --backend cpu --threads 1 --snapshot-dir none --output-dir run
kept run && kept run/checkpoint-3
expect 0 "$CAIRN_BINARY" embed --model older --data-dir data --text-columns a,b --do-train --batch-size 2 --pooling mean --max-seq-length 10 --dry-run --output-dir other
says "the options differ from older, which says: --pooling cls --max-seq-length 12"
for model in run run/checkpoint-*; do
    expect 0 "${embed[@]}" --model "$model" --input "$texts" --output "${model//\//-}.jsonl"
done
cmp run.jsonl run-checkpoint-*.jsonl || complain "a checkpoint gives other vectors than its model"
cmp -s run.jsonl older.jsonl && complain "training changed nothing"
has_file run/1_Pooling/config.json run/checkpoint-*/1_Pooling/config.json
grep -q '"pooling_mode_cls_token": true' run/1_Pooling/config.json || complain "the pooling is lost"
expect 0 "$CAIRN_BINARY" verify run

# ---- NumPy's form ----
expect 0 "$CAIRN_BINARY" predict --embed --backend cpu --precision fp32 --threads 1 --model "$golden" --input "$texts" --output out.npy
expect 0 "${embed[@]}" --model "$golden" --input "$texts" --output out.jsonl
[ "$(head -c 8 out.npy | od -An -tx1 | tr -d ' ')" = 934e554d50590100 ] || complain "no header of NumPy's version 1.0"
header=$(tail -c +11 out.npy | head -c 118)
[ "${header%%\}*}" = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 16), " ] || complain "the header is: $header"
[ "$(stat -c %s out.npy)" -eq $((128 + 6 * 16 * 4)) ] || complain "the file has $(stat -c %s out.npy) bytes"
tail -c +129 out.npy | od -An -v -tfF -w64 | sed 's/^ *//' >elements
sed 's/.*\[//; s/\].*//' out.jsonl >expected
near elements expected
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- predict --embed --backend cpu --precision fp32 --threads 1 --model "$golden" --input "$texts" --output ranks.npy
cmp out.npy ranks.npy || complain "two ranks give other vectors"
echo text >none.csv
expect 0 "$CAIRN_BINARY" predict --embed --backend cpu --threads 1 --model "$golden" --input none.csv --output none.npy
grep -qF "'shape': (0, 16), }" none.npy || complain "no rows: $(cat none.npy)"

# ---- uses that are refused ----
predict=("$CAIRN_BINARY" predict --model "$golden" --input "$texts")
expect 2 "${predict[@]}" --embed --output out.tsv
says "--embed: expected JSON lines or the ending .npy"
expect 2 "${predict[@]}" --embed --output out.npy --format jsonl
says "are two formats"
expect 2 "${predict[@]}" --embed --output out.npy --keep-columns text
says "since a .npy file has vectors alone"
expect 2 "${predict[@]}" --embed --text-columns text,index
says "give one column"
expect 2 "${predict[@]}" --embed --keep-columns embedding
says "--keep-columns embedding"
expect 2 "${predict[@]}" --pooling cls
says "--pooling is of vectors: give --embed too"
expect 1 "${predict[@]}" --output out.csv
says "--embed for vectors"
expect 2 "${predict[@]}" --output out.npy
says "expected the ending .csv, .tsv or .jsonl"
mkfifo pipe.npy
exec 3<>pipe.npy
expect 2 "${predict[@]}" --embed --output pipe.npy
says "expected a regular file"

exit $((failures > 0))
