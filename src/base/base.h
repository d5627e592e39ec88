/* All headers of base, which includes no other room. */
#pragma once

#include "base/clock.h"
#include "base/digest.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/status.h"
#include "base/str.h"
