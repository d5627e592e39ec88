/* The one table of options.

   X(field, type, default, low, high, words, unit, effect, commands, help): the flag is the field with `-` for `_`. low
   and high bound numbers; `words` are a Choice's, or those that name no file in place of a path, or one in place of a
   number or time, which is kept as -1. `commands` are letters:
   * every task, g glue, k squad, e embed, p plan, c convert, i inspect, v vocab, r report, t pretrain and adapt, a
   adapt alone, w wiki, s shards, l launch, n snapshot, y verify, d predict, z sweep, q variability, o doctor; R: each
   rank may have its own, D: a place, which all ranks have or none; T: only training uses it, S: only several ranks. The
   rows of a group follow each other; OPTION_GROUP_LIST has its title.

   <kt:ONE|d:OTHER|:REST> in help and words is ONE for the commands with a letter before its colon, else OTHER or REST;
   without letters it is for all that are left (config_wording). Where a help text has "default:", help shows no other
   default. */
#pragma once

#define OPTION_LIST(X)                                                                                                 \
    /* task */                                                                                                         \
    X(task, Text, "MNLI", 0, 0, "", "NAME", RESULT, "gp",                                                              \
      "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX<p:, squad, embed> or custom (own data)")               \
    X(data_dir, Folder, "", 0, 0, "", "DIR", NONE, "*pyD",                                                             \
      "<k:folder with train-v1.1.json and dev-v1.1.json (-v2.0 with --version-2), or train.json and "                  \
      "dev.json|e:folder with train and dev, each .tsv, .csv or .jsonl|t:folder with HDF5 shards|y:where the run's "   \
      "--data-dir is now|:folder with the task's files, "                                                              \
      "or with a folder of its name>")                                                                                 \
    X(model, Path, "", 0, 0, "", "PATH", NONE, "*pcidyD",                                                              \
      "<ci:weights to read|d:the fine-tuned model|y:where the run's --model is now|:weights to start from>: a "        \
      "Hugging Face folder, a .safetensors, .bin or .pt file, a TF1 checkpoint prefix")                                \
    X(model_config, PathOrName, "", 0, 0, "", "FILE", NONE, "*pciyR",                                                  \
      "config.json, bert_config.json, or bert-tiny, -mini, -small, -medium, -base, -large<y:|:; default: the "         \
      "one beside --model>")                                                                                           \
    X(vocab, Path, "", 0, 0, "", "FILE", NONE, "*pcsdyR",                                                              \
      "vocab.txt or tokenizer.json<sy:|gkepcda:; default: the one beside --model|:; default: the one beside --model, " \
      "else in --data-dir, else made of --input>")                                                                     \
    X(output_dir, Folder, "results", 0, 0, "", "DIR", NONE, "*rwsnzqoR",                                               \
      "<r:folder for report.html and its pictures; default: none, the table alone|w:folder for the text|s:folder "     \
      "for the shards|n:the run whose snapshots are meant; default: all runs|z:folder for the runs and the table of "  \
      "all|q:folder for variability.html and variability.svg; default: none, the table alone|o:folder whose disk is "  \
      "timed; default: the current folder|:folder for the model, the results and the checkpoints>")                    \
    X(do_train, Switch, "false", 0, 0, "", "", NONE, "*",                                                              \
      "train<a:|t:; the default, unless --do-eval is given alone>")                                                    \
    X(do_eval, Switch, "false", 0, 0, "", "", NONE, "*",                                                               \
      "evaluate <g:the dev splits|ke:the dev split|a:the text that is held out, before and after "                     \
      "training|:--eval-dir>")                                                                                         \
    X(do_predict, Switch, "false", 0, 0, "", "", NONE, "gk", "<k:answer test.json|:predict the test splits>")          \
    X(submission, Folder, "", 0, 0, "", "DIR", NONE, "gD", "predict and write the leaderboard's files into DIR")       \
    X(eval_splits, Text, "all", 0, 0, "", "LIST", NONE, "g",                                                           \
      "dev and test splits by name, with commas; all: the task's")                                                     \
    X(text_columns, Text, "", 0, 0, "", "A[,B...]", RESULT, "gpedwt",                                                  \
      "<d:the text column, or two with a comma between, by name; default: those of the training, else "                \
      "text|wt:the column of the text in CSV, TSV and JSON lines, by name; default: text|e:anchor,positive or "        \
      "anchor,positive,negative: the columns of a row's texts, by name|:custom task: the text column, or two with a "  \
      "comma between, by name>")                                                                                       \
    X(label_column, Text, "", 0, 0, "", "C", RESULT, "gpe",                                                            \
      "<e:the column of the scores, by name: of training with --loss cosine, and of the dev file|:custom task: the "   \
      "label column, by name>")                                                                                        \
    X(labels, Text, "", 0, 0, "", "X,Y,...", RESULT, "gp",                                                             \
      "custom task: the labels in order, or regression; default: those of the training data, else of --model")         \
    X(seeds, Text, "", 0, 0, "", "A-B", NONE, "gke",                                                                   \
      "train with each of these seeds, in folders of --output-dir, and print mean and deviation: 1-10, or 1,2,7")      \
    X(multi_label, Switch, "false", 0, 0, "", "", RESULT, "gp",                                                        \
      "custom task: a row has any number of labels, with commas between or as a JSON array")                           \
    X(version_2, Switch, "false", 0, 0, "", "", RESULT, "k", "SQuAD 2.0: a question may have no answer")               \
    X(pooling, Choice, "auto", 0, 0, "auto mean cls", "HOW", RESULT, "epd",                                            \
      "a text's vector: the mean of its tokens, or that of [CLS]; auto: as the folder of --model says, else mean")     \
    X(normalize, Choice, "auto", 0, 0, "auto on off", "WHEN", RESULT, "ed",                                            \
      "the model's vectors have length 1; auto: as the folder of --model says, else off")                              \
    X(preset, Text, "", 0, 0, "", "NAME", NONE, "t",                                                                   \
      "size and recipe: bert-{tiny,mini,small,medium,base,large}-{phase1,phase2,mlperf,original,variability}; other "  \
      "flags take precedence")                                                                                         \
    X(eval_dir, Folder, "", 0, 0, "", "DIR", NONE, "tD",                                                               \
      "HDF5 shards to evaluate on; default: --data-dir, without training")                                             \
    /* text */                                                                                                         \
    X(max_seq_length, Count, "128", 3, 65536, "", "N", RESULT, "*psd",                                                 \
      "longest <k:window of a paragraph|d:text|:sequence> in tokens<agped:; longer ones are cut|t:; default: that of " \
      "the shards, 128 with --input><gke:. Without training the default is the model's|p:. The default with --task "   \
      "squad is 384|d:; default: the model's>")                                                                        \
    X(max_query_length, Count, "64", 1, 65536, "", "N", RESULT, "k",                                                   \
      "longest question in tokens; longer ones are cut")                                                               \
    X(doc_stride, Count, "128", 1, 65536, "", "N", RESULT, "k",                                                        \
      "tokens from one window of a long paragraph to the next")                                                        \
    X(predictions, Count, "0", 0, 65536, "", "N", RESULT, "pts",                                                       \
      "masked positions per sequence at most<p:; above 0 plans pretraining|:; 0: 15 % of the longest>")                \
    X(do_lower_case, Choice, "auto", 0, 0, "auto yes no", "WHEN", RESULT, "*vsd",                                      \
      "lower-case the text; auto: <v:yes|t:as the tokenizer's files or the shards say|:as the tokenizer's "            \
      "files say><v:|:, else no where pieces have capital letters>")                                                   \
    X(strip_accents, Choice, "auto", 0, 0, "auto yes no", "WHEN", RESULT, "*vsd",                                      \
      "strip accents; auto: as --do-lower-case")                                                                       \
    /* training */                                                                                                     \
    X(batch_size, Count, "32", 1, 1048576, "", "N", RESULT, "*pT",                                                     \
      "<e:rows of texts|p:sequences, or rows of several texts,|:sequences> per step")                                  \
    X(micro_batch_tokens, Text, "default", 0, 0, "", "N", BITS, "*p",                                                  \
      "tokens per forward and backward pass: a number, step (one pass per step), auto (the planner's choice); "        \
      "default: those of a step, at most 16384")                                                                       \
    X(learning_rate, Real, "2e-5", 0, 100, "", "X", RESULT, "*T", "peak learning rate")                                \
    X(epochs, Real, "3", 1e-6, 1e6, "", "X", RESULT, "*T", "passes over the training data")                            \
    X(max_steps, Count, "0", 0, 1e15, "", "N", RESULT, "*pT",                                                          \
      "number of steps<p:, for the time that --pbs, --slurm and --sge ask for|:; 0: from --epochs>")                   \
    X(warmup, Text, "0.1", 0, 0, "", "X", RESULT, "*T",                                                                \
      "a fraction of the steps (0.1), rounded down, a percentage (10%), rounded up, or a count of steps (1000)")       \
    X(schedule, Text, "linear", 0, 0, "", "NAME", RESULT, "*T",                                                        \
      "linear, poly:P, cosine or constant; with -nvidia: NVIDIA's form, which jumps at the end of warmup")             \
    X(optimizer, Choice, "adamw", 0, 0, "adamw lamb nvlamb", "NAME", RESULT, "*pT", "update rule")                     \
    X(bias_correction, Switch, "true", 0, 0, "", "", RESULT, "*T",                                                     \
      "correct the moments' bias; Google's BERT was trained without it")                                               \
    X(adam_beta1, Real, "0.9", 0, 0.999999, "", "X", RESULT, "*T", "decay of the first moment")                        \
    X(adam_beta2, Real, "0.999", 0, 0.9999999, "", "X", RESULT, "*T", "decay of the second moment")                    \
    X(adam_eps, Real, "1e-6", 0, 1, "", "X", RESULT, "*T", "added to the root of the second moment")                   \
    X(weight_decay, Real, "0.01", 0, 10, "", "X", RESULT, "*T", "decoupled decay; never of biases and LayerNorms")     \
    X(kfac_interval, Count, "0", 0, 1000000, "", "K", RESULT, "*pT",                                                   \
      "precondition the encoder's gradients with K-FAC, its statistics gathered every K steps; 0: none<p:. "           \
      "With --pipeline: fill the bubbles with its work>")                                                              \
    X(kfac_lag, Text, "auto", 0, 0, "", "L", RESULT, "*pT",                                                            \
      "steps from gathered statistics until their inverses are used, at most K; auto: 0, with a pipeline K")           \
    X(kfac_damping, Real, "0.001", 1e-12, 1e6, "", "X", RESULT, "*pT", "K-FAC's damping")                              \
    X(max_grad_norm, Real, "1.0", 0, 1e9, "", "X", RESULT, "*T", "clip the gradient's norm; 0: never")                 \
    X(dropout, Real, "-1", -1, 0.999, "", "P", RESULT, "*pT", "all dropout rates; -1: those of config.json")           \
    X(label_smoothing, Real, "0", 0, 0.999, "", "X", RESULT, "gT",                                                     \
      "share of the target that is spread evenly over all classes")                                                    \
    X(class_weights, Text, "", 0, 0, "", "W,...", RESULT, "gT",                                                        \
      "weight of each label in the loss, in their order; auto: inverse to the labels' rows; default: all equal")       \
    X(loss, Choice, "infonce", 0, 0, "infonce cosine triplet", "NAME", RESULT, "epT",                                  \
      "infonce: find the positive among all positives and negatives of the step (multiple negatives ranking); "        \
      "cosine: the pair's cosine is its score, as 1 or 0; triplet: the anchor is nearer to the positive than to the "  \
      "negative")                                                                                                      \
    X(temperature, Real, "0.05", 0.0001, 100, "", "X", RESULT, "eT", "infonce: cosines are divided by this")           \
    X(symmetric, Switch, "false", 0, 0, "", "", RESULT, "epT", "infonce: find the anchor of each positive too")        \
    X(margin, Real, "5", 0, 1e6, "", "X", RESULT, "eT", "triplet: by so much nearer, as Euclidean distance")           \
    X(nsp, Choice, "on", 0, 0, "on off", "WHEN", RESULT, "pts",                                                        \
      "<s:make pairs of texts for next-sentence prediction; off: sequences of one text|:train next-sentence "          \
      "prediction too>")                                                                                               \
    X(masking, Choice, "auto", 0, 0, "auto static dynamic", "HOW", RESULT, "ts",                                       \
      "<s:static: masks are drawn once and stored; dynamic: none is stored; auto: dynamic with --layout "              \
      "compact, else static|:static: the masks of the shards; dynamic: drawn again in every epoch; auto: "             \
      "static where the shards have masks>")                                                                           \
    X(mask_fraction, Real, "0.15", 0.001, 0.9, "", "X", RESULT, "ts",                                                  \
      "fraction of the words <s:to mask|:that dynamic masking chooses>")                                               \
    X(whole_words, Switch, "false", 0, 0, "", "", RESULT, "ts", "<s:mask|:dynamic masking chooses> whole words")       \
    X(moments, Choice, "fresh", 0, 0, "fresh carried", "WHICH", RESULT, "tT",                                          \
      "with --model RUN: the optimizer's moments begin at 0 or come from that run's checkpoint")                       \
    X(warmup_start, Count, "0", -1e12, 1e12, "", "N", RESULT, "tT",                                                    \
      "step at which warmup begins; MLPerf's start_warmup_step, often negative")                                       \
    X(seed, Count, "42", 0, 9223372036854775807.0, "", "N", RESULT, "*s",                                              \
      "seed of <s:pairs, lengths and masks|:weights, order and dropout>")                                              \
    /* how */                                                                                                          \
    X(precision, Choice, "auto", 0, 0, "auto fp32 tf32 bf16 fp16", "TYPE", NONE, "*pdR",                               \
      "compute type; auto: the backend's fastest (never fp16, tf32). tf32: fp32 with TF32 products, on a GPU")         \
    X(attention, Choice, "auto", 0, 0, "auto own cudnn", "KIND", BITS, "*p",                                           \
      "on a GPU: own kernels, or cudnn where dropout is 0 (bf16, fp16; untested on a GPU); auto: own")                 \
    X(loss_scale, Text, "dynamic", 0, 0, "", "X", RESULT, "*T",                                                        \
      "fp16: dynamic (an overflow skips the update and halves it), or a fixed scale")                                  \
    X(init_loss_scale, Real, "65536", 1, 4294967296.0, "", "X", RESULT, "*T", "fp16: the dynamic scale at the start")  \
    X(loss_scale_growth_interval, Count, "2000", 1, 2147483647, "", "N", RESULT, "*T",                                 \
      "fp16: the dynamic scale doubles after N updates without an overflow")                                           \
    X(backend, Text, "auto", 0, 0, "", "NAME", BITS, "*pdR",                                                           \
      "auto (the first of the following that opens), cuda, cpu, or ref (plain loops)")                                 \
    X(threads, Count, "0", 0, 4096, "", "N", NONE, "*pwsdyR",                                                          \
      "number of threads, which changes no result; 0: one for each core that this process may use")                    \
    X(recompute, Text, "none", 0, 0, "", "POLICY", NONE, "*pT",                                                        \
      "none, lean, ffn, selective, half-attention, full, offload (a GPU), every:K, auto, or what layers keep, from "   \
      "the first one up, as 'full*2,x+o+y1*6,none*4' (a GPU: x+o/host has o in the host's memory); changes no bit of " \
      "a result")                                                                                                      \
    X(memory_budget, Size, "auto", 0, 0, "", "SIZE", NONE, "*pdR",                                                     \
      "memory to plan with, as 16GiB or 500MB; auto: the free memory")                                                 \
    X(virtual_ranks, Count, "0", 0, 1048576, "", "V", BITS, "*p",                                                      \
      "compute as V ranks would: no bit depends on the number of ranks, which divides V, nor on "                      \
      "--micro-batch-tokens; not with --wire bf16. 0: sums over the actual ranks")                                     \
    X(grain_tokens, Count, "2048", 1, 1e9, "", "N", BITS, "*p",                                                        \
      "--virtual-ranks: tokens whose gradients are summed at once; a micro-batch holds at least this many")            \
    X(padded, Switch, "false", 0, 0, "", "", BITS, "*p", "pad every sequence to --max-seq-length (for comparison)")    \
    X(poison, Switch, "false", 0, 0, "", "", NONE, "*R", "fill every tensor with NaN at its last use (for tests)")     \
    /* state */                                                                                                        \
    X(save_every, Duration, "20m", 0, 0, "epoch", "TIME", NONE, "*T",                                                  \
      "time between saves of the training state; epoch: save at the end of each epoch; off: never by time")            \
    X(save_steps, Count, "0", 0, 1e15, "", "N", NONE, "*T", "save every N steps too; 0: never by count")               \
    X(keep, Count, "1", 1, 1000000, "", "N", NONE, "*RT", "checkpoints to keep")                                       \
    X(resume, Folder, "auto", 0, 0, "auto never", "WHAT", NONE, "*T",                                                  \
      "auto (the newest checkpoint in --output-dir), never, or a checkpoint's folder")                                 \
    X(max_time, Duration, "off", 0, 0, "", "TIME", NONE, "*z",                                                         \
      "save and stop (exit code 75) before this much time has passed")                                                 \
    X(fit_schedule, Switch, "false", 0, 0, "", "", NONE, "*T",                                                         \
      "time some steps, take them back, and train so many steps that the run ends within --max-time; at most "         \
      "--epochs, where that is given")                                                                                 \
    X(stop_after, Duration, "off", 0, 0, "", "TIME", NONE, "*zT",                                                      \
      "end training after this much time in training, over all processes of the run, then evaluate; keeps the "        \
      "schedule")                                                                                                      \
    X(override, Switch, "false", 0, 0, "", "", NONE, "*",                                                              \
      "resume although flags that alter the run have changed; a run without steps to make is refused")                 \
    /* watching */                                                                                                     \
    X(log_every, Count, "10", 1, 1e9, "", "N", NONE, "*RT", "steps between log lines, without a terminal")             \
    X(digest_steps, Count, "0", 0, 1e15, "", "N", NONE, "*T",                                                          \
      "digests in metrics.jsonl: of the summed gradients at every step, of the weights every N steps; 0: none")        \
    X(eval_every, Count, "0", 0, 1e15, "epoch", "N", NONE, "*",                                                        \
      "evaluate every N steps, or at the end of each epoch (epoch), and keep the best model in best/")                 \
    X(final, Choice, "best", 0, 0, "best last", "WHICH", NONE, "*T",                                                   \
      "the model that is published, evaluated and predicts after training: the best of --eval-every, or the last")     \
    X(best_by, Text, "", 0, 0, "", "METRIC", RESULT, "gT",                                                             \
      "what chooses the best model: a metric of the task, macro_f1, weighted_f1 or loss; default: the task's own "     \
      "metric")                                                                                                        \
    X(n_best_size, Count, "20", 1, 10000, "", "N", NONE, "k",                                                          \
      "answers per question in nbest_predictions.json, and number of starts and ends that are tried")                  \
    X(max_answer_length, Count, "30", 1, 65536, "", "N", NONE, "k", "longest answer in tokens")                        \
    X(null_score_diff_threshold, Real, "0", -1e6, 1e6, "", "X", NONE, "k",                                             \
      "--version-2: no answer where its score exceeds the best answer's by more than this")                            \
    X(patience, Count, "0", 0, 1000000, "", "N", NONE, "gke",                                                          \
      "end training after N evaluations of --eval-every without a better result; 0: never")                            \
    X(eval_samples, Text, "", 0, 0, "", "N", NONE, "tT",                                                               \
      "evaluate every N training sequences; mlperf: at the interval of MLPerf's rules")                                \
    X(eval_count, Count, "0", 0, 1e9, "", "N", NONE, "t",                                                              \
      "evaluate N sequences, at even distances among those of --eval-dir; 0: all")                                     \
    X(eval_first, Count, "0", 0, 1e9, "", "N", NONE, "gt",                                                             \
      "evaluate only the first N <g:rows of each dev split|:sequences of --eval-dir>; 0: all")                         \
    X(target_mlm_accuracy, Real, "0", 0, 1, "", "X", NONE, "tT", "stop when an evaluation reaches this; 0: never")     \
    X(log_format, Choice, "plain", 0, 0, "plain mlperf dllogger", "NAME", NONE, "tR",                                  \
      "write beside metrics.jsonl: mlperf.log (:::MLLOG lines), or dllogger.json")                                     \
    X(mlperf_org, Text, "reference_implementation", 0, 0, "", "NAME", NONE, "t",                                       \
      "who submits; this and the next four are fields of mlperf.log")                                                  \
    X(mlperf_platform, Text, "cairn", 0, 0, "", "NAME", NONE, "t", "name of the system")                               \
    X(mlperf_division, Choice, "closed", 0, 0, "closed open", "NAME", NONE, "t", "division of the submission")         \
    X(mlperf_status, Choice, "onprem", 0, 0, "onprem cloud preview research", "NAME", NONE, "t",                       \
      "availability of the system")                                                                                    \
    X(mlperf_cache_clear, Switch, "false", 0, 0, "", "", NONE, "t", "the hosts' page caches were emptied before")      \
    X(eval_batch_size, Count, "128", 1, 1048576, "", "N", NONE, "*pyd",                                                \
      "sequences per evaluation batch; changes no result")                                                             \
    X(profile, Count, "0", 0, 10000, "", "N", NONE, "*T",                                                              \
      "time every instr of N steps, after 3 to warm up, into profile/ of --output-dir; changes no result")             \
    X(gpu_metrics, Duration, "off", 0, 0, "", "TIME", NONE, "*",                                                       \
      "each TIME (100ms) note the clocks, power, temperature, throttle reasons and ECC errors of each rank's GPU in "  \
      "gpu.csv, by NVML; changes no result")                                                                           \
    X(dry_run, Switch, "false", 0, 0, "", "", NONE, "*z",                                                              \
      "<z:print which runs would be made, and exit|:read everything, plan, print what would run, and exit>")           \
    /* ranks */                                                                                                        \
    X(comm, Choice, "auto", 0, 0, "auto self gloo nccl", "NAME", NONE, "*dy",                                          \
      "how ranks exchange data: gloo (from a GPU through the host's memory), nccl (from GPU to GPU), self (one "       \
      "rank alone); auto: nccl where each rank has a GPU of its own, else gloo; in a pipeline gloo")                   \
    X(rendezvous, Text, "auto", 0, 0, "", "WHERE", NONE, "*ldyRS",                                                     \
      "where ranks meet: tcp://HOST[:PORT] (rank 0 serves it at its host); auto: from the launcher's environment, or " \
      "at this host")                                                                                                  \
    X(iface, Text, "", 0, 0, "", "LIST", NONE, "*ldyRS",                                                               \
      "network to use between hosts: names, prefixes, ^exclusions or CIDR, separated by commas; default: the one on "  \
      "the route to the other hosts")                                                                                  \
    X(connect_timeout, Duration, "5m", 0, 0, "", "TIME", NONE, "*ldyRS",                                               \
      "time that ranks wait for each other at the start, and for an answer of their rendezvous (20 s at most)")        \
    X(peer_timeout, Duration, "30s", 0, 0, "", "TIME", NONE, "*ldyRS", "silence after which a rank counts as lost")    \
    X(shard, Choice, "none", 0, 0, "none optimizer", "WHAT", NONE, "*pTS",                                             \
      "optimizer: each rank keeps and updates its part of the moments alone (ZeRO-1)")                                 \
    X(wire, Choice, "fp32", 0, 0, "fp32 bf16", "TYPE", BITS, "*pTS", "type of gradients between ranks")                \
    X(bucket_size, Size, "25MiB", 0, 0, "", "SIZE", BITS, "*pTS",                                                      \
      "approximate size of the pieces in which gradients are exchanged during backward")                               \
    X(pipeline, Choice, "none", 0, 0, "none gpipe 1f1b interleaved chimera zb-h1 zb-v<p: all>", "NAME", BITS, "*pyd",  \
      "<p:predict time, bubble and memory of|d:predict by|y:compute by|:train, evaluate and predict by> a pipeline "   \
      "of --stages on the ranks, in this order<p:; all: a line per schedule|y:; none: without a pipeline>")            \
    X(stages, Count, "0", 0, 4096, "", "C", NONE, "*pyd",                                                              \
      "stages of the pipeline, several on a rank where there are fewer ranks; 0: as many as ranks have room for")      \
    X(stage_chunks, Count, "2", 1, 64, "", "V", NONE, "*pyd", "interleaved: stages on a rank")                         \
    X(stage_layers, Text, "auto", 0, 0, "", "LIST", NONE, "*pyd",                                                      \
      "layers of each stage, with commas; auto: makes the slowest stage as fast as possible")                          \
    X(snapshot_steps, Text, "auto", 0, 0, "", "K", NONE, "*T",                                                         \
      "copy the state to host memory every K steps; 0: never; auto: at a cost of 1 % of the time, with several ranks " \
      "or a launcher")                                                                                                 \
    X(snapshot_dir, Folder, "/dev/shm", 0, 0, "", "DIR", NONE, "*lnR",                                                 \
      "memory-backed folder for snapshots, which outlive the process")                                                 \
    X(snapshot_replicas, Text, "auto", 0, 0, "", "R", NONE, "*pT",                                                     \
      "other hosts that hold a copy of each rank's part; auto: 1 with several hosts")                                  \
    X(persist_file, Path, "", 0, 0, "", "FILE", NONE, "*RT",                                                           \
      "when this empty file appears, the state is saved to disk, the run stops and the file is removed")               \
    X(audit, Text, "off", 0, 0, "", "WHAT", NONE, "*pT",                                                               \
      "catch a machine that computes wrongly: recompute (compare each recomputed tensor with its first value), P% "    \
      "(compute that share of the steps twice), recompute,P%, or off")                                                 \
    /* plan */                                                                                                         \
    X(device, Text, "", 0, 0, "", "NAME", NONE, "p",                                                                   \
      "plan for a device that this host lacks: h200, h100, b200, a100, v100, t4")                                      \
    X(lengths, Path, "", 0, 0, "", "FILE", NONE, "p",                                                                  \
      "plan for packed sequences of these lengths (a file with lines: length, count) instead of full ones")            \
    X(largest, Text, "", 0, 0, "", "WHAT", NONE, "p",                                                                  \
      "the largest that fits with --recompute, and its time: batch (one micro-batch, in place of --batch-size), "      \
      "length (in place of --max-seq-length) or layers")                                                               \
    X(json, Switch, "false", 0, 0, "", "", NONE, "po", "print JSON")                                                   \
    X(explain, Switch, "false", 0, 0, "", "", NONE, "p", "print every instr of --recompute's plan")                    \
    X(explain_cost, Switch, "false", 0, 0, "", "", NONE, "p", "print the arithmetic of the predicted time")            \
    X(costs, Path, "", 0, 0, "", "FILE", NONE, "p",                                                                    \
      "--explain-cost, beside what a run measured: the kernels.csv in its profile/")                                   \
    X(svg, Path, "", 0, 0, "", "FILE", NONE, "p",                                                                      \
      "draw memory over the predicted time of a micro-batch, a curve per policy")                                      \
    X(pbs, Switch, "false", 0, 0, "", "", NONE, "pz",                                                                  \
      "print <z:the command that submits all runs to PBS|:the lines of a PBS job that fits --recompute's plan>")       \
    X(slurm, Switch, "false", 0, 0, "", "", NONE, "pz", "the same for Slurm")                                          \
    X(sge, Switch, "false", 0, 0, "", "", NONE, "pz", "the same for Grid Engine")                                      \
    X(ranks_per_host, Count, "0", 0, 1024, "", "N", NONE, "p",                                                         \
      "ranks of --ranks that share a host, for --pbs, --slurm, --sge; 0: 4 with GPUs, else 1")                         \
    /* tools */                                                                                                        \
    X(ranks, Count, "0", 0, 1000000, "", "N", NONE, "ipl",                                                             \
      "<l:number of processes; 0: as many as the scheduler or --hosts has slots, else one for each GPU|i:show how N "  \
      "ranks would slice the parameters; 0: do not|:plan for N ranks; 0: for one>")                                    \
    X(network, Text, "", 0, 0, "", "NAME", NONE, "p",                                                                  \
      "network between hosts: 1GbE, 10GbE, 25GbE, 100GbE, HDR, NDR, or GB/s,microseconds")                             \
    X(hosts, Path, "", 0, 0, "", "FILE", NONE, "l",                                                                    \
      "hosts to start on by ssh, a line each: NAME [slots=N]; default: those of the scheduler, else this host")        \
    X(max_restarts, Count, "0", 0, 1000000, "", "N", NONE, "l", "restarts after faults, at most")                      \
    X(probe, Switch, "false", 0, 0, "", "", NONE, "l", "measure the network between the ranks and exit")               \
    X(steps, Text, "", 0, 0, "", "A-B", NONE, "y", "steps to compare; default: all that metrics.jsonl has")            \
    X(input, Paths, "", 0, 0, "-", "LIST", NONE, "vwstdD",                                                             \
      "<d:CSV, TSV, JSON lines or a text per line; - or nothing is the standard input|:files or folders of them, "     \
      "with commas between: ><v:text and .tsv|s:text, a sentence per line|d:|:dumps, text, CSV, TSV or JSON lines, "   \
      "also bz2 and gz><t:; the shards are made from it in --output-dir before training>")                             \
    X(part_size, Size, "100MB", 0, 0, "", "SIZE", NONE, "w", "approximate size of a part file")                        \
    X(max_article, Size, "4MiB", 0, 0, "", "SIZE", NONE, "w", "larger articles are skipped and counted")               \
    X(text_form, Choice, "auto", 0, 0, "auto sentences paragraphs", "WHAT", NONE, "w",                                 \
      "format of plain text: one sentence per line, or paragraphs; auto: detected")                                    \
    X(layout, Choice, "compact", 0, 0, "compact packed fixed nvidia", "WHAT", NONE, "s",                               \
      "compact: rows of variable length; packed: of up to three sequences; fixed: of one length; all three as "        \
      "MLPerf's. nvidia: of one length, as NVIDIA's phases 1 and 2")                                                   \
    X(short_seq_prob, Real, "0.1", 0, 1, "", "P", NONE, "s",                                                           \
      "fraction of documents with shorter sequences, of random length")                                                \
    X(dupe_factor, Count, "1", 1, 1000, "", "N", NONE, "st",                                                           \
      "how often each document is used, each time in other pairs")                                                     \
    X(eval_fraction, Real, "0", 0, 0.9, "", "X", NONE, "gst",                                                          \
      "<g:custom task: fraction of the training rows to hold out as dev split|:fraction of the documents to hold "     \
      "out in eval/ of the shards>")                                                                                   \
    X(split_seed, Count, "42", 0, 9223372036854775807.0, "", "N", RESULT, "g",                                         \
      "custom task: seed of --eval-fraction's draw, so that runs of any --seed share one dev split")                   \
    X(shard_size, Size, "4MiB", 0, 0, "", "SIZE", NONE, "s", "approximate size of the text in a shard")                \
    X(output, Path, "", 0, 0, "", "PATH", NONE, "cvd",                                                                 \
      "<c:folder to write|v:vocabulary to write|:file to write the predictions to; default: the standard output>")     \
    X(format, Choice, "auto", 0, 0, "auto jsonl tsv csv", "FORM", NONE, "d",                                           \
      "format of the predictions; auto: by the ending of --output, else jsonl")                                        \
    X(embed, Switch, "false", 0, 0, "", "", NONE, "d",                                                                 \
      "write a vector for each text, not its label: JSON lines, or NumPy's form by an ending .npy of --output")        \
    X(keep_columns, Text, "", 0, 0, "", "A,B,...", NONE, "d",                                                          \
      "columns of the input to copy into the predictions, by name")                                                    \
    X(size, Count, "30522", 10, 10000000, "", "N", NONE, "vt", "pieces in the vocabulary")                             \
    X(min_count, Count, "2", 1, 1e15, "", "N", NONE, "v", "minimum number of occurrences of a piece")                  \
    X(vary, List, "", 0, 0, "", "FLAG=A,B,...", NONE, "z",                                                             \
      "values of a flag of the command: words, or a range of whole numbers (1-5); each --vary adds a flag")            \
    X(jobs, Count, "1", 1, 1024, "", "N", NONE, "z", "runs at the same time, which share cores and memory")            \
    X(index, Count, "0", 0, 1000000, "", "N", NONE, "z", "make only the N-th run, for the arrays of schedulers")       \
    X(verify, Switch, "false", 0, 0, "", "", NONE, "i",                                                                \
      "compare every file of the folder --model with the digests in its manifest.json")                                \
    X(csv, Path, "", 0, 0, "", "FILE", NONE, "rq", "write the table as CSV too, a row per <q:rank|:run>")              \
    X(proof, Switch, "false", 0, 0, "", "", NONE, "r",                                                                 \
      "write proof.html and proof.txt into --output-dir: changes against the first run, equal bits, speed-up")         \
    /* all */                                                                                                          \
    X(config, Path, "", 0, 0, "", "FILE", NONE, "*pcivrwslndyzqoR",                                                    \
      "read options from a JSON file, also from the run.json of a run")                                                \
    X(print_config, Switch, "false", 0, 0, "", "", NONE, "*pcivrwslndyzqoR",                                           \
      "print the resolved configuration as such a file and exit")                                                      \
    X(verbose, Switch, "false", 0, 0, "", "", NONE, "*pcivrwslndyzqoR", "log more")                                    \
    X(version, Switch, "false", 0, 0, "", "", NONE, "*pcivrwslndyzqoR", "print the version and exit")

