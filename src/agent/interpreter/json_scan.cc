#include "agent/interpreter/json_scan.h"

#include <cstdint>
#include <cstring>

namespace atl::agent::interpreter {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
constexpr std::uint64_t kHigh = 0x8080808080808080ULL;

constexpr std::uint64_t has_zero(std::uint64_t v) { return (v - kOnes) & ~v & kHigh; }

// Eight bytes at once: is one of them a quote, a backslash, a control character or not ASCII?
bool all_plain(const char* p) {
  std::uint64_t v = 0;
  std::memcpy(&v, p, sizeof v);
  const std::uint64_t control = (v - kOnes * 0x20) & ~v & kHigh;
  return ((v & kHigh) | control | has_zero(v ^ (kOnes * '"')) | has_zero(v ^ (kOnes * '\\'))) == 0;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xC0 | (c >> 6));
    out += char(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += char(0xE0 | (c >> 12));
    out += char(0x80 | ((c >> 6) & 0x3F));
    out += char(0x80 | (c & 0x3F));
  } else {
    out += char(0xF0 | (c >> 18));
    out += char(0x80 | ((c >> 12) & 0x3F));
    out += char(0x80 | ((c >> 6) & 0x3F));
    out += char(0x80 | (c & 0x3F));
  }
}

class Scanner {
 public:
  Scanner(std::string_view text, JsonForm form)
      : p_(text.data()), end_(text.data() + text.size()), form_(form) {}

  JsonFault object(std::size_t most, JsonMembers& members) {
    if (form_ == JsonForm::request) space();
    if (p_ == end_ || *p_ != '{') {
      if (!value(0) || !at_end()) return JsonFault::malformed;
      return JsonFault::not_an_object;
    }
    ++p_;
    space();
    if (!take('}')) {
      do {
        space();
        const char* key = p_;
        if (!string()) return JsonFault::malformed;
        const std::string_view name(key + 1, std::size_t(p_ - key) - 2);
        space();
        if (!take(':')) return JsonFault::malformed;
        space();
        const char* begin = p_;
        if (!value(1)) return JsonFault::malformed;
        if (members.size() == most) return JsonFault::too_many_members;
        members.push_back({name, std::string_view(begin, std::size_t(p_ - begin))});
        space();
      } while (take(','));
      if (!take('}')) return JsonFault::malformed;
    }
    return at_end() ? JsonFault::none : JsonFault::malformed;
  }

 private:
  bool at_end() {
    if (form_ == JsonForm::request) space();
    return p_ == end_;
  }
  void space() {
    while (p_ != end_ && (*p_ == ' ' || *p_ == '\t' || *p_ == '\n' || *p_ == '\r')) ++p_;
  }
  bool take(char c) {
    if (p_ == end_ || *p_ != c) return false;
    ++p_;
    return true;
  }
  bool word(std::string_view text) {
    if (std::size_t(end_ - p_) < text.size() || std::memcmp(p_, text.data(), text.size()) != 0)
      return false;
    p_ += text.size();
    return true;
  }

  bool value(int depth) {
    if (p_ == end_ || depth > kJsonDepth) return false;
    switch (*p_) {
      case '"':
        return string();
      case '{':
        return container('}', true, depth);
      case '[':
        return container(']', false, depth);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool container(char close, bool keys, int depth) {
    ++p_;
    space();
    if (take(close)) return true;
    do {
      space();
      if (keys) {
        if (!string()) return false;
        space();
        if (!take(':')) return false;
        space();
      }
      if (!value(depth + 1)) return false;
      space();
    } while (take(','));
    return take(close);
  }

  bool digits() {
    const char* begin = p_;
    while (p_ != end_ && *p_ >= '0' && *p_ <= '9') ++p_;
    return p_ != begin;
  }

  bool number() {
    (void)take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) (void)take('-');
      if (!digits()) return false;
    }
    return true;
  }

  bool string() {
    if (!take('"')) return false;
    for (;;) {
      while (end_ - p_ >= 8 && all_plain(p_)) p_ += 8;
      if (p_ == end_) return false;
      const auto c = static_cast<unsigned char>(*p_);
      if (c == '"') {
        ++p_;
        return true;
      }
      if (c == '\\') {
        if (!escape()) return false;
      } else if (c < 0x20) {
        return false;
      } else if (c < 0x80) {
        ++p_;
      } else if (form_ == JsonForm::line || !multibyte()) {
        return false;
      }
    }
  }

  // Four digits after "\u"; -1: there are none.
  int code_unit() {
    if (end_ - p_ < 4) return -1;
    int out = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = hex_digit(*p_++);
      if (digit < 0) return -1;
      out = out * 16 + digit;
    }
    return out;
  }

  bool escape() {
    ++p_;
    if (p_ == end_) return false;
    const char c = *p_++;
    if (c != 'u') return std::strchr("\"\\/bfnrt", c) != nullptr && c != '\0';
    const int unit = code_unit();
    if (unit < 0) return false;
    if (form_ == JsonForm::line || unit < 0xD800 || unit > 0xDFFF) return true;
    if (unit > 0xDBFF || !word("\\u")) return false;
    const int low = code_unit();
    return low >= 0xDC00 && low <= 0xDFFF;
  }

  bool multibyte() {
    const auto lead = static_cast<unsigned char>(*p_);
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end_ - p_ <= more) return false;
    const auto second = static_cast<unsigned char>(p_[1]);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return false;
    for (int i = 1; i <= more; ++i) {
      if ((static_cast<unsigned char>(p_[i]) & 0xC0) != 0x80) return false;
    }
    p_ += more + 1;
    return true;
  }

  const char* p_;
  const char* end_;
  JsonForm form_;
};

std::uint32_t hex4(std::string_view text) {
  std::uint32_t out = 0;
  for (const char c : text) out = out * 16 + std::uint32_t(hex_digit(c));
  return out;
}

char unescaped(char c) {
  switch (c) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return c;
  }
}

}  // namespace

JsonFault scan_object(std::string_view text, JsonForm form, std::size_t most,
                      JsonMembers& members) {
  members.clear();
  return Scanner(text, form).object(most, members);
}

std::string_view find_member(const JsonMembers& members, std::string_view key) {
  for (auto it = members.rbegin(); it != members.rend(); ++it) {
    if (it->key == key) return it->value;
  }
  return {};
}

std::optional<std::string> json_text(std::string_view value) {
  if (!is_json_string(value)) return std::nullopt;
  std::string out;
  value = value.substr(1, value.size() - 2);
  while (!value.empty()) {
    const std::size_t slash = value.find('\\');
    out += value.substr(0, slash);
    if (slash == std::string_view::npos) break;
    const char c = value[slash + 1];
    value.remove_prefix(slash + 2);
    if (c != 'u') {
      out += unescaped(c);
      continue;
    }
    std::uint32_t code = hex4(value.substr(0, 4));
    value.remove_prefix(4);
    if (code >= 0xD800 && code <= 0xDBFF && value.starts_with("\\u")) {
      code = 0x10000 + ((code - 0xD800) << 10) + (hex4(value.substr(2, 4)) - 0xDC00);
      value.remove_prefix(6);
    }
    append_utf8(out, code);
  }
  return out;
}

}  // namespace atl::agent::interpreter
