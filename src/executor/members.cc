#include "executor/members.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>

namespace atl::executor {
namespace {

using boost::system::error_code;

// What Boost.JSON tells about a text, as it goes through it.
class Reader {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);

  explicit Reader(std::initializer_list<std::string_view> names) : names_(names) {}
  Members members;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    if (depth_ == 0) members.is_object = true;
    return begin(json::kind::object);
  }
  bool on_object_end(std::size_t, error_code&) { return end(); }
  bool on_array_begin(error_code&) { return begin(json::kind::array); }
  bool on_array_end(std::size_t, error_code&) { return end(); }
  bool on_key_part(json::string_view part, std::size_t, error_code&) {
    if (depth_ == 1) key_ += part;
    return true;
  }
  bool on_key(json::string_view rest, std::size_t, error_code&) {
    if (depth_ != 1) return true;
    key_ += rest;
    const bool wanted = std::find(names_.begin(), names_.end(), key_) != names_.end();
    current_ = wanted ? &(members.named[key_] = Member()) : nullptr;
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, error_code&) { return add(part); }
  bool on_string(json::string_view rest, std::size_t, error_code&) {
    add(rest);
    return value(json::kind::string);
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, error_code&) { return value(json::kind::int64); }
  bool on_uint64(std::uint64_t, json::string_view, error_code&) {
    return value(json::kind::uint64);
  }
  bool on_double(double, json::string_view, error_code&) { return value(json::kind::double_); }
  bool on_bool(bool, error_code&) { return value(json::kind::bool_); }
  bool on_null(error_code&) { return value(json::kind::null); }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

 private:
  bool value(json::kind kind) {
    if (depth_ == 1 && current_ != nullptr) current_->kind = kind;
    return true;
  }
  bool begin(json::kind kind) {
    value(kind);
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool add(json::string_view part) {
    if (depth_ == 1 && current_ != nullptr) current_->text += part;
    return true;
  }

  const std::initializer_list<std::string_view> names_;
  std::size_t depth_ = 0;
  std::string key_;
  Member* current_ = nullptr;  // whose value comes
};

}  // namespace

const Member* Members::find(std::string_view name) const {
  const auto found = named.find(name);
  return found == named.end() ? nullptr : &found->second;
}

Result<Members> read_members(std::string_view text, std::initializer_list<std::string_view> names) {
  json::parse_options options;
  options.max_depth = 64;
  json::basic_parser<Reader> parser(options, names);
  error_code ec;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && read < text.size()) ec = json::make_error_code(json::error::extra_data);
  if (ec) return make_error(Errc::invalid_argument, "malformed JSON: " + ec.message());
  return std::move(parser.handler().members);
}

}  // namespace atl::executor
