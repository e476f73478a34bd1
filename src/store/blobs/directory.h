// Blobs as files below a directory: the default.
//
//   ROOT/lock     held while a server uses the directory: two on one are refused
//   ROOT/tmp/     puts under way; emptied at the start
//   ROOT/blobs/   one file per blob; the segments of its key are directories and the file's name
//
// A put writes a file in tmp/, flushes it to the disk, renames it, and flushes the directory: after
// a power cut a blob is there whole or not at all. Disk I/O is done in pieces by threads of its
// own. Directories that a removal empties are removed.
#pragma once

#include <memory>

#include "store/blobs/blob_store.h"

namespace atl::blobs {

// Makes the directory if it is missing. failed_precondition: another server uses it.
Result<std::unique_ptr<BlobStore>> open_directory(const std::string& root);

}  // namespace atl::blobs
