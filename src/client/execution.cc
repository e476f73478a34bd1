#include "client/execution.h"

namespace atl::client {
namespace {

Error malformed(std::string_view what) {
  return make_error(Errc::data_loss, "the code interpreter's answer has " + std::string(what));
}

Result<std::string> string_field(const json::object& line, std::string_view name) {
  const json::value* value = line.if_contains(name);
  if (value == nullptr || !value->is_string())
    return malformed("no text '" + std::string(name) + "'");
  return std::string(value->get_string());
}

json::array strings(const std::vector<std::string>& list) {
  json::array out;
  out.reserve(list.size());
  for (const std::string& text : list) out.emplace_back(text);
  return out;
}

}  // namespace

std::string_view CellResult::text_form(std::string_view name) const {
  const json::value* value = forms.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return std::string_view(value->get_string());
}

json::object Execution::to_json() const {
  json::object document;
  document["execution_count"] = count ? json::value(*count) : json::value(nullptr);
  json::array& shown = (document["results"] = json::array()).get_array();
  for (const CellResult& result : results) {
    json::object forms = result.forms;
    forms["is_main_result"] = result.is_main;
    shown.emplace_back(std::move(forms));
  }
  document["logs"] = json::object{{"stdout", strings(out)}, {"stderr", strings(err)}};
  document["error"] = nullptr;
  if (error) {
    document["error"] = json::object{
        {"name", error->name}, {"value", error->value}, {"traceback", error->traceback}};
  }
  return document;
}

Result<void> ExecutionReader::feed(std::string_view bytes) {
  kept_ += bytes.size();
  if (kept_ > kMaxKept) return make_error(Errc::resource_exhausted, "the run says too much");
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (pending_.size() + piece.size() > kMaxLine) return malformed("a line without end");
    if (end == std::string_view::npos) {
      pending_ += piece;
      return {};
    }
    bytes.remove_prefix(end + 1);
    if (pending_.empty()) {
      ATOLL_TRY(take(piece));
      continue;
    }
    pending_ += piece;
    const std::string line = std::exchange(pending_, {});
    ATOLL_TRY(take(line));
  }
  return {};
}

Result<void> ExecutionReader::take(std::string_view text) {
  ATOLL_TRY_ASSIGN(json::value document, parse_json(text));
  if (!document.is_object()) return malformed("a line that is no object");
  json::object& line = document.get_object();
  ATOLL_TRY_ASSIGN(const std::string type, string_field(line, "type"));
  if (execution_.ended) return malformed("lines behind its end");
  if (type == "stdout" || type == "stderr") {
    ATOLL_TRY_ASSIGN(std::string said, string_field(line, "text"));
    const bool out = type == "stdout";
    if (const auto& tell = out ? events_.on_stdout : events_.on_stderr) tell(said);
    (out ? execution_.out : execution_.err).push_back(std::move(said));
  } else if (type == "result") {
    CellResult result;
    const json::value* main = line.if_contains("is_main_result");
    result.is_main = main != nullptr && main->is_bool() && main->get_bool();
    line.stable_erase("type");
    line.stable_erase("is_main_result");
    result.forms = std::move(line);
    if (events_.on_result) events_.on_result(result);
    execution_.results.push_back(std::move(result));
  } else if (type == "error") {
    CellError error;
    ATOLL_TRY_ASSIGN(error.name, string_field(line, "name"));
    ATOLL_TRY_ASSIGN(error.value, string_field(line, "value"));
    ATOLL_TRY_ASSIGN(error.traceback, string_field(line, "traceback"));
    if (events_.on_error) events_.on_error(error);
    execution_.error = std::move(error);
  } else if (type == "number_of_executions") {
    const json::value* count = line.if_contains("execution_count");
    if (count == nullptr || !count->is_int64()) return malformed("no count");
    execution_.count = count->get_int64();
  } else if (type == "end_of_execution") {
    execution_.ended = true;
  }
  return {};
}

Result<Execution> ExecutionReader::finish() && {
  if (!execution_.ended || !pending_.empty())
    return make_error(Errc::data_loss, "the answer of the code interpreter broke off");
  return std::move(execution_);
}

}  // namespace atl::client
