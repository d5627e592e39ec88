/* The one table of options.

   X(field, type, default, low, high, words, unit, effect, commands, help): the flag is the field with `-` for `_`. low
   and high bound numbers; `words` are a Choice's. `commands` are letters: g glue, p plan, c convert, i inspect, v
   vocab, r report, w wiki. A group's rows stand together; its title stands in OPTION_GROUP_LIST below. */
#ifndef CAIRN_CONFIG_OPTIONS_H
#define CAIRN_CONFIG_OPTIONS_H

#define OPTION_LIST(X)                                                                                                 \
    /* task */                                                                                                         \
    X(task, Text, "MNLI", 0, 0, "", "NAME", RESULT, "gp",                                                              \
      "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, or custom")                                           \
    X(data_dir, Text, "", 0, 0, "", "DIR", NONE, "gp",                                                                 \
      "folder with the task's TSV files, or with a folder of its name")                                                \
    X(model, Text, "", 0, 0, "", "PATH", NONE, "gpci",                                                                 \
      "weights to start from: a Hugging Face folder, a .safetensors, .bin or .pt file, a TF1 checkpoint prefix")       \
    X(model_config, Text, "", 0, 0, "", "FILE", NONE, "gpci",                                                          \
      "config.json or bert_config.json; default: the one beside --model. Without --model: random weights")             \
    X(vocab, Text, "", 0, 0, "", "FILE", NONE, "gpc", "vocab.txt; default: the one beside --model")                    \
    X(output_dir, Text, "results", 0, 0, "", "DIR", NONE, "grw", "where everything is written")                        \
    X(do_train, Switch, "false", 0, 0, "", "", NONE, "g", "fine-tune")                                                 \
    X(do_eval, Switch, "false", 0, 0, "", "", NONE, "g", "evaluate the dev splits")                                    \
    X(do_predict, Switch, "false", 0, 0, "", "", NONE, "g", "predict the test splits")                                 \
    X(submission, Text, "", 0, 0, "", "DIR", NONE, "g", "predict and write the leaderboard's files into DIR")          \
    X(eval_splits, Text, "all", 0, 0, "", "LIST", NONE, "g",                                                           \
      "dev and test splits, by name with commas; all of the task's")                                                   \
    X(text_columns, Text, "", 0, 0, "", "A[,B]", RESULT, "gp", "custom task: header names of the text columns")        \
    X(label_column, Text, "", 0, 0, "", "C", RESULT, "gp", "custom task: header name of the label column")             \
    X(labels, Text, "", 0, 0, "", "X,Y,...", RESULT, "gp", "custom task: the labels in order, or regression")          \
    /* text */                                                                                                         \
    X(max_seq_length, Count, "128", 3, 65536, "", "N", RESULT, "gp",                                                   \
      "longest sequence, in tokens; longer ones are cut")                                                              \
    X(do_lower_case, Choice, "auto", 0, 0, "auto yes no", "WHEN", RESULT, "gv",                                        \
      "lower-case the text; auto: as the model's tokenizer_config.json says, else yes")                                \
    X(strip_accents, Choice, "auto", 0, 0, "auto yes no", "WHEN", RESULT, "gv",                                        \
      "strip accents; auto: as --do-lower-case")                                                                       \
    /* training */                                                                                                     \
    X(batch_size, Count, "32", 1, 1048576, "", "N", RESULT, "gp", "sequences per step")                                \
    X(micro_batch_tokens, Text, "default", 0, 0, "", "N", BITS, "gp",                                                  \
      "tokens per forward and backward pass: a number, step (one pass per step), auto (the planner's choice); "        \
      "default: the step's, at most 16384")                                                                            \
    X(learning_rate, Real, "2e-5", 0, 100, "", "X", RESULT, "g", "peak learning rate")                                 \
    X(epochs, Real, "3", 1e-6, 1e6, "", "X", RESULT, "g", "passes over the training data")                             \
    X(max_steps, Count, "0", 0, 1e15, "", "N", RESULT, "g", "steps in all; 0: as --epochs says")                       \
    X(warmup, Text, "0.1", 0, 0, "", "X", RESULT, "g", "a fraction (0.1, 10%) or a count of steps (1000)")             \
    X(schedule, Text, "linear", 0, 0, "", "NAME", RESULT, "g",                                                         \
      "linear, poly:P or constant; with -nvidia: their form that jumps at the end of warmup")                          \
    X(optimizer, Choice, "adamw", 0, 0, "adamw lamb nvlamb", "NAME", RESULT, "gp", "update rule")                      \
    X(bias_correction, Switch, "false", 0, 0, "", "", RESULT, "g", "correct the moments' bias (BERT itself does not)") \
    X(adam_beta1, Real, "0.9", 0, 0.999999, "", "X", RESULT, "g", "decay of the first moment")                         \
    X(adam_beta2, Real, "0.999", 0, 0.9999999, "", "X", RESULT, "g", "decay of the second moment")                     \
    X(adam_eps, Real, "1e-6", 0, 1, "", "X", RESULT, "g", "added to the root of the second moment")                    \
    X(weight_decay, Real, "0.01", 0, 10, "", "X", RESULT, "g", "decoupled decay; never of biases and LayerNorms")      \
    X(max_grad_norm, Real, "1.0", 0, 1e9, "", "X", RESULT, "g", "clip the gradient's norm; 0: never")                  \
    X(dropout, Real, "-1", -1, 0.999, "", "P", RESULT, "g", "all dropout rates; -1: as config.json says")              \
    X(seed, Count, "42", 0, 9223372036854775807.0, "", "N", RESULT, "g", "of weights, order and dropout")              \
    /* how */                                                                                                          \
    X(precision, Choice, "auto", 0, 0, "auto fp32 bf16", "TYPE", NONE, "gp",                                           \
      "compute type; auto: the fastest the backend has")                                                               \
    X(backend, Text, "auto", 0, 0, "", "NAME", BITS, "gp", "auto, cpu, or ref (plain loops)")                          \
    X(threads, Count, "0", 0, 4096, "", "N", BITS, "gpw", "0: all that this process may use")                          \
    X(recompute, Text, "none", 0, 0, "", "POLICY", NONE, "gp",                                                         \
      "none, lean, ffn, selective, half-attention, full, every:K or auto; never changes a result by one bit")          \
    X(memory_budget, Size, "auto", 0, 0, "", "SIZE", NONE, "gp", "16GiB, 500MB, ...; auto: what the machine has free") \
    X(padded, Switch, "false", 0, 0, "", "", BITS, "gp", "pad every sequence to --max-seq-length (for comparison)")    \
    X(poison, Switch, "false", 0, 0, "", "", NONE, "g", "fill every tensor with NaN at its last use (for tests)")      \
    /* state */                                                                                                        \
    X(save_every, Duration, "20m", 0, 0, "", "TIME", NONE, "g",                                                        \
      "save the training state so often; off: never by time")                                                          \
    X(save_steps, Count, "0", 0, 1e15, "", "N", NONE, "g", "and every N steps; 0: never by count")                     \
    X(keep, Count, "1", 1, 1000000, "", "N", NONE, "g", "checkpoints to keep")                                         \
    X(resume, Text, "auto", 0, 0, "", "WHAT", NONE, "g",                                                               \
      "auto (from the newest in --output-dir), never, or a checkpoint's folder")                                       \
    X(max_time, Duration, "off", 0, 0, "", "TIME", NONE, "g",                                                          \
      "save and stop (exit code 75) before this much time has passed")                                                 \
    X(override, Switch, "false", 0, 0, "", "", NONE, "g",                                                              \
      "go on from a checkpoint although flags that alter the run changed")                                             \
    /* watching */                                                                                                     \
    X(log_every, Count, "10", 1, 1e9, "", "N", NONE, "g", "steps between lines where there is no terminal")            \
    X(eval_every, Count, "0", 0, 1e15, "", "N", NONE, "g", "evaluate every N steps and keep the best model in best/")  \
    X(eval_batch_size, Count, "128", 1, 1048576, "", "N", NONE, "gp",                                                  \
      "sequences per evaluation batch; changes no figure")                                                             \
    X(dry_run, Switch, "false", 0, 0, "", "", NONE, "g", "read everything, plan, say what would be done, and end")     \
    /* plan */                                                                                                         \
    X(device, Text, "", 0, 0, "", "NAME", NONE, "p",                                                                   \
      "plan for a device that is not here: h200, h100, b200, a100, v100")                                              \
    X(json, Switch, "false", 0, 0, "", "", NONE, "p", "print JSON")                                                    \
    X(explain, Switch, "false", 0, 0, "", "", NONE, "p", "print every instr of --recompute's plan")                    \
    X(explain_cost, Switch, "false", 0, 0, "", "", NONE, "p", "print the arithmetic of the predicted time")            \
    X(svg, Text, "", 0, 0, "", "FILE", NONE, "p", "draw memory over one step, one curve per policy")                   \
    /* tools */                                                                                                        \
    X(ranks, Count, "0", 0, 1000000, "", "N", NONE, "i", "show how N ranks would slice the state")                     \
    X(input, Text, "", 0, 0, "", "LIST", NONE, "vw",                                                                   \
      "files or folders of them, with commas between: text and .tsv (vocab), dumps or text, also bz2 and gz (wiki)")   \
    X(output, Text, "", 0, 0, "", "PATH", NONE, "cv", "what to write: a folder (convert), a vocabulary (vocab)")       \
    X(size, Count, "30522", 10, 10000000, "", "N", NONE, "v", "pieces in the vocabulary")                              \
    X(min_count, Count, "2", 1, 1e15, "", "N", NONE, "v", "pieces seen less often are not made")                       \
    X(part_size, Size, "100MB", 0, 0, "", "SIZE", NONE, "w", "about the size of a part file")                          \
    X(max_article, Size, "4MiB", 0, 0, "", "SIZE", NONE, "w", "larger articles are left out, and counted")             \
    X(text_form, Choice, "auto", 0, 0, "auto sentences paragraphs", "WHAT", NONE, "w",                                 \
      "of plain text: one sentence per line, or paragraphs; auto: by its look")                                        \
    /* all */                                                                                                          \
    X(config, Text, "", 0, 0, "", "FILE", NONE, "gpcivrw", "read options from a JSON file")                            \
    X(print_config, Switch, "false", 0, 0, "", "", NONE, "gpcivrw",                                                    \
      "print the resolved configuration as such a file, and end")                                                      \
    X(verbose, Switch, "false", 0, 0, "", "", NONE, "gpcivrw", "say more")                                             \
    X(version, Switch, "false", 0, 0, "", "", NONE, "gpcivrw", "print the version, and end")

