// Which storage `--blobs` names.
#pragma once

#include <string>
#include <variant>

#include "store/blobs/blob_store.h"
#include "store/blobs/s3_config.h"

namespace atl::blobs {

struct Directory {
  std::string path;
};
using Location = std::variant<Directory, S3Config>;

// "dir:/PATH" or "s3://BUCKET/PREFIX?…" (s3_config.h). invalid_argument.
Result<Location> parse_location(std::string_view text);
Result<std::unique_ptr<BlobStore>> open_store(Location location);

}  // namespace atl::blobs
