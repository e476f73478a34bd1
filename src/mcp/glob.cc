#include "mcp/glob.h"

#include <algorithm>
#include <optional>

namespace atl::mcp {
namespace {

constexpr std::size_t kMaxAlternatives = 256;
constexpr std::size_t kMaxExpanded = 128 << 10;  // bytes of all alternatives: what one path costs

Error invalid(std::string message) {
  return make_error(Errc::invalid_argument, std::move(message));
}

// Code points; a byte that is no UTF-8 stands for itself, above all of Unicode.
std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80             ? 1
                               : (lead & 0xe0) == 0xc0 ? 2
                               : (lead & 0xf0) == 0xe0 ? 3
                               : (lead & 0xf8) == 0xf0 ? 4
                                                       : 0;
    bool good = length > 0 && i + length <= text.size();
    char32_t point = length <= 1 ? lead : lead & (0x7f >> length);
    for (std::size_t k = 1; good && k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      good = (byte & 0xc0) == 0x80;
      point = point << 6 | (byte & 0x3f);
    }
    out.push_back(good ? point : 0x110000 + lead);
    i += good ? length : 1;
  }
  return out;
}

// Where the bracket expression that begins at `at` ends; npos if it does not.
std::size_t bracket_end(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  if (i < text.size() && (text[i] == '!' || text[i] == '^')) ++i;
  if (i < text.size() && text[i] == ']') ++i;  // the first one is a member
  for (; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ']') {
      return i;
    } else if (text[i] == '/') {
      break;
    }
  }
  return std::string_view::npos;
}

// The first group of braces: where it begins, where it ends, where its commas are.
struct Braces {
  std::size_t open = 0;
  std::size_t close = 0;
  std::vector<std::size_t> commas;
};

Result<std::optional<Braces>> find_braces(std::string_view text) {
  std::optional<Braces> found;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '[') {
      if (const std::size_t end = bracket_end(text, i); end != std::string_view::npos) i = end;
    } else if (text[i] == '{') {
      if (depth++ == 0) found.emplace().open = i;
    } else if (text[i] == ',' && depth == 1) {
      found->commas.push_back(i);
    } else if (text[i] == '}' && depth > 0 && --depth == 0) {
      found->close = i;
      return found;
    }
  }
  if (depth > 0)
    return invalid("the pattern has a '{' without its '}'; write \\{ for the character");
  return std::optional<Braces>();
}

}  // namespace

Result<std::vector<std::string>> expand_braces(std::string_view pattern) {
  std::vector<std::string> done;
  std::vector<std::string> open{std::string(pattern)};
  std::size_t bytes = 0;
  while (!open.empty()) {
    const std::string text = std::move(open.back());
    open.pop_back();
    ATOLL_TRY_ASSIGN(const std::optional<Braces> braces, find_braces(text));
    if (!braces) {
      done.push_back(text);
      continue;
    }
    // The last alternative first, so that they come off the stack in order.
    std::size_t end = braces->close;
    for (std::size_t k = braces->commas.size() + 1; k-- > 0;) {
      const std::size_t begin = k == 0 ? braces->open + 1 : braces->commas[k - 1] + 1;
      open.push_back(text.substr(0, braces->open) + text.substr(begin, end - begin) +
                     text.substr(braces->close + 1));
      bytes += open.back().size();
      if (k > 0) end = braces->commas[k - 1];
    }
    if (done.size() + open.size() > kMaxAlternatives || bytes > kMaxExpanded)
      return invalid("the braces of the pattern stand for too many alternatives");
  }
  return done;
}

SplitPattern split_literal_prefix(std::string_view pattern) {
  const std::size_t magic = std::min(pattern.find_first_of("*?[{\\"), pattern.size());
  const std::size_t slash = pattern.substr(0, magic).rfind('/');
  if (slash == std::string_view::npos) return {"", std::string(pattern)};
  return {std::string(pattern.substr(0, std::max<std::size_t>(slash, 1))),
          std::string(pattern.substr(slash + 1))};
}

