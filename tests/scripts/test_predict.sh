#!/usr/bin/env bash
# `cairn predict`: labels and probabilities, the same for any form of the input, batch size and number of ranks.
# shellcheck source=tests/scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

cat >config.json <<'END'
{"vocab_size": 14, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 32, "type_vocab_size": 2}
END
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad film plot a the , '"' line >vocab.txt
mkdir data
{ echo text,other,label && for ((i = 0; i < 40; i++)); do
    ((i % 3)) && echo "a good film,the plot,positive" || echo "a bad film,a line,negative"
done; } >data/train.csv
train=("$CAIRN_BINARY" glue --model-config config.json --vocab vocab.txt --backend cpu --threads 1 --snapshot-dir none
    --task custom --max-seq-length 24 --batch-size 8 --learning-rate 1e-3 --epochs 1 --data-dir data --label-column label --do-train)
expect 0 "${train[@]}" --text-columns text --output-dir one
expect 0 "${train[@]}" --text-columns text,other --output-dir pair

# 9000 texts: more than a block.
for ((i = 0; i < 9000; i++)); do
    ((i % 7)) && echo "a good film, the plot" || echo "the bad line, a film"
done >lines.txt
{ echo text && sed 's/.*/"&"/' lines.txt; } >rows.csv
sed 's/.*/{"text": "&", "more": 1}/' lines.txt >rows.jsonl
predict=("$CAIRN_BINARY" predict --model one --backend cpu --threads 1)
expect 0 "${predict[@]}" --input lines.txt --output base.jsonl
[ "$(wc -l <base.jsonl)" -eq 9000 ] || complain "not 9000 predictions"
grep -qE '^\{"index": 0, "label": "(positive|negative)", "probabilities": \{"negative": 0\.[0-9]+, "positive": 0\.[0-9]+\}\}$' base.jsonl || complain "not the form: $(head -n 1 base.jsonl)"
for file in rows.csv rows.jsonl; do
    expect 0 "${predict[@]}" --input $file --output out.jsonl --eval-batch-size 33
    cmp base.jsonl out.jsonl || complain "$file gives other predictions"
done
"${predict[@]}" <rows.jsonl >piped.jsonl 2>messages || complain "a pipe fails: $(cat messages)"
cmp base.jsonl piped.jsonl || complain "the standard input gives other predictions"
"${predict[@]}" --input - <lines.txt 2>messages | cmp base.jsonl - || complain "lines of the standard input give other predictions: $(cat messages)"
expect 0 "$CAIRN_BINARY" launch --ranks 3 -- predict --model one --backend cpu --threads 1 --input rows.csv --output ranks.jsonl
cmp base.jsonl ranks.jsonl || complain "three ranks give other predictions"
[ ! -e results ] || complain "a folder was made"

# TSV is what `cairn glue --do-predict` writes.
head -n 51 rows.csv >data/test.csv
expect 0 "$CAIRN_BINARY" glue --task custom --model one --data-dir data --text-columns text --backend cpu --threads 1 --do-predict --output-dir same
expect 0 "${predict[@]}" --input data/test.csv --output test.tsv
cmp same/predictions_test.tsv test.tsv || complain "predict and glue --do-predict differ"
expect 0 "${predict[@]}" --input data/test.csv --format tsv
cmp .stdout test.tsv || complain "--format tsv differs"

# A model's folder carries length and columns, through a checkpoint and a conversion too; a flag that differs is said.
expect 0 "$CAIRN_BINARY" predict --model pair --backend cpu --text-columns text,other --max-seq-length 24 --input data/train.csv --output given.jsonl
[ "$(wc -l <given.jsonl)" -eq 40 ] || complain "not 40 pairs"
expect 0 "$CAIRN_BINARY" convert --model pair --output converted
for model in pair pair/checkpoint-* converted; do
    expect 0 "$CAIRN_BINARY" predict --model "$model" --backend cpu --input data/train.csv --output out.jsonl
    says "as $model says: --max-seq-length 24 --text-columns text,other" ", 0 cut at 24 tokens"
    cmp given.jsonl out.jsonl || complain "$model predicts otherwise without flags"
