/* The table of commands. A command is a task that is run (train/job/task.h), or a function. */
#include "commands/commands.h"

#include "config/table.h"
#include "launch/launch.h"
#include "state/checkpoint/checkpoint.h"
#include "state/models/import.h"
#include "tasks/pretrain/pretrain.h"
#include "train/run/run.h"

/* ---- the tasks are declared, then all commands are in a table ---- */

#define X(id, name, runs, ...) runs
#define TASK(x)                extern const Task task_##x;
#define FUNCTION(x)
COMMAND_LIST(X)
#undef X
#undef TASK
#undef FUNCTION

static const struct {
    const Task *task;
    Status (*function)(const Config *c);
} commands[N_COMMANDS] = {
#define X(id, name, runs, ...) [COMMAND_##id] = {runs},
#define TASK(x)                .task = &task_##x
#define FUNCTION(x)            .function = command_##x
    COMMAND_LIST(X)
#undef X
#undef TASK
#undef FUNCTION
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
        if (!task || !task->plan || task->planned) continue;
        CHECK(!otherwise, "%s: another task plans what no task describes", config_commands[i].name);
        otherwise = task;
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
    if (!path && *c->model) TRY(import_check_folder(c->model));
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
