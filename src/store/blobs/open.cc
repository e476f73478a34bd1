#include "store/blobs/open.h"

#include "store/blobs/directory.h"
#include "store/blobs/s3.h"

namespace atl::blobs {

Result<Location> parse_location(std::string_view text) {
  if (text.starts_with("dir:")) {
    text.remove_prefix(4);
    if (!text.starts_with('/'))
      return make_error(Errc::invalid_argument, "--blobs: dir: needs an absolute path");
    return Location(Directory{std::string(text)});
  }
  if (text.starts_with("s3://")) {
    ATOLL_TRY_ASSIGN(S3Config config, parse_s3(text));
    return Location(std::move(config));
  }
  return make_error(Errc::invalid_argument,
                    "--blobs: 'dir:/PATH' or 's3://BUCKET/PREFIX?endpoint=…', not '" +
                        std::string(text.substr(0, text.find('?'))) + "'");
}

Result<std::unique_ptr<BlobStore>> open_store(Location location) {
  if (const auto* directory = std::get_if<Directory>(&location))
    return open_directory(directory->path);
  return open_s3(std::get<S3Config>(std::move(location)));
}

}  // namespace atl::blobs