done
expect 0 "$CAIRN_BINARY" predict --model pair --backend cpu --text-columns text --max-seq-length 4 --input data/train.csv
says "the options differ from pair, which says: --max-seq-length 24 --text-columns text,other" "40 texts in" ", 40 cut at 4 tokens"
expect 0 "$CAIRN_BINARY" predict --model pair --backend cpu --max-seq-length 8 --input data/train.csv
says "as pair says: --text-columns text,other" "the options differ from pair, which says: --max-seq-length 24"
cp data/train.csv data/dev.csv
expect 0 "$CAIRN_BINARY" glue --task custom --model pair --data-dir data --backend cpu --do-eval --output-dir "eval pair"
says "as pair says: --max-seq-length 24 --text-columns text,other --label-column label" "40 examples, 8.0 tokens on average, 0 cut at 24"

# A GLUE task of pairs wants both texts.
{ printf 'index\tsentence1\tsentence2\tlabel\n' && printf '%s\ta film\ta plot\tentailment\n' {0..7}; } >data/train.tsv
expect 0 "$CAIRN_BINARY" glue --task RTE --model-config config.json --vocab vocab.txt --data-dir data --do-train --max-steps 1 --max-seq-length 24 --backend cpu --threads 1 --snapshot-dir none --output-dir rte
expect 1 "$CAIRN_BINARY" predict --model rte --backend cpu --input rows.csv
says "rows.csv:1: expected a column named 'sentence1' in the header, found 'text'"
expect 0 "$CAIRN_BINARY" predict --model rte --backend cpu --threads 1 --input data/train.tsv
rm data/train.tsv

# A model of others: its length is the tokenizer's, at most the positions.
cp -r one others
for length in 5 64 1e30; do
    sed -i "s/\"model_max_length\": .*/\"model_max_length\": $length,/" others/tokenizer_config.json
    expect 0 "$CAIRN_BINARY" predict --model others --backend cpu --input rows.csv --output out.jsonl
    [ "$length" = 5 ] || length=32
    says "as others says: --max-seq-length $length" "cut at $length tokens"
done
sed -i "s/\"model_max_length\": .*/\"model_max_length\": 1,/" others/tokenizer_config.json
expect 1 "$CAIRN_BINARY" predict --model others --backend cpu --input rows.csv
says "error: others: its texts have 1 tokens at most" "give --max-seq-length"

# A model without a classifier, and bad rows.
expect 2 "$CAIRN_BINARY" predict --input data/train.csv
says --model
expect 1 "${predict[@]}" --text-columns nothing --input data/train.csv
says "data/train.csv:1: expected a column named 'nothing' in the header, found 'text', 'other', 'label'"
mkdir results # of a training run: predict has no run there whose faults would count
expect 1 "$CAIRN_BINARY" launch --ranks 2 -- "${predict[@]:1}" --text-columns nothing --input data/train.csv
[ -z "$(ls results)" ] || complain "launch wrote into results: $(ls results)"
printf 'body\nhello\n' >unnamed.csv
expect 1 "${predict[@]}" --input unnamed.csv
says "error: unnamed.csv:1: expected a column named 'text' in the header, found 'body'; name the columns of texts by --text-columns"
: >empty.csv
expect 1 "${predict[@]}" --input empty.csv
says "error: empty.csv: the file is empty"
printf '{"text": "a film"}\n{"txt": "a film"}\n' >bad.jsonl
expect 1 "${predict[@]}" --input bad.jsonl --output bad.jsonl.out --format jsonl
says "bad.jsonl:2: expected a key 'text', found 'txt'; name the columns of texts by --text-columns"
[ ! -e bad.jsonl.out ] || complain "a failed command left its output"
expect 2 "${predict[@]}" --input rows.csv --output ./rows.csv
says "--output ./rows.csv is the input"
[ "$(wc -l <rows.csv)" -eq 9001 ] || complain "the input was replaced"
expect 1 "${predict[@]}" --input rows.csv --output data
says "data: a folder; expected the name of a file"
expect 1 "${predict[@]}"
says "the standard input: the file is empty; expected rows of text"
expect 2 "$CAIRN_BINARY" predict --model nowhere --input rows.csv
says "--model nowhere: there is no such file or folder"
mkdir bare
expect 2 "$CAIRN_BINARY" predict --model bare --input rows.csv
says "bare has no config.json"

