/* The table of commands. A command is a task that is run (train/job/task.h), or a function. */
#include "commands/commands.h"

#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "launch/launch.h"
#include "state/checkpoint/checkpoint.h"
#include "state/models/import.h"
#include "tasks/glue/glue.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/squad/squad.h"
#include "train/run/run.h"

static const struct {
    const Task *task;
    Status (*function)(const Config *c);
} commands[N_COMMANDS] = {
    [COMMAND_GLUE] = {.task = &task_glue},
    [COMMAND_SQUAD] = {.task = &task_squad},
    [COMMAND_PRETRAIN] = {.task = &task_pretrain},
    [COMMAND_ADAPT] = {.task = &task_pretrain},
    [COMMAND_PREDICT] = {.task = &task_predict},
    [COMMAND_PLAN] = {.function = command_plan},
    [COMMAND_CONVERT] = {.function = command_convert},
    [COMMAND_INSPECT] = {.function = command_inspect},
    [COMMAND_VOCAB] = {.function = command_vocab},
    [COMMAND_REPORT] = {.function = command_report},
    [COMMAND_WIKI] = {.function = command_wiki},
    [COMMAND_SHARDS] = {.function = command_shards},
    [COMMAND_LAUNCH] = {.function = command_launch},
    [COMMAND_SWEEP] = {.function = command_sweep},
    [COMMAND_VARIABILITY] = {.function = command_variability},
    [COMMAND_SNAPSHOT] = {.function = command_snapshot},
    [COMMAND_DOCTOR] = {.function = command_doctor},
    [COMMAND_VERIFY] = {.function = command_verify},
};

static bool makes_runs(int i) { return commands[i].task && commands[i].task->folder; }

bool commands_find_task(const char *name, Command *command)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (makes_runs(i) && strcmp(config_commands[i].name, name) == 0) {
            *command = (Command)i;
            return true;
        }
    return false;
}

void commands_list_tasks(Buf *out)
{
    int last = N_COMMANDS - 1;
    while (!makes_runs(last)) last--;
    for (int i = 0; i <= last; i++)
        if (makes_runs(i))
            buf_printf(out, "%s%s", out->len == 0 ? "" : i == last ? " and " : ", ", config_commands[i].name);
}

Command commands_of_record(const Json *config)
{
    Command best = COMMAND_GLUE;
    int most = -1;
    for (int i = 0; i < N_COMMANDS; i++) {
        int known = 0;
        if (!makes_runs(i)) continue;
        for (void *it = js_first(config); it; it = js_next(config, it)) {
            int option = config_option(js_key(it));
            known += option >= 0 && config_option_of(option, (Command)i);
        }
        if (known <= most) continue;
        most = known;
        best = (Command)i;
    }
    return best;
}

const Task *commands_planned_task(const Config *c)
{
    const Task *otherwise = NULL;
    for (int i = 0; i < N_COMMANDS; i++) {
        const Task *task = commands[i].task;
        if (task && task->planned && task->planned(c)) return task;
        if (task && task->plan && !task->planned) otherwise = task;
    }
    return otherwise;
}

Json *commands_newest_state(const char *dir)
{
    CheckpointList list = {0};
    Json *state = NULL;
    if (checkpoint_find(dir, &list) != OK) return NULL;
    for (int i = 0; i < list.count && !state; i++) (void)js_read_in(list.items[i].path, "state.json", &state);
    checkpoint_list_free(&list);
    return state;
}

Status commands_model_config(const Config *c, ModelConfig *config)
{
    char *path = *c->model_config ? mem_strdup(c->model_config) : *c->model ? import_find_config(c->model) : NULL;
    if (!path && *c->model)
        return fail(E_USAGE, "%s: no config.json or bert_config.json beside the weights; give it with --model-config",
                    c->model);
    if (!path) return fail(E_USAGE, "give --model-config FILE or --model DIR with a config.json");
    Status status = model_config_read(path, config);
    free(path);
    return status;
}

Status commands_run_verify(const Config *c, Verify *verify) { return run_task(c, commands[c->command].task, verify); }

Status commands_run(const Config *c)
{
    const Task *task = commands[c->command].task;
    if (task && *c->seeds) return command_seeds(c);
    return task ? run_task(c, task, NULL) : commands[c->command].function(c);
}
