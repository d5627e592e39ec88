/* The `cairn` command: reads the configuration, hands it to a command, and turns its Status into an exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "config/config.h"
#include "train/signals.h"

extern char **environ;

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
        status = commands_run(&c);
    }
    config_free(&c);
    return status;
}

int main(int argc, char **argv)
{
    file_open_standard();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write, with its name and place */
    Status status = run(argc, argv);
    if (status == OK) return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
    log_printf(status == E_STOPPED ? LOG_INFO : LOG_ERROR, "%s", status_message());
    if (status == E_STOPPED && signals_under_grid_engine()) return 99; /* Grid Engine: put it in the queue again */
    return status_exit_code(status);
}
