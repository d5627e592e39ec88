/* How an agent without standard input reaches the launcher: by TCP, to a port of the launcher's. Port and secret are in
   a file of the user's own (mode 0600) in a folder that the hosts share. Both sides prove that they have the secret; it
   is not sent. What follows on the connection is that of wire.h, neither encrypted nor signed. */
#ifndef CAIRN_LAUNCH_DOOR_H
#define CAIRN_LAUNCH_DOOR_H

#include "base/base.h"

typedef struct {
    int listener;
    char *path; /* the file */
    char secret[33];
} Door;

/* Listens, and writes the file into the working folder, else into $HOME. `name` is this host's for the others. */
Status door_open(const char *name, Door *door);
void door_close(Door *door); /* removes the file; takes a zeroed one */

/* Lets the next agent in, if one has connected: its connection, or −1. `number` is the agent's own. */
int door_admit(const Door *door, int *number);

/* The agent's side. */
Status door_enter(const char *path, int number, int *connection);

#endif
