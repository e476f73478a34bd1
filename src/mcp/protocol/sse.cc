#include "mcp/protocol/sse.h"

namespace atl::mcp {

std::string sse_event(std::string_view data) {
  std::string out = "event: message\ndata: ";
  out += data;
  out += "\n\n";
  return out;
}

Result<std::vector<std::string>> SseReader::feed(std::string_view bytes) {
  std::vector<std::string> out;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + data_.size() + piece.size() > limit_)
      return make_error(Errc::resource_exhausted, "an event is too long");
    line_ += piece;
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.empty()) {
      if (has_data_) out.push_back(std::move(data_));
      data_.clear();
      has_data_ = false;
    } else if (line_.starts_with("data:")) {
      std::string_view value = std::string_view(line_).substr(5);
      if (value.starts_with(' ')) value.remove_prefix(1);
      if (has_data_) data_ += '\n';
      data_ += value;
      has_data_ = true;
    }  // comments and other fields
    line_.clear();
  }
  return out;
}

}  // namespace atl::mcp
