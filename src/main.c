/* The `cairn` command: reads the configuration, hands it to a command, and turns its Status into an exit code. */
#include <signal.h>
#include <unistd.h>

#include "base/machine_memory.h"
#include "base/terminal.h"
#include "commands/commands.h"
#include "config/config.h"
#include "train/ranks/signals.h"

extern char **environ;

/* The help, as wide as the terminal, between what is narrow and what is hard to read. */
static void help(Command command, bool all, int fd, Buf *text)
{
    enum { NARROW = 60, WIDE = 100 };
    int columns = terminal_columns(fd);
    columns = columns < NARROW ? NARROW : columns > WIDE ? WIDE : columns;
    config_help(command, all, columns, terminal_colours(fd), text);
}

static Status run(int argc, char **argv)
{
    Config c = {0};
    Buf text = {0};
    TRY(process_check_stack());
    process_spare_addresses();
    bool asks = str_list_has("--help --help-all -h help", ' ', argv[1], strlen(argv[1]));
    if (asks && !(argc > 2 && strcmp(argv[1], "help") == 0)) {
        help(N_COMMANDS, false, STDOUT_FILENO, &text);
        buf_print(&text);
        return OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("cairn %s\n", CAIRN_VERSION);
        return OK;
    }
    char *help_of[] = {argv[0], argv[2], "--help", NULL};
    if (strcmp(argv[1], "help") == 0) argc = 3, argv = help_of;
    TRY(config_parse(&c, argc, argv, environ));
    Status status = OK;
    if (c.verbose) log_set_level(LOG_DEBUG);
    if (c.repeated.len) log_debug("given more than once, so that the last value counts: %s", c.repeated.data);
    if (c.help) {
        help(c.command, c.help_all, STDOUT_FILENO, &text);
        buf_print(&text);
    } else if (c.version) {
        printf("cairn %s\n", CAIRN_VERSION);
    } else if (c.print_config) {
        config_json(&c, &text);
        buf_print(&text);
    } else {
        status = commands_run(&c);
    }
    config_free(&c);
    return status;
}

/* Without a command. */
static int help_alone(void)
{
    Buf text = {0};
    help(N_COMMANDS, false, STDERR_FILENO, &text);
    fputs(text.data, stderr);
    buf_free(&text);
    return status_exit_code(E_USAGE);
}

int main(int argc, char **argv)
{
    file_open_standard();
    if (argc < 2) return help_alone();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write, with its name and place */
    Status status = run(argc, argv);
    if (status == OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = fail(E_IO, "cannot write to the standard output: %m");
    if (status == OK) return 0;
    bool again = status == E_STOPPED || status == E_BUSY;
    log_printf(again ? LOG_INFO : LOG_ERROR, "%s", status_message());
    if (again && signals_under_grid_engine()) return 99; /* Grid Engine requeues the job */
    return status_exit_code(status);
}
