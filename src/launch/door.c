#include "launch/door.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/siphash.h"
#include "base/socket.h"

#define ANSWER_S   3  /* limit of the other side's answer; any client can delay the launcher for this time */
#define LAUNCHER_S 30 /* limit of the launcher's answer, which other clients can delay */

/* The input of a proof: each side's random part, the agent's number, and the side. */
typedef struct {
    Hash128 agent, launcher;
    int32_t number, side;
} DoorProof;

/* The agent's answer to the launcher's random part. One message, so that one time limit covers all of it. */
typedef struct {
    Hash128 random, proof;
    int32_t number;
} DoorAnswer;

static Hash128 prove(const char *secret, DoorProof k, char side)
{
    k.side = side;
    return siphash(siphash_key(secret), &k, sizeof k);
}

/* The wire's readers and writers take a blocking socket. */
static void make_blocking(int s) { fcntl(s, F_SETFL, fcntl(s, F_GETFL) & ~O_NONBLOCK); }

/* ---- the launcher's side ---- */

static int create_file(const char *folder, char **path)
{
    *path = mem_printf("%s/.cairn-agents-XXXXXX", folder);
    int fd = mkostemp(*path, O_CLOEXEC); /* of mode 0600 */
    if (fd >= 0) return fd;
    free(*path);
    *path = NULL;
    return -1;
}

Status door_open(const char *name, Door *d)
{
    char folder[4096];
    const char *home = getenv("HOME");
    int fd = -1;
    Status status = OK;
    *d = (Door){.listener = socket_listen_any(0)};
    hash128_random_hex(d->secret);
    if (d->listener < 0) TRY_DONE(fail(E_IO, "cannot listen for agents: %m"));
    if (getcwd(folder, sizeof folder)) fd = create_file(folder, &d->path);
    if (fd < 0 && home) fd = create_file(home, &d->path);
    if (fd < 0) TRY_DONE(fail(E_IO, "no file for agents, neither in the working folder nor in $HOME: %m"));
    if (dprintf(fd, "%s %d %s\n", d->secret, socket_port(d->listener), name) < 0 || fsync(fd) != 0)
        status = fail(E_IO, "%s: %m", d->path);
    close(fd);
done:
    if (status != OK) door_close(d);
    return status;
}

void door_close(Door *d)
{
    if (d->path) unlink(d->path);
    if (d->listener > 0) close(d->listener);
    free(d->path);
    *d = (Door){.listener = -1};
}

int door_admit(const Door *d, int *number)
{
    DoorProof k = {0};
    DoorAnswer answer;
    SocketLimit until = {.end = clock_monotonic() + ANSWER_S};
    int s = socket_accept(d->listener);
    if (s < 0) return -1;
    hash128_random(&k.launcher);
    if (socket_send_all(s, &k.launcher, sizeof k.launcher, until) &&
        socket_receive_all(s, &answer, sizeof answer, until)) {
        k.agent = answer.random;
        k.number = answer.number;
        Hash128 mine = prove(d->secret, k, 'l');
        if (hash128_equal(answer.proof, prove(d->secret, k, 'a')) && socket_send_all(s, &mine, sizeof mine, until)) {
            make_blocking(s);
            *number = k.number;
            return s;
        }
    }
    close(s);
    return -1;
}

/* ---- the agent's side ---- */

static Status read_door(const char *path, char secret[33], char port[16], char name[256])
{
    struct stat about;
    int fd;
    /* A shared folder may show it later. */
    for (int k = 0; (fd = file_open(path, O_RDONLY)) < 0 && k < 20; k++) usleep(100000);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f) return fail(E_IO, "%s: %m; is the launcher's working folder the same on this host?", path);
    bool own = fstat(fileno(f), &about) == 0 && about.st_uid == geteuid() && (about.st_mode & 077) == 0;
    bool whole = fscanf(f, "%32s %15s %255s", secret, port, name) == 3;
    fclose(f);
    if (!own) return fail(E_FAIL, "%s: others may have written or read it", path);
    return whole ? OK : fail(E_FORMAT, "%s: it has no secret, port and host", path);
}

static bool greet_launcher(int s, const char *secret, int number)
{
    SocketLimit until = {.end = clock_monotonic() + LAUNCHER_S};
    DoorProof k = {.number = number};
    Hash128 shown;
    hash128_random(&k.agent);
    if (!socket_receive_all(s, &k.launcher, sizeof k.launcher, until)) return false;
    DoorAnswer answer = {.random = k.agent, .proof = prove(secret, k, 'a'), .number = number};
    return socket_send_all(s, &answer, sizeof answer, until) && socket_receive_all(s, &shown, sizeof shown, until) &&
           hash128_equal(shown, prove(secret, k, 'l'));
}

Status door_enter(const char *path, int number, int *connection)
{
    char secret[33], port[16], name[256];
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    TRY(read_door(path, secret, port, name));
    int error = getaddrinfo(name, port, &hints, &found);
    if (error) return fail(E_IO, "the launcher's host %s: %s", name, gai_strerror(error));
    *connection = -1;
    int reason = 0;
    for (const struct addrinfo *a = found; a && *connection < 0; a = a->ai_next) {
        SocketAddress at = {0};
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        int s = socket_connect(&at, &reason);
        if (reason == EINPROGRESS) reason = socket_connected(s, (SocketLimit){.end = clock_monotonic() + ANSWER_S});
        if (s < 0) continue;
        if (!reason && !greet_launcher(s, secret, number)) reason = EPROTO;
        if (!reason)
            *connection = s;
        else
            close(s);
    }
    freeaddrinfo(found);
    if (*connection < 0) return fail(E_PEER, "the launcher at %s, port %s: %s", name, port, strerror(reason));
    make_blocking(*connection);
    return OK;
}
