#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/terminal.h"

static const char *const colours[] = {[LOG_ERROR] = TERMINAL_RED, [LOG_WARN] = TERMINAL_YELLOW};
static const char *const prefix[] = {
    [LOG_ERROR] = "error: ", [LOG_WARN] = "warning: ", [LOG_INFO] = "", [LOG_DEBUG] = "debug: "};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the hooks, the name and stderr */
static char name_now[256];
static void (*hook_before)(void);
static void (*hook_after)(void);
static void (*sink_now)(const char *line, size_t size);
static atomic_int level_now = LOG_INFO;

void log_set_level(LogLevel level) { atomic_store(&level_now, (int)level); }

void log_set_name(const char *name)
{
    pthread_mutex_lock(&lock);
    snprintf(name_now, sizeof name_now, "%s%s", name ? name : "", name ? ": " : "");
    pthread_mutex_unlock(&lock);
}

void log_set_hook(void (*before)(void), void (*after)(void))
{
    pthread_mutex_lock(&lock);
    hook_before = before;
    hook_after = after;
    pthread_mutex_unlock(&lock);
}

void log_set_sink(void (*sink)(const char *line, size_t size))
{
    pthread_mutex_lock(&lock);
    sink_now = sink;
    pthread_mutex_unlock(&lock);
}

void log_printf(LogLevel level, const char *format, ...)
{
    if ((int)level > atomic_load(&level_now)) return;
    int saved = errno;
    Buf line = {0}, text = {0};
    pthread_mutex_lock(&lock);
    bool coloured = level <= LOG_WARN && !sink_now && terminal_colours(STDERR_FILENO);
    buf_message(&line, name_now);
    pthread_mutex_unlock(&lock);
    va_list args;
    va_start(args, format);
    errno = saved; /* for %m */
    buf_vprintf(&text, format, args);
    va_end(args);
    buf_printf(&line, "%s%s%s", coloured ? colours[level] : "", prefix[level], coloured ? TERMINAL_PLAIN : "");
    buf_message(&line, text.data);
    buf_free(&text);
    if (line.data[line.len - (line.len > 0)] != '\n') buf_puts(&line, "\n");

    pthread_mutex_lock(&lock);
    if (hook_before) hook_before();
    if (sink_now) sink_now(line.data, line.len);
    for (size_t done = 0; done < line.len && !sink_now;) { /* one write, unless a signal or a pipe cuts it short */
        ssize_t n = write(STDERR_FILENO, line.data + done, line.len - done);
        if (n <= 0 && errno != EINTR) break; /* stderr is gone */
        if (n > 0) done += (size_t)n;
    }
    if (hook_after) hook_after();
    pthread_mutex_unlock(&lock);
    buf_free(&line);
    errno = saved;
}
