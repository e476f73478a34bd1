#include "cli/provider.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/encoding.h"
#include "cli/home.h"
#include "cli/remote.h"
#include "cli/table.h"

namespace atl::cli {
namespace {

Error usage(std::string message) { return make_error(Errc::invalid_argument, std::move(message)); }

std::string target_of(const std::string& id) { return "/providers/" + percent_encode(id); }

// The terminal shows nothing of what is typed while this lives.
class Silent {
 public:
  Silent() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~tcflag_t(ECHO);
    changed_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0;
  }
  ~Silent() {
    if (!changed_) return;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    std::fputc('\n', stderr);
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

 private:
  termios before_{};
  bool changed_ = false;
};

Result<std::string> read_secret(const std::string& name) {
  std::string line;
  {
    if (::isatty(STDIN_FILENO)) std::fprintf(stderr, "%s: ", name.c_str());
    const Silent silent;
    std::getline(std::cin, line);
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  if (line.empty()) return usage("stdin has no line for the secret '" + name + "'");
  return line;
}

Result<std::pair<std::string, std::string>> split(const std::string& pair) {
  const std::size_t equals = pair.find('=');
  if (equals == 0 || equals == std::string::npos) return usage("not NAME=VALUE: " + pair);
  return std::pair(pair.substr(0, equals), pair.substr(equals + 1));
}

bool flag_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

// A word of the command line as the type that the schema wants; what does not fit goes as it is,
// for the server to refuse.
json::value typed(const json::object& field, const std::string& text) {
  if (text.empty()) return nullptr;
  const std::string type = text_of(field, "type");
  if (type == "boolean" && (text == "true" || text == "false")) return text == "true";
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (type == "integer" && error == std::errc() && end == text.data() + text.size()) return number;
  return json::value(text);
}

// What is stored (secrets as masks, which keeps them), with the changes of the command line.
Result<json::object> changed_config(ApiClient& api, const ProviderOptions& options) {
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", target_of(options.id)));
  const json::object* provider = answer.body.if_object();
  const json::value* schema = provider != nullptr ? provider->if_contains("schema") : nullptr;
  const json::value* stored = provider != nullptr ? provider->if_contains("config") : nullptr;
  if (schema == nullptr || !schema->is_object() || stored == nullptr || !stored->is_object())
    return make_error(Errc::data_loss, "the server's answer is no provider");
  const auto field_of = [&](const std::string& name) -> Result<const json::object*> {
    const json::value* field = schema->get_object().if_contains(name);
    if (field == nullptr || !field->is_object()) {
      return usage("'" + options.id + "' has no setting '" + name + "'; `atoll provider show " +
                   options.id + "` lists them");
    }
    return &field->get_object();
  };
  json::object config = stored->get_object();
  for (const std::string& pair : options.settings) {
    ATOLL_TRY_ASSIGN(const auto setting, split(pair));
    ATOLL_TRY_ASSIGN(const json::object* field, field_of(setting.first));
    if (flag_of(*field, "secret") && !setting.second.empty()) {
      return usage("'" + setting.first + "' is a secret, and every process can read the command " +
                   "line: use --secret " + setting.first + " (stdin) or --secret-env " +
                   setting.first + "=VARIABLE");
    }
    config[setting.first] = typed(*field, setting.second);
  }
  for (const std::string& pair : options.secrets_from_environment) {
    ATOLL_TRY_ASSIGN(const auto secret, split(pair));
    ATOLL_TRY(field_of(secret.first));
    const char* value = std::getenv(secret.second.c_str());
    if (value == nullptr || *value == '\0')
      return usage("the environment has no variable " + secret.second);
    config[secret.first] = value;
  }
  for (const std::string& name : options.secrets) {
    ATOLL_TRY(field_of(name));
    ATOLL_TRY_ASSIGN(config[name], read_secret(name));
  }
  return config;
}

std::string shown(const json::value& value) {
  if (value.is_string()) return printable(std::string_view(value.get_string()));
  return value.is_null() ? "" : json::serialize(value);
}

int print_json(const json::value& value) {
  fmt::print("{}\n", json::serialize(value));
  return 0;
}

int print_provider(const json::value& answer) {
  const json::object* provider = answer.if_object();
  if (provider == nullptr) return 1;
  const json::value* schema = provider->if_contains("schema");
  const json::value* config = provider->if_contains("config");
  fmt::print("{}  {}\n", printable(text_of(answer, "id")), printable(text_of(answer, "label")));
  fmt::print("{}{}\n", flag_of(*provider, "configured") ? "configured" : "not configured",
             flag_of(*provider, "active") ? ", active" : "");
  Table table({"SETTING", "VALUE", "DEFAULT", "KIND", "MEANING"});
  if (schema != nullptr && schema->is_object()) {
    for (const auto& item : schema->get_object()) {
      const json::object* field = item.value().if_object();
      if (field == nullptr) continue;
      const json::object* set = config != nullptr ? config->if_object() : nullptr;
      const json::value* value = set != nullptr ? set->if_contains(item.key()) : nullptr;
      const json::value* otherwise = field->if_contains("default");
      std::string kind = text_of(*field, "type");
      for (const char* word : {"required", "secret", "readonly"}) {
        if (flag_of(*field, word)) kind += std::string(", ") + word;
      }
      table.add({printable(item.key()), value != nullptr ? shown(*value) : "",
                 otherwise != nullptr ? shown(*otherwise) : "", kind,
                 printable(text_of(*field, "description"))});
    }
  }
  table.print();
  return 0;
}

Result<std::string> read_code(const std::string& word) {
  if (word == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  struct stat info{};
  if (word.size() < 4096 && ::stat(word.c_str(), &info) == 0 && S_ISREG(info.st_mode))
    return read_file(word);
  return word;
}

}  // namespace

Result<int> provider_list(const ProviderOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", "/providers"));
  if (options.json) return print_json(answer.body);
  Table table({"ID", "CONFIGURED", "ACTIVE", "LABEL"});
  const json::object* body = answer.body.if_object();
  const json::value* list = body != nullptr ? body->if_contains("providers") : nullptr;
  if (list != nullptr && list->is_array()) {
    for (const json::value& entry : list->get_array()) {
      const json::object* provider = entry.if_object();
      if (provider == nullptr) continue;
      table.add({printable(text_of(entry, "id")), flag_of(*provider, "configured") ? "yes" : "no",
                 flag_of(*provider, "active") ? "yes" : "no", printable(text_of(entry, "label"))});
    }
  }
  table.print();
  return 0;
}

Result<int> provider_show(const ProviderOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", target_of(options.id)));
  return options.json ? print_json(answer.body) : print_provider(answer.body);
}

Result<int> provider_set(const ProviderOptions& options) {
  const std::string token = find_admin_token(options.home);
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY(api.as_administrator(token));
  ATOLL_TRY_ASSIGN(json::object config, changed_config(api, options));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("PUT", target_of(options.id), json::object{{"config", config}}));
  return options.json ? print_json(answer.body) : print_provider(answer.body);
}

Result<int> provider_unset(const ProviderOptions& options) {
  const std::string token = find_admin_token(options.home);
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY(api.as_administrator(token));
  ATOLL_TRY(api.call("DELETE", target_of(options.id)));
  return 0;
}

Result<int> provider_use(const ProviderOptions& options) {
  const std::string token = find_admin_token(options.home);
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY(api.as_administrator(token));
  json::object body;
  body["active"] = options.id == "none" ? json::value(nullptr) : json::value(options.id);
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("PUT", "/providers", body));
  return options.json ? print_json(answer.body) : 0;
}

Result<int> provider_test(const ProviderOptions& options) {
  const std::string token = find_admin_token(options.home);
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY(api.as_administrator(token));
  json::object body;
  if (!options.settings.empty() || !options.secrets.empty() ||
      !options.secrets_from_environment.empty()) {
    ATOLL_TRY_ASSIGN(json::object config, changed_config(api, options));
    body["config"] = std::move(config);
  }
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", target_of(options.id) + "/test", body));
  const json::object* report = answer.body.if_object();
  const bool works = report != nullptr && flag_of(*report, "ok");
  if (options.json) {
    print_json(answer.body);
    return works ? 0 : 1;
  }
  Table table({"STEP", "RESULT", "MS", "ERROR"});
  const json::value* steps = report != nullptr ? report->if_contains("steps") : nullptr;
  if (steps != nullptr && steps->is_array()) {
    for (const json::value& entry : steps->get_array()) {
      const json::object* step = entry.if_object();
      if (step == nullptr) continue;
      const json::value* error = step->if_contains("error");
      table.add({printable(text_of(entry, "step")), flag_of(*step, "ok") ? "ok" : "failed",
                 std::to_string(number_of(entry, "ms")),
                 error != nullptr
                     ? printable(text_of(*error, "code") + ": " + text_of(*error, "message"))
                     : ""});
    }
  }
  table.print();
  return works ? 0 : 1;
}

Result<int> provider_exec(const ProviderOptions& options) {
  ATOLL_TRY_ASSIGN(const std::string code, read_code(options.code));
  json::object body{{"code", code}};
  if (!options.language.empty()) body["language"] = options.language;
  if (options.timeout) body["timeout"] = *options.timeout;
  if (!options.template_name.empty()) body["template"] = options.template_name;
  if (!options.arguments.empty()) {
    auto arguments = parse_json(options.arguments);
    if (!arguments.ok() || !arguments->is_object()) return usage("--arguments is no JSON object");
    body["arguments"] = std::move(*arguments);
  }
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  const std::string target = options.id.empty() ? "/providers" : target_of(options.id);
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("POST", target + "/execute", body));
  const int exit_code = int(number_of(answer.body, "exit_code")) & 0xff;
  if (options.json) {
    print_json(answer.body);
    return exit_code;
  }
  std::cout << text_of(answer.body, "stdout") << std::flush;
  std::cerr << text_of(answer.body, "stderr") << std::flush;
  const json::object* result = answer.body.if_object();
  const json::value* metadata = result != nullptr ? result->if_contains("metadata") : nullptr;
  const json::object* facts = metadata != nullptr ? metadata->if_object() : nullptr;
  if (facts != nullptr && flag_of(*facts, "result_present"))
    fmt::print("{}\n", json::serialize(facts->at("result_value")));
  return exit_code;
}

}  // namespace atl::cli
