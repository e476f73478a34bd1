// The body of POST /run as anybody could send it, and the output of code that prints markers.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/encoding.h"
#include "base/json.h"
#include "executor/answer.h"
#include "executor/marker.h"
#include "executor/request.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  const std::string bytes(reinterpret_cast<const char*>(data), size);

  const auto decoded = executor::decode_run(bytes);
  if (const auto* refused = std::get_if<executor::Refused>(&decoded)) {
    require(parse_json(executor::encode_refused(*refused)).ok());
  } else {
    require(std::get<executor::RunRequest>(decoded).body == bytes);
  }
  if (const auto code = executor::decode_code(bytes); code.ok()) {
    require(is_valid_utf8(*code));
  }

  const executor::Unmarked cut = executor::cut_markers(bytes);
  require(cut.out.size() <= bytes.size());
  require(!cut.result || parse_json(*cut.result).ok());
  require(executor::cut_markers(cut.out).out == cut.out);

  executor::Ran ran;
  ran.out = bytes;
  ran.err = bytes;
  require(parse_json(executor::encode(executor::answer_of(std::move(ran)))).ok());
  return 0;
}
