/* Connects an agent without standard input to the launcher, by TCP. The launcher's port and a secret are in a file of
   the user (mode 0600) in a folder that the hosts share. Both sides prove that they know the secret, and do not send
   it. Then the connection carries the protocol of wire.h, neither encrypted nor signed. */
#pragma once

#include "base/base.h"

typedef struct {
    int listener;
    char *path; /* the file */
    char secret[33];
} Door;

/* Listens, and writes the file into the working folder, else into $HOME. `name` is this host's for the others. */
Status door_open(const char *name, Door *door);
void door_close(Door *door); /* removes the file; takes a zeroed one */

/* Admits the next agent that has connected. Returns its connection, or −1; `number` is the agent's. */
int door_admit(const Door *door, int *number);

/* The agent's side. */
Status door_enter(const char *path, int number, int *connection);
