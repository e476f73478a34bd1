// Files below a directory in the order of their keys. Blocks.
#pragma once

#include "store/blobs/blob_store.h"
#include "sys/fd.h"

namespace atl::blobs {

// `top` is the directory of the first segments.
Result<Page> list_files(const sys::UniqueFd& top, const std::string& prefix,
                        const std::string& after, std::size_t limit);

}  // namespace atl::blobs
