// Everything of the library. `namespace sdk = atl::sdk;` is a good start.
#pragma once

#include "atoll/client.h"
#include "atoll/code.h"
#include "atoll/executor.h"
#include "atoll/files.h"
#include "atoll/process.h"
#include "atoll/result.h"
#include "atoll/sandbox.h"