Result<Glob::Segment> Glob::compile_segment(std::string_view text) {
  Segment out;
  if (text == "**") {
    out.globstar = true;
    return out;
  }
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '*') {
      const bool again = !out.atoms.empty() && out.atoms.back().kind == Atom::Kind::star;
      if (!again) out.atoms.push_back({Atom::Kind::star});
      ++i;
    } else if (text[i] == '?') {
      out.atoms.push_back({Atom::Kind::any});
      ++i;
    } else if (text[i] == '[') {
      const std::size_t end = bracket_end(text, i);
      if (end == std::string_view::npos)
        return invalid("the pattern has a '[' without its ']'; write \\[ for the character");
      std::u32string set = decode(text.substr(i + 1, end - i - 1));
      Atom atom{Atom::Kind::set};
      if (set[0] == U'!' || set[0] == U'^') {
        atom.negated = true;
        set.erase(0, 1);
      }
      for (std::size_t k = 0; k < set.size(); ++k) {
        if (set[k] == U'\\' && k + 1 < set.size()) ++k;
        if (k + 2 < set.size() && set[k + 1] == U'-') {
          if (set[k] > set[k + 2])
            return invalid("the pattern has a range that ends before it begins");
          atom.ranges.emplace_back(set[k], set[k + 2]);
          k += 2;
        } else {
          atom.ranges.emplace_back(set[k], set[k]);
        }
      }
      out.atoms.push_back(std::move(atom));
      i = end + 1;
    } else {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      // All up to the next character that means something.
      const std::size_t end = std::min(text.find_first_of("*?[\\", i + 1), text.size());
      for (const char32_t point : decode(text.substr(i, end - i)))
        out.atoms.push_back({Atom::Kind::literal, point});
      i = end;
    }
  }
  return out;
}

Result<Glob> Glob::compile(std::string_view pattern) {
  if (pattern.empty()) return invalid("the pattern is empty");
  ATOLL_TRY_ASSIGN(const std::vector<std::string> expanded, expand_braces(pattern));
  Glob out;
  for (std::string_view text : expanded) {
    Path path;
    while (!text.empty()) {
      const std::string_view name = text.substr(0, text.find('/'));
      text.remove_prefix(std::min(text.size(), name.size() + 1));
      if (name.empty() || name == ".") continue;
      if (name == "..") return invalid("'..' may stand only before the first * ? [ of a pattern");
      ATOLL_TRY_ASSIGN(Segment segment, compile_segment(name));
      if (segment.globstar && !path.empty() && path.back().globstar) continue;
      if (!segment.globstar && segment.atoms.front().kind == Atom::Kind::literal &&
          segment.atoms.front().literal == U'.')
        out.sees_hidden_ = true;
      path.push_back(std::move(segment));
    }
    if (!path.empty()) out.alternatives_.push_back(std::move(path));
  }
  return out;
}

bool Glob::fits(const Segment& segment, const std::u32string& name) {
  const std::vector<Atom>& atoms = segment.atoms;
  if (!name.empty() && name[0] == U'.' && (atoms.empty() || atoms[0].kind != Atom::Kind::literal))
    return false;
  const auto one = [&](const Atom& atom, char32_t c) {
    if (atom.kind == Atom::Kind::literal) return atom.literal == c;
    if (atom.kind == Atom::Kind::any) return true;
    const bool in = std::any_of(atom.ranges.begin(), atom.ranges.end(),
                                [c](const auto& r) { return r.first <= c && c <= r.second; });
    return in != atom.negated;
  };
  // Only the last star ever has to take more.
  std::size_t a = 0, n = 0;
  std::size_t star = atoms.size(), from = 0;
  while (n < name.size()) {
    if (a < atoms.size() && atoms[a].kind == Atom::Kind::star) {
      star = a++;
      from = n;
    } else if (a < atoms.size() && one(atoms[a], name[n])) {
      ++a, ++n;
    } else if (star < atoms.size()) {
      a = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (a < atoms.size() && atoms[a].kind == Atom::Kind::star) ++a;
  return a == atoms.size();
}

bool Glob::fits(const Path& path, const std::vector<std::u32string>& names) {
  // reach[k]: the names before k are matched by the segments so far.
  std::vector<char> reach(names.size() + 1, 0);
  reach[0] = 1;
  for (const Segment& segment : path) {
    std::vector<char> next(names.size() + 1, 0);
    for (std::size_t k = 0; k <= names.size(); ++k) {
      if (segment.globstar) {
        if (reach[k] || (k > 0 && next[k - 1] && names[k - 1][0] != U'.')) next[k] = 1;
      } else if (k > 0 && reach[k - 1] && fits(segment, names[k - 1])) {
        next[k] = 1;
      }
    }
    reach = std::move(next);
  }
  return reach[names.size()] != 0;
}

bool Glob::matches(std::string_view path) const {
  std::vector<std::u32string> names;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (!name.empty()) names.push_back(decode(name));
  }
  if (names.empty()) return false;
  return std::any_of(alternatives_.begin(), alternatives_.end(),
                     [&](const Path& alternative) { return fits(alternative, names); });
}

}  // namespace atl::mcp