/* X(its first option, title): how --help is divided. */
#define OPTION_GROUP_LIST(X)                                                                                           \
    X(task, "Task and files")                                                                                          \
    X(max_seq_length, "Text")                                                                                          \
    X(batch_size, "Training")                                                                                          \
    X(precision, "Computing and memory")                                                                               \
    X(save_every, "Saving and going on")                                                                               \
    X(log_every, "Watching and evaluating")                                                                            \
    X(device, "Planning")                                                                                              \
    X(ranks, "Of this command")                                                                                        \
    X(config, "Of every command")

/* X(name, what it does): CAIRN_ variables that are not options. So is every CAIRN_TEST_… */
#define VARIABLE_LIST(X)                                                                                               \
    X("CAIRN_BACKEND_DIR", "where cairn_NAME.so of the backends are looked for first")                                 \
    X("CAIRN_CPU_ISA", "the cpu backend's instructions: avx512_bf16, avx512, avx2 or generic")                         \
    X("CAIRN_CPU_PRODUCTS", "who makes the cpu backend's products: onednn or own")                                     \
    X("CAIRN_CPU_BF16", "emulate: bf16 on a CPU that has it not, slowly")                                              \
    X("CAIRN_CUDA_SYNC", "1: wait after every launch on a GPU, so that an error names the one at fault")               \
    X("CAIRN_BINARY", "scripts and tests: the program to run, in place of building it")                                \
    X("CAIRN_SOURCE_DIR", "tests: the source folder")

#endif
