#include "executor/marker.h"

#include "base/encoding.h"
#include "base/json.h"

namespace atl::executor {
namespace {

struct Marked {
  std::optional<std::string> result;
};

// nullopt: this is no marker.
std::optional<Marked> read_marker(std::string_view line) {
  if (!line.starts_with(kMarker)) return std::nullopt;
  line.remove_prefix(kMarker.size());
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  const auto text = base64_decode(line);
  if (!text || line.empty()) return std::nullopt;
  const auto parsed = parse_json(*text);
  const json::object* object = parsed.ok() ? parsed->if_object() : nullptr;
  const json::value* present = object != nullptr ? object->if_contains("present") : nullptr;
  if (present == nullptr || !present->is_bool()) return std::nullopt;
  Marked out;
  if (!present->get_bool()) return out;
  const json::value* value = object->if_contains("value");
  if (value == nullptr) return std::nullopt;
  const json::value* type = object->if_contains("type");
  json::object result;
  result["present"] = true;
  result["value"] = *value;
  result["type"] = type != nullptr && type->is_string() ? type->get_string() : "json";
  out.result = json::serialize(result);
  return out;
}

}  // namespace

Unmarked cut_markers(std::string out) {
  if (out.find(kMarker) == std::string::npos) return {std::move(out), std::nullopt};
  Unmarked cut;
  cut.out.reserve(out.size());
  std::string_view rest = out;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    const std::size_t whole = end == std::string_view::npos ? rest.size() : end + 1;
    if (auto marked = read_marker(line)) {
      if (marked->result) cut.result = std::move(marked->result);
    } else {
      cut.out += rest.substr(0, whole);
    }
    rest.remove_prefix(whole);
  }
  return cut;
}

}  // namespace atl::executor
