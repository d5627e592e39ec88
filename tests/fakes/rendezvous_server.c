/* Stands in for the rendezvous of `cairn launch`, where a test starts its ranks: rendezvous_server RANKS FILE. FILE
   gets the port. It ends with the process that started it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/meet/rendezvous.h"

int main(int argc, char **argv)
{
    RendezvousServer *server;
    Buf port = {0};
    if (argc != 3) return 2;
    World world = {.size = atoi(argv[1])};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(rendezvous_serve(&world, false, 0, getenv("CAIRN_JOB_TOKEN"), &server) == OK, "%s", status_message());
    buf_printf(&port, "%d\n", rendezvous_port(server));
    CHECK(file_write_durable(argv[2], port.data, port.len) == OK, "%s", status_message());
    buf_free(&port);
    for (;;) pause();
}
