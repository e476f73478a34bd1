// How a verb ends.
#pragma once

#include "base/result.h"

// The exit status; an error is told on stderr and is 1.
int finish(atl::Result<int> result);
