/* `cairn launch`: starts a command on many ranks, here or on other hosts, watches them, restarts them after a fault,
   and leaves no process behind (docs/cluster.md). */
#pragma once

#include "base/base.h"
#include "config/config.h"

Status command_launch(const Config *c);
