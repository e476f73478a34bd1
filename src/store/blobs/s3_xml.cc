#include "store/blobs/s3_xml.h"

#include <expat.h>

#include <limits>
#include <memory>

namespace atl::blobs {
namespace {

constexpr std::size_t kMaxText = 16 << 10;
constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxRecords = 10'000;

struct State {
  XML_Parser parser = nullptr;
  std::string record;
  XmlFields::Record* outside = nullptr;
  std::vector<XmlFields::Record>* records = nullptr;
  bool inside = false;
  std::size_t depth = 0;
  std::string text;

  void stop() { XML_StopParser(parser, XML_FALSE); }
};

// Names come with the namespace's prefix, if the server uses one.
std::string local(const char* name) {
  std::string_view text(name);
  if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos)
    text.remove_prefix(colon + 1);
  return std::string(text);
}

void on_start(void* user, const XML_Char* name, const XML_Char** /*attributes*/) {
  auto& state = *static_cast<State*>(user);
  state.text.clear();
  if (++state.depth > kMaxDepth) return state.stop();
  if (!state.record.empty() && local(name) == state.record) {
    if (state.records->size() == kMaxRecords) return state.stop();
    state.records->emplace_back();
    state.inside = true;
  }
}

void on_end(void* user, const XML_Char* name) {
  auto& state = *static_cast<State*>(user);
  --state.depth;
  std::string tag = local(name);
  if (!state.record.empty() && tag == state.record) {
    state.inside = false;
  } else if (state.inside) {
    state.records->back().try_emplace(std::move(tag), std::move(state.text));
  } else {
    state.outside->try_emplace(std::move(tag), std::move(state.text));
  }
  state.text.clear();
}

void on_text(void* user, const XML_Char* text, int length) {
  auto& state = *static_cast<State*>(user);
  if (state.text.size() + std::size_t(length) > kMaxText) return state.stop();
  state.text.append(text, std::size_t(length));
}

void on_doctype(void* user, const XML_Char*, const XML_Char*, const XML_Char*, int) {
  static_cast<State*>(user)->stop();
}

}  // namespace

std::string XmlFields::first(const std::string& name) const {
  const auto found = outside_.find(name);
  return found == outside_.end() ? std::string() : found->second;
}

XmlFields parse_fields(std::string_view xml, std::string_view record) {
  XmlFields out;
  if (xml.empty() || xml.size() > std::size_t(std::numeric_limits<int>::max())) return out;
  const std::unique_ptr<XML_ParserStruct, void (*)(XML_Parser)> parser(
      XML_ParserCreate("UTF-8"), [](XML_Parser p) { XML_ParserFree(p); });
  if (!parser) return out;
  State state;
  state.parser = parser.get();
  state.record = record;
  state.outside = &out.outside_;
  state.records = &out.records_;
  XML_SetUserData(parser.get(), &state);
  XML_SetElementHandler(parser.get(), on_start, on_end);
  XML_SetCharacterDataHandler(parser.get(), on_text);
  XML_SetStartDoctypeDeclHandler(parser.get(), on_doctype);
  out.well_formed_ =
      XML_Parse(parser.get(), xml.data(), int(xml.size()), XML_TRUE) == XML_STATUS_OK;
  return out;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace atl::blobs
