/* Stands in for the store of `cairn launch`, where a test starts its ranks: store_server RANKS FILE. FILE gets the
   port. It ends with the process that started it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/meet/store.h"

int main(int argc, char **argv)
{
    StoreServer *store;
    Buf port = {0};
    if (argc != 3) return 2;
    World world = {.rank = -1, .size = atoi(argv[1])};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(store_serve(&world, false, 0, getenv("CAIRN_JOB_TOKEN"), &store) == OK, "%s", status_message());
    buf_printf(&port, "%d\n", store_server_port(store));
    CHECK(file_write_durable(argv[2], port.data, port.len) == OK, "%s", status_message());
    buf_free(&port);
    for (;;) pause();
}
