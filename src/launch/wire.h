/* The protocol of launcher and agent over the agent's standard input and output: lines of a word, a space, and text, in
   which '\\' and newline are escaped. Both sides send "beat" every few seconds.

   launcher → agent                         agent → launcher
     reach ADDRESS PORT                       hello VERSION CORES GPUS CLIENT HOSTNAME
     dir PATH                                 reach ADDRESS 0|1
     set NAME=VALUE · arg WORD                out RANK 1|2 TEXT
     rank RANK LOCAL_RANK                     end RANK CODE SIGNAL LIMIT
     go                                       report RANK TEXT
     signal NUMBER · kill                     failed TEXT
     beat                                     beat

   A rank's reports (comm/meet/report.h) come before its end. LIMIT: 0, or the bytes that the host allows where the
   kernel killed the rank because they were exhausted (1: not known). */
#pragma once

#include "base/base.h"

#define WIRE_BEAT_S 2.0
/* In front of each message of the agent; other lines are output of a login shell. */
#define WIRE_GREETING "cairn-agent: "

/* Reads lines from a file descriptor, which becomes non-blocking. */
typedef struct {
    int fd; /* −1: at its end */
    Buf pending;
    size_t taken;
    double heard; /* clock_monotonic of the last bytes */
} WireReader;

void wire_reader(WireReader *r, int fd);
void wire_reader_close(WireReader *r);
/* Reads the available bytes. False: the end, or an error; pending lines can still be taken. */
bool wire_fill(WireReader *r);
/* The next whole line without its newline, unescaped if `escaped`; NULL: none yet. Lines of programs are cut at 8 KiB;
   at the end of the file the rest counts as a line. Valid until the next call. */
char *wire_line(WireReader *r, bool escaped);

void wire_escape(Buf *b, const char *text); /* appends `text`, escaped, and the newline */
/* Writes all of it, also where `fd` is non-blocking. False, and errno: the reader did not take it within `patience_s`
   (may be INFINITY), or is gone. */
bool wire_write(int fd, const char *data, size_t size, double patience_s);
/* Writes the line, escaped, and waits at most 5 s for the reader. False, and errno: that failed. */
bool wire_send(int fd, const char *text);