/* X(its first option, title): how --help is divided. */
#define OPTION_GROUP_LIST(X)                                                                                           \
    X(task, "Task and files")                                                                                          \
    X(max_seq_length, "Text")                                                                                          \
    X(batch_size, "Training")                                                                                          \
    X(precision, "Computing and memory")                                                                               \
    X(save_every, "Saving and resuming")                                                                               \
    X(log_every, "Watching and evaluating")                                                                            \
    X(comm, "Ranks and faults")                                                                                        \
    X(device, "Planning")                                                                                              \
    X(ranks, "Of this command")                                                                                        \
    X(config, "Of every command")

/* CAIRN_ variables that are not options: X(name, help) for cairn(1), and those for developers and tests, which
   CONTRIBUTING.md describes. Every CAIRN_TEST_… is one, too. */
#define VARIABLE_LIST(X)                                                                                               \
    X("CAIRN_SSH",                                                                                                     \
      "launch: command that starts another on a host, instead of ssh; %h is the host, else the host is appended")      \
    X("CAIRN_JOB", "name of a job for all its ranks, without a scheduler that gives one")                              \
    X("CAIRN_JOB_TOKEN", "secret that the ranks of a job share; launch makes one")                                     \
    X("CAIRN_BACKEND_DIR", "folder searched first for the backends' cairn_NAME.so")                                    \
    X("CAIRN_CUDNN", "the file of libcudnn.so.9, for --attention cudnn, where the loader does not find it")            \
    X("CAIRN_CPU_ISA", "the cpu backend's instructions: avx512_bf16, avx512, avx2 or generic")                         \
    X("CAIRN_SHARED_GPU", "1: several ranks may share one GPU, for trials")                                            \
    X("CAIRN_BINARY", "scripts: program to run, instead of building one")
#define DEVELOPER_VARIABLES                                                                                            \
    "CAIRN_CPU_BF16 CAIRN_CPU_PRODUCTS CAIRN_CUDA_ANY_ORDER CAIRN_CUDA_FUSED_GELU CAIRN_CUDA_GRAPHS "                  \
    "CAIRN_CUDA_NATIVE_ATTENTION CAIRN_CUDA_SYNC CAIRN_CUDA_TWO_PASSES CAIRN_NVTX CAIRN_REPORTS CAIRN_SOURCE_DIR"
