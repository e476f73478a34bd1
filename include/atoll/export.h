#pragma once

// What programs may link to; everything else of the library is hidden.
#define ATOLL_API __attribute__((visibility("default")))