# A config.json of others: no label breaks a table, and millions of them are no classifier.
cp -r one odd && sed -i 's/"0": "negative"/"0": "nega\\ttive"/; s/"negative": 0/"nega\\ttive": 0/' odd/config.json
expect 1 "$CAIRN_BINARY" predict --model odd --input lines.txt
says "the config.json of odd: label 0, 'nega?tive', holds a tab or a line break"
{
    printf '{"id2label": {"0": "a"' && for ((i = 1; i < 10001; i++)); do printf ', "%d": "%d"' "$i" "$i"; done
    printf '},\n' && sed -e '/"id2label": {/,/}/d' -e /num_labels/d -e 1d one/config.json
} >odd/config.json
expect 1 "$CAIRN_BINARY" predict --model odd --input lines.txt
says "the config.json of odd names 10001 labels; expected at most 10000"

# Labels as Transformers leaves them out, another number than the weights have, and a head of another kind.
printf 'index\tsentence1\tsentence2\tlabel\n0\ta film\ta plot\tentailment\n' >data/dev.tsv
bare() { sed -e '/"\(id2label\|label2id\)": {/,/}/d' -e /num_labels/d -e "s/^{/{$1/" one/config.json >odd/config.json; }
bare ''
expect 0 "$CAIRN_BINARY" predict --model odd --backend cpu --threads 1 --input lines.txt --output out.jsonl
sed 's/negative/LABEL_0/g; s/positive/LABEL_1/g' base.jsonl | cmp - out.jsonl || complain "without id2label labels are not LABEL_0 and LABEL_1"
bare '"num_labels": 3,'
expect 1 "$CAIRN_BINARY" predict --model odd --input lines.txt
says "odd/model.safetensors: classifier.weight has 2 rows, and the labels are 3"
expect 1 "$CAIRN_BINARY" convert --model odd --output odd-out
says "classifier.weight has 2 rows, and the model's config.json says 3 labels"
bare '"num_labels": 2,'
sed -i 's/BertForSequenceClassification/BertForTokenClassification/' odd/config.json
expect 1 "$CAIRN_BINARY" predict --model odd --input lines.txt
says "odd/config.json: the model is a BertForTokenClassification"
rm data/dev.csv
expect 1 "$CAIRN_BINARY" glue --task RTE --model odd --data-dir data --do-eval --output-dir eval-odd
says "odd/config.json: the model is a BertForTokenClassification"
expect 0 "$CAIRN_BINARY" glue --task custom --model odd --data-dir data --text-columns text --label-column label --backend cpu --do-train --max-steps 1 --max-seq-length 24 --output-dir from-odd
says "its class is BertForTokenClassification ('architectures'), whose head is not used" "2 new, initialised at random: classifier.weight, classifier.bias"
bare '"num_labels": 2, "problem_type": "multi_label_classification",'
sed -i '/single_label/d' odd/config.json
expect 2 "$CAIRN_BINARY" glue --task RTE --model odd --data-dir data --do-eval --output-dir eval-odd
says "'problem_type' is multi_label_classification, and the task needs another"

