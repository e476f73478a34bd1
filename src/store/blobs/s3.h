// Blobs as objects of a bucket of an S3-compatible server, which several servers may share.
//
// An object up to one part (8 MiB) is one request; a longer one is a multipart upload, in which one
// part is sent while the next is read: two buffers, whatever the length. It is visible when the
// upload is completed; one that fails is aborted. Reading is by ranges, as fast as the reader takes
// them. An object has at most 10'000 parts, 78 GiB. Of puts of more than 64 KiB there are 16 at a
// time; others wait for a minute and are `unavailable` then.
//
// Errors that only the operator can mend (keys refused, no bucket) are `unavailable` with EACCES.
#pragma once

#include <memory>

#include "store/blobs/blob_store.h"
#include "store/blobs/s3_config.h"

namespace atl::blobs {

std::unique_ptr<BlobStore> open_s3(S3Config config);

}  // namespace atl::blobs
