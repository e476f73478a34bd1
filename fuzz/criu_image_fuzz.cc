// Images of CRIU hold what processes inside made: paths, names of sockets, numbers. Whatever they
// hold, reading and patching them ends with an error or with an image that can be read again.
#include <cstdlib>

#include "snapshot/image.h"
#include "snapshot/manifest.h"
#include "snapshot/patch.h"
#include "snapshot/scan.h"

using namespace atl;
using namespace atl::snapshot;

namespace {

void must_parse(const Result<std::string>& patched, ImageKind kind) {
  if (patched && !parse_image(*patched, kind)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const ImageKind kind : {ImageKind::files, ImageKind::mountpoints, ImageKind::user_namespace,
                               ImageKind::remaps, ImageKind::host_name}) {
    // The same bytes as an image of each kind: the fuzzer need not find the magic numbers.
    std::string image = serialize(Image{kind, {}});
    image += input;
    must_parse(patch_files(image, {{{"file[1:2]", "/usr/bin/x"}}, 7}), ImageKind::files);
    must_parse(patch_ids(image, 655360000, 65536), ImageKind::user_namespace);
    must_parse(patch_host_name(image, "name"), ImageKind::host_name);
    (void)root_mount(image);
    (void)link_remaps(image, image);
    (void)link_remaps(image, serialize(Image{ImageKind::files, {}}));
  }
  if (auto message = Message::parse(input)) {
    auto again = Message::parse(message->serialize());
    if (!again || again->serialize() != message->serialize()) std::abort();
  }
  (void)manifest_from_text(input);
  (void)parse_mountinfo(input);
  (void)parse_status(input);
  (void)parse_maps(input);
  return 0;
}
