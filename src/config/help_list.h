/* The help of every command: its group, the flags that matter, examples. */
#pragma once

/* X(command, title, flags, examples): the commands in the order of `cairn --help`, where a title begins a group. --help
   has these flags of the command, in this order; "": all of them. An example is a line; lines before it that begin with
   # describe it. `cairn --help` shows the first example of glue, plan and launch. */
#define HELP_LIST(X)                                                                                                   \
    X(WIKI, "Prepare data and models", "",                                                                             \
      "cairn wiki --input enwiki-latest-pages-articles.xml.bz2 --output-dir text\n"                                    \
      "cairn wiki --input reviews.csv --text-columns review --output-dir text")                                        \
    X(VOCAB, "", "", "cairn vocab --input text --size 30522 --output vocab.txt")                                       \
    X(SHARDS, "", "input vocab output-dir max-seq-length layout nsp whole-words dupe-factor eval-fraction seed",       \
      "cairn shards --input text --vocab vocab.txt --max-seq-length 128 --eval-fraction 0.01 --output-dir shards")     \
    X(CONVERT, "", "",                                                                                                 \
      "# the model of a run, as a folder for others\n"                                                                 \
      "cairn convert --model runs/mrpc --output mrpc-model\n"                                                          \
      "cairn convert --model bert_model.ckpt --model-config bert_config.json --vocab vocab.txt --output bert-base")    \
    X(INSPECT, "", "",                                                                                                 \
      "cairn inspect --model bert-base-uncased\n# against the digests of its manifest.json\ncairn inspect --verify "   \
      "--model mrpc-model")                                                                                            \
    X(GLUE, "Train and evaluate",                                                                                      \
      "task data-dir model output-dir do-train do-eval batch-size learning-rate epochs recompute",                     \
      "# bert-base-uncased: a folder with weights and vocabulary\n"                                                    \
      "cairn glue --task MRPC --data-dir glue/MRPC --model bert-base-uncased --do-train --do-eval "                    \
      "--output-dir runs/mrpc\n"                                                                                       \
      "# own train.csv with columns text and label; a tenth is held out\n"                                             \
      "cairn glue --task custom --data-dir reviews --text-columns text --label-column label --eval-fraction 0.1 "      \
      "--class-weights auto --model bert-base-uncased --do-train --do-eval --output-dir runs/reviews")                 \
    X(SQUAD, "", "data-dir model output-dir do-train do-eval version-2 batch-size learning-rate epochs recompute",     \
      "cairn squad --data-dir squad --model bert-base-uncased --do-train --do-eval --output-dir runs/squad")           \
    X(EMBED, "", "data-dir text-columns model output-dir do-train do-eval loss batch-size learning-rate epochs",       \
      "# train.csv and dev.csv with columns question and answer\n"                                                     \
      "cairn embed --data-dir faq --text-columns question,answer --model bert-base-uncased --do-train --do-eval "      \
      "--output-dir runs/faq")                                                                                         \
    X(PRETRAIN, "",                                                                                                    \
      "input data-dir preset model-config vocab output-dir max-seq-length batch-size max-steps recompute",             \
      "cairn pretrain --data-dir shards --vocab vocab.txt --preset bert-base-phase1 --output-dir runs/base\n"          \
      "# every stage, from a dump to a model\n"                                                                        \
      "cairn pretrain --input enwiki-latest-pages-articles.xml.bz2 --model-config bert-base --output-dir runs/wiki")   \
    X(ADAPT, "",                                                                                                       \
      "input model output-dir text-columns max-seq-length batch-size learning-rate epochs recompute eval-fraction",    \
      "cairn adapt --model bert-base-uncased --input reviews.csv --text-columns text --output-dir runs/adapted")       \
    X(PREDICT, "",                                                                                                     \
      "model input output text-columns keep-columns embed max-seq-length eval-batch-size precision threads",           \
      "cairn predict --model runs/reviews --input new.csv --output labels.csv\n"                                       \
      "echo 'a fine day' | cairn predict --model runs/reviews\n"                                                       \
      "cairn predict --model runs/embedder --input new.csv --embed --output vectors.npy")                              \
    X(PLAN, "Plan and compare",                                                                                        \
      "model-config batch-size max-seq-length predictions recompute memory-budget device ranks pipeline svg",          \
      "# memory and time on a GPU that this host lacks\n"                                                              \
      "cairn plan --model-config bert-large --batch-size 32 --max-seq-length 384 --device a100\n"                      \
      "# all schedules of a pipeline\n"                                                                                \
      "cairn plan --model-config bert-base --batch-size 64 --ranks 4 --pipeline all --stages 4")                       \
    X(SWEEP, "", "",                                                                                                   \
      "cairn sweep --vary learning-rate=2e-5,5e-5 --vary seed=1-3 --output-dir sweeps/mrpc -- glue --task MRPC "       \
      "--data-dir glue/MRPC --model bert-base-uncased --do-train --do-eval")                                           \
    X(REPORT, "", "",                                                                                                  \
      "cairn report runs/none runs/full\n"                                                                             \
      "# the table, curves, and a page for a judge\n"                                                                  \
      "cairn report runs/none runs/full --proof --output-dir report")                                                  \
    X(VARIABILITY, "", "", "cairn variability runs/monday runs/tuesday --output-dir variability")                      \
    X(VERIFY, "", "steps data-dir model vocab threads", "cairn verify runs/mrpc --steps 1-20")                         \
    X(LAUNCH, "Many machines",                                                                                         \
      "ranks hosts max-restarts probe iface connect-timeout peer-timeout rendezvous snapshot-dir",                     \
      "# four processes, which share the work\n"                                                                       \
      "cairn launch --ranks 4 -- glue --task MRPC --data-dir glue/MRPC --model bert-base-uncased --do-train "          \
      "--do-eval --output-dir runs/mrpc\n"                                                                             \
      "cairn launch --hosts hosts.txt --max-restarts 3 -- pretrain --data-dir shards --vocab vocab.txt "               \
      "--preset bert-base-phase1 --output-dir runs/base")                                                              \
    X(SNAPSHOT, "", "", "cairn snapshot list\ncairn snapshot persist --output-dir runs/base")                          \
    X(DOCTOR, "", "", "cairn doctor --output-dir runs")
