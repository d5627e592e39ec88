/* The `cairn` command: reads the configuration, hands it to a command, and turns its Status into an exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "launch/launch.h"
#include "tasks/glue/glue.h"
#include "tasks/pretrain/pretrain.h"
#include "train/commands.h"
#include "train/run.h"
#include "train/signals.h"

extern char **environ;

static Status plan(const Config *c)
{
    int width;
    if (c->predictions > 0) return command_plan(c, (Head){HEAD_PRETRAINING, 2});
    TRY(glue_width(c, &width));
    return command_plan(c, (Head){width > 1 ? HEAD_CLASSIFIER : HEAD_REGRESSION, width});
}

/* A command is a task that is run (train/task.h), or a function. */
static const struct {
    const Task *task;
    Status (*function)(const Config *c);
} commands[N_COMMANDS] = {
    [COMMAND_GLUE] = {.task = &task_glue},
    [COMMAND_PRETRAIN] = {.task = &task_pretrain},
    [COMMAND_PLAN] = {.function = plan},
    [COMMAND_CONVERT] = {.function = command_convert},
    [COMMAND_INSPECT] = {.function = command_inspect},
    [COMMAND_VOCAB] = {.function = command_vocab},
    [COMMAND_REPORT] = {.function = command_report},
    [COMMAND_WIKI] = {.function = command_wiki},
    [COMMAND_SHARDS] = {.function = command_shards},
    [COMMAND_LAUNCH] = {.function = command_launch},
    [COMMAND_SNAPSHOT] = {.function = command_snapshot},
};

static void print(Buf *text)
{
    fputs(text->data, stdout);
    buf_free(text);
}

static Status run(int argc, char **argv)
{
    Config c = {0};
    Buf text = {0};
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        config_help(N_COMMANDS, &text);
        print(&text);
        return OK;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) return printf("cairn %s\n", CAIRN_VERSION), OK;
    TRY(config_parse(&c, argc, argv, environ));
    Status status = OK;
    if (c.verbose) log_set_level(LOG_DEBUG);
    if (c.help) {
        config_help(c.command, &text);
        print(&text);
    } else if (c.version) {
        printf("cairn %s\n", CAIRN_VERSION);
    } else if (c.print_config) {
        config_json(&c, &text);
        print(&text);
    } else {
        const Task *task = commands[c.command].task;
        status = task ? run_task(&c, task) : commands[c.command].function(&c);
    }
    config_free(&c);
    return status;
}

int main(int argc, char **argv)
{
    file_open_standard();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write, with its name and place */
    Status status = run(argc, argv);
    if (status == OK) return fflush(stdout) == 0 ? 0 : 1;
    log_printf(status == E_STOPPED ? LOG_INFO : LOG_ERROR, "%s", status_message());
    if (status == E_STOPPED && signals_under_grid_engine()) return 99; /* Grid Engine: put it in the queue again */
    return status_exit_code(status);
}
