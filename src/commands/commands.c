/* The table of commands. A command is a task that is run (train/task.h), or a function. */
#include "commands/commands.h"

#include "launch/launch.h"
#include "tasks/glue/glue.h"
#include "tasks/pretrain/pretrain.h"
#include "train/run.h"

static const struct {
    const Task *task;
    Status (*function)(const Config *c);
} commands[N_COMMANDS] = {
    [COMMAND_GLUE] = {.task = &task_glue},
    [COMMAND_PRETRAIN] = {.task = &task_pretrain},
    [COMMAND_PLAN] = {.function = command_plan},
    [COMMAND_CONVERT] = {.function = command_convert},
    [COMMAND_INSPECT] = {.function = command_inspect},
    [COMMAND_VOCAB] = {.function = command_vocab},
    [COMMAND_REPORT] = {.function = command_report},
    [COMMAND_WIKI] = {.function = command_wiki},
    [COMMAND_SHARDS] = {.function = command_shards},
    [COMMAND_LAUNCH] = {.function = command_launch},
    [COMMAND_SNAPSHOT] = {.function = command_snapshot},
};

const Task *commands_task(Command command) { return commands[command].task; }

Status commands_run(const Config *c)
{
    const Task *task = commands_task(c->command);
    return task ? run_task(c, task) : commands[c->command].function(c);
}