# A signal ends the wait for a pipe that stays open.
mkfifo pipe
"${predict[@]}" --input pipe >waiting.jsonl 2>messages &
pid=$!
exec {to_pipe}>pipe
echo "a good film" >&"$to_pipe"
kill -TERM "$pid"
wait_until "$hang_limit" gone "$pid" || complain "SIGTERM did not end a wait for more texts"
exec {to_pipe}>&-
code=0
wait "$pid" || code=$?
[ "$code" -eq 75 ] || [ "$code" -eq 143 ] || complain "a stopped predict ended with $code: $(cat messages)"

# The tokenizer's files: tokenizer.json alone is enough; a class of another tokenizer is refused by name, unless --vocab
# is given; flags come before the files.
cp -r one alone && rm alone/vocab.txt alone/special_tokens_map.json
expect 0 "$CAIRN_BINARY" predict --model alone --backend cpu --threads 1 --input lines.txt --output alone.jsonl
cmp base.jsonl alone.jsonl || complain "tokenizer.json alone gives other predictions"
cp -r one other && sed -i 's/"tokenizer_class": "BertTokenizer"/"tokenizer_class": "BertJapaneseTokenizer"/' other/tokenizer_config.json
expect 1 "$CAIRN_BINARY" predict --model other --backend cpu --threads 1 --input lines.txt
says "'tokenizer_class' is BertJapaneseTokenizer" "--vocab FILE"
expect 0 "$CAIRN_BINARY" predict --model other --vocab other/vocab.txt --backend cpu --threads 1 --input lines.txt --output other.jsonl
cmp base.jsonl other.jsonl || complain "--vocab gives other predictions"
tr '[:lower:]' '[:upper:]' <lines.txt >capitals.txt
expect 0 "${predict[@]}" --input capitals.txt --output capitals.jsonl
cmp base.jsonl capitals.jsonl || complain "the model lower-cases, and predict does not"
expect 0 "${predict[@]}" --input capitals.txt --do-lower-case no --output kept.jsonl
cmp -s base.jsonl kept.jsonl && complain "--do-lower-case no lower-cases"

# Added tokens are ids with embeddings of their own, through training, into the output folder; 16 is also 14 rounded up to 8.
mkdir added && cp vocab.txt added && sed 's/"vocab_size": 14/"vocab_size": 16/' config.json >added/config.json
printf '{"do_lower_case": true, "added_tokens_decoder": {"14": {"content": "<go>"}, "15": {"content": "(y)"}}}' >added/tokenizer_config.json
sed -i 's/bad film/bad <go> (y) film/' data/train.csv
expect 0 "${train[@]}" --model-config added/config.json --vocab added/vocab.txt --text-columns text --output-dir "with added"
grep -q padding .stderr && complain "added tokens count as padding"
grep -q '"content": "(y)"' "with added/tokenizer.json" || complain "an added token is not in tokenizer.json"
expect 0 "$CAIRN_BINARY" inspect --model "with added"
says "(16, 32)"
sed 's/, "15": {"content": "(y)"}//' added/tokenizer_config.json >less.json && mv less.json added/tokenizer_config.json
expect 2 "${train[@]}" --model-config <(sed 's/"vocab_size": 14/"vocab_size": 17/' config.json) --vocab added/vocab.txt --text-columns text --output-dir less
says "added/vocab.txt has 15 pieces"

# A row that takes more than the budget leaves is refused; one that it has room for is read.
{ echo "a good film" && head -c 60000000 /dev/zero | tr '\0' 'a'; } >long.txt
expect 76 "${predict[@]}" --input long.txt --memory-budget 96MiB
says "leaves no room"
expect 0 "${predict[@]}" --input long.txt --memory-budget 1GiB --output long.jsonl
[ "$(wc -l <long.jsonl)" -eq 2 ] || complain "not 2 predictions of a long row"

