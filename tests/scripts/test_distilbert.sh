#!/usr/bin/env bash
# A DistilBERT in the form of Transformers, trained, resumed and written in that form again.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Transformers' folders, whose models have 101 pieces.
golden=$source_dir/tests/golden/bert
{ printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the a cat dog sat ran on under mat tree . && seq 85; } >vocab.txt
for head in cls span mlm; do
    mkdir $head
    cp "$golden/distil_$head"/{config.json,model.safetensors} vocab.txt $head
    expect 0 "$CAIRN_BINARY" convert --model $head --output converted-$head
    cmp $head/model.safetensors converted-$head/model.safetensors || complain "$head: convert writes other weights"
    grep -q '"model_type": "distilbert"' converted-$head/config.json || complain "$head: another 'model_type' is written"
    grep -q token_type_ids converted-$head/tokenizer_config.json && complain "$head: the tokenizer gives token types"
done
grep -q '"DistilBertForSequenceClassification"' converted-cls/config.json || complain "another class is written"
grep -q '"DistilBertForQuestionAnswering"' converted-span/config.json || complain "another class is written"
grep -q '"DistilBertForMaskedLM"' converted-mlm/config.json || complain "another class is written"

# glue: stopped and resumed, and with recomputation: the same bits.
{ printf 'sentence\tlabel\n' && for i in {1..24}; do printf 'the %s sat on the mat %d\t%d\n' "$((i % 7))" "$i" $((i % 2)); done; } >train.tsv
cp train.tsv dev.tsv
run=("$CAIRN_BINARY" glue --task sst-2 --model mlm --data-dir . --max-seq-length 16 --batch-size 8 --max-steps 4 --backend cpu --precision fp32
    --threads 1 --snapshot-dir none --do-train)
expect 0 "${run[@]}" --do-eval --output-dir whole
says "4 new, initialised at random" "not used (heads that this model lacks): vocab_layer_norm.bias"
grep -q '"DistilBertForSequenceClassification"' whole/config.json || complain "another class is written"
touch stop
expect 75 "${run[@]}" --output-dir parts --persist-file stop
expect 0 "${run[@]}" --output-dir parts --persist-file stop
says "resuming from"
cmp whole/model.safetensors parts/model.safetensors || complain "a resumed run trains another model"
expect 0 "${run[@]}" --output-dir full --recompute full
cmp whole/model.safetensors full/model.safetensors || complain "--recompute full trains another model"
sed 's/"seq_classif_dropout": 0.0/"seq_classif_dropout": 0.5/' mlm/config.json >other.json
expect 2 "${run[@]}" --output-dir parts --persist-file stop --model-config other.json
says "the initial weights or sizes"
expect 0 "$CAIRN_BINARY" glue --task sst-2 --model whole --data-dir . --backend cpu --precision fp32 --threads 1 --do-eval --output-dir again
cmp whole/predictions_dev.tsv again/predictions_dev.tsv || complain "the written model gives other predictions"
for folder in whole whole/checkpoint-4; do # a checkpoint is a model's folder too
    expect 0 "$CAIRN_BINARY" inspect --model "$folder"
    says pre_classifier.weight distilbert.transformer.layer.1.ffn.lin2.bias
done

# Vectors: of a folder of sentence-transformers with a DistilBERT's name of a file, and of a model trained from it, whose
# encoder is saved alone.
mkdir -p vectors/{0_Transformer,1_Pooling} pairs
cp mlm/* vectors/0_Transformer
echo '{"max_seq_length": 9}' >vectors/0_Transformer/sentence_distilbert_config.json
echo '{"pooling_mode": "cls"}' >vectors/1_Pooling/config.json
echo '[{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"},
 {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]' >vectors/modules.json
embed=("$CAIRN_BINARY" predict --embed --input text.txt --backend cpu --precision fp32 --threads 1)
{ for i in {1..6}; do echo "the cat $i sat on the mat"; done; } >text.txt
expect 0 "${embed[@]}" --model vectors --output said.npy
says "as vectors says: --pooling cls --normalize off --max-seq-length 9"
expect 0 "${embed[@]}" --model mlm --pooling cls --max-seq-length 9 --output given.npy
cmp said.npy given.npy || complain "a plain folder gives other vectors"
for i in {1..4}; do printf '{"a": "the cat %d", "b": "a dog %d"}\n' "$i" "$i"; done >pairs/train.jsonl
expect 0 "$CAIRN_BINARY" embed --model vectors --data-dir pairs --text-columns a,b --do-train --max-steps 2 --batch-size 4 --max-seq-length 9 \
    --backend cpu --precision fp32 --threads 1 --snapshot-dir none --output-dir embedded
grep -q '"DistilBertModel"' embedded/config.json || complain "another class is written"
grep -q '"pooling_mode_cls_token": true' embedded/1_Pooling/config.json || complain "the pooling is lost"
expect 0 "$CAIRN_BINARY" inspect --model embedded
grep -q '^transformer.layer.1.ffn.lin2.bias ' .stdout || complain "the names are not a DistilBertModel's"
expect 0 "${embed[@]}" --model embedded --output model.npy
expect 0 "${embed[@]}" --model embedded/checkpoint-2 --output checkpoint.npy
cmp model.npy checkpoint.npy || complain "a checkpoint gives other vectors than its model"
cmp -s model.npy said.npy && complain "training changed nothing"
expect 0 "$CAIRN_BINARY" convert --model embedded --output converted-embedded
cmp embedded/model.safetensors converted-embedded/model.safetensors || complain "convert writes other weights"

# squad, whose head drops rows of tokens; pretraining without next sentences.
squad=("$CAIRN_BINARY" squad --model span --data-dir "$golden/../squad" --max-seq-length 64 --doc-stride 40 --max-query-length 16 --backend cpu
    --precision fp32 --threads 1 --snapshot-dir none --do-train --max-steps 2)
sed 's/"qa_dropout": 0.0/"qa_dropout": 0.5/' span/config.json >dropping.json
expect 0 "${squad[@]}" --output-dir kept
expect 0 "${squad[@]}" --output-dir dropped --model-config dropping.json
cmp -s kept/model.safetensors dropped/model.safetensors && complain "qa_dropout changes nothing"
grep -q '"DistilBertForQuestionAnswering"' dropped/config.json || complain "another class is written"
for i in {1..60}; do printf 'the cat %d sat on the mat . a dog %d ran under a tree .\n\n' "$((i % 50))" "$((i % 7))"; done >text.txt
pretrain=("$CAIRN_BINARY" pretrain --model mlm --input text.txt --max-seq-length 32 --batch-size 8 --max-steps 2 --backend cpu --precision fp32
    --threads 1 --snapshot-dir none --output-dir pretrained)
expect 2 "${pretrain[@]}"
says "next-sentence prediction; give --nsp off"
expect 0 "${pretrain[@]}" --nsp off
grep -q '"DistilBertForMaskedLM"' pretrained/config.json || complain "another class is written"
expect 2 "$CAIRN_BINARY" plan --model-config mlm --max-seq-length 32 --predictions 4
expect 0 "$CAIRN_BINARY" plan --model-config mlm --max-seq-length 32 --predictions 4 --nsp off
says "DistilBERT of 2 layers"
finish