# The ending of --output is the form; --keep-columns copies columns of the input.
keep=("${predict[@]}" --keep-columns "id, text")
printf 'id,text,more\r\n7.0,"a ""good"" film, the plot",1\r\n,"a bad\nfilm",2\r\n' >kept.csv
printf '%s\n' '{"text": "a \"good\" film, the plot", "id": 7.0, "more": {}}' '{"id": null, "text": "a bad\nfilm"}' >kept.jsonl
expect 0 "${keep[@]}" --input kept.csv --output kept-out.csv
expect 0 "${keep[@]}" --input kept.jsonl --output again.csv
cmp kept-out.csv again.csv || complain "JSON lines and CSV keep other columns: $(cat again.csv)"
[ "$(head -n 1 kept-out.csv)" = index,prediction,probability_negative,probability_positive,id,text ] || complain "not the header: $(head -n 1 kept-out.csv)"
grep -qE '^0,(negative|positive),0\.[0-9]+,0\.[0-9]+,7\.0,"a ""good"" film, the plot"$' kept-out.csv || complain "not CSV: $(cat kept-out.csv)"
tail -n 2 kept-out.csv | head -n 1 | grep -qE '^1,(negative|positive),0\.[0-9]+,0\.[0-9]+,,"a bad$' || complain "a line break is not in quotes: $(cat kept-out.csv)"
expect 0 "${keep[@]}" --input kept.jsonl --output kept-out.jsonl
head -n 1 kept-out.jsonl | grep -qF '}, "id": 7.0, "text": "a \"good\" film, the plot"}' || complain "not the values: $(cat kept-out.jsonl)"
tail -n 1 kept-out.jsonl | grep -qF '}, "id": null, "text": "a bad\nfilm"}' || complain "not null: $(cat kept-out.jsonl)"
expect 0 "${keep[@]}" --input kept.csv --format jsonl
head -n 1 .stdout | grep -qF '}, "id": "7.0", "text": "a \"good\" film, the plot"}' || complain "a table's text is not a text: $(cat .stdout)"
expect 0 "${predict[@]}" --keep-columns id,more --input kept.csv --output kept-out.tsv
[ "$(cut -f 5,6 kept-out.tsv | tr '\t\n' ',;')" = "id,more;7.0,1;,2;" ] || complain "not TSV: $(cat kept-out.tsv)"
expect 1 "${keep[@]}" --input kept.csv --output kept-out.tsv
says "line 3 of the input: 'text' holds a tab or a line break" "--format csv"
expect 1 "${predict[@]}" --keep-columns id,nothing --input kept.csv --output out.csv
says "kept.csv:1: expected a column named 'nothing' in the header, found 'id', 'text', 'more'"
expect 1 "${predict[@]}" --keep-columns more --input kept.jsonl --output out.csv
says "kept.jsonl:2: expected a key 'more', found 'id', 'text'"
head -n 1 kept.jsonl >first.jsonl
expect 0 "${predict[@]}" --keep-columns more --input first.jsonl --output out.csv
grep -q ',{}$' out.csv || complain "an object is not kept as JSON: $(cat out.csv)"
expect 0 "${predict[@]}" --keep-columns text --input lines.txt --output kept-out.jsonl
sed 's/, "text": .*/}/' kept-out.jsonl | cmp - base.jsonl || complain "--keep-columns changes predictions"
expect 1 "${predict[@]}" --keep-columns id --input lines.txt
says "lines.txt: expected a column 'id', found lines of text, which are 'text' alone"
expect 2 "${predict[@]}" --keep-columns label --input data/train.csv
says "--keep-columns label: the predictions have a column of that name; --format csv calls theirs otherwise"
expect 2 "${predict[@]}" --input rows.csv --output out.csv --format tsv
says "--output out.csv and --format tsv are two formats"
expect 2 "${predict[@]}" --input rows.csv --output out.xlsx
says "--output out.xlsx: expected the ending .csv, .tsv or .jsonl, or --format"
expect 2 "${predict[@]}" --input rows.csv --output out.csv.gz
says "predictions are not packed"

finish
