#include "providers/program.h"

#include <algorithm>

#include "base/encoding.h"

namespace atl::providers {
namespace {

// Runs main.py as a module, so that a guard for scripts does not call main() a second time. Frames
// of its own do not show in tracebacks.
constexpr std::string_view kPythonRunner =
    R"py(import asyncio, inspect, json, os, sys, traceback, types

here = os.path.dirname(os.path.abspath(__file__))
path = os.path.join(here, "main.py")
with open(os.path.join(here, "arguments.json"), encoding="utf-8") as file:
    arguments = json.load(file)
sys.path[0] = os.getcwd()
sys.argv = [path]
module = types.ModuleType("main")
module.__file__ = path
sys.modules["main"] = module


def refuse(text):
    sys.stdout.flush()
    print(text, file=sys.stderr)
    sys.exit(1)


def fail(error, skip):
    trace = error.__traceback__
    while trace is not None and skip > 0:
        trace, skip = trace.tb_next, skip - 1
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)
    sys.exit(1)


try:
    with open(path, encoding="utf-8") as file:
        program = compile(file.read(), path, "exec")
except (SyntaxError, ValueError) as error:
    fail(error, 99)
try:
    exec(program, module.__dict__)
    main = module.__dict__.get("main")
    if callable(main):
        value = main(**arguments)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
except Exception as error:
    fail(error, 1)
if callable(main):
    try:
        text = json.dumps({"present": True, "value": value, "type": "json"}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        refuse(f"main() must return a value that JSON can express: {error}")
    try:
        import resource

        report = json.loads(text)
        report["memory_used_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        text = json.dumps(report)
    except Exception:
        pass
    with open(os.path.join(here, "result.json"), "w", encoding="utf-8") as file:
        file.write(text)
elif arguments:
    refuse("there are arguments, but the code defines no main()")
)py";

constexpr std::string_view kNodeRunner = R"js(const fs = require('fs')
const path = require('path')

const given = JSON.parse(fs.readFileSync(path.join(__dirname, 'arguments.json'), 'utf8'))
const file = ['main.mjs', 'main.cjs'].map((name) => path.join(__dirname, name)).find((name) => fs.existsSync(name))
process.argv = [process.argv[0], file]

function refuse(text) {
  console.error(text)
  process.exit(1)
}

async function run() {
  const module = file.endsWith('.mjs') ? await import(file) : require(file)
  const main = [module.main, module.default?.main, module.default, module].find((one) => typeof one === 'function')
  if (!main) {
    if (Object.keys(given).length > 0) refuse('there are arguments, but the code defines no main()')
    return
  }
  const value = await main(given)
  if (value === undefined) refuse('main() returned undefined; return null where there is no value')
  let text
  try {
    text = JSON.stringify({ present: true, value, type: 'json', memory_used_kb: process.resourceUsage().maxRSS })
    if (!('value' in JSON.parse(text))) throw new Error('a function or a symbol')
  } catch (error) {
    refuse(`main() must return a value that JSON can express: ${error.message}`)
  }
  fs.writeFileSync(path.join(__dirname, 'result.json'), text)
}

run().catch((error) => {
  console.error(error)
  process.exit(1)
})
)js";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

template <class Each>
void for_each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    each(text.substr(0, end), end != std::string_view::npos);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

// Takes a word and what is between it and the next one.
bool skip_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  std::string_view rest = text.substr(word.size());
  const std::size_t blank = rest.find_first_not_of(" \t");
  if (blank == 0 || blank == std::string_view::npos) return false;
  text = rest.substr(blank);
  return true;
}

// "main" and then one of these characters, with or without blanks between.
bool is_main_then(std::string_view text, std::string_view next) {
  if (!text.starts_with("main")) return false;
  text = trimmed(text.substr(4));
  return !text.empty() && next.find(text.front()) != std::string_view::npos &&
         !(text.front() == '=' && text.size() > 1 && text[1] == '=');
}

bool python_line_defines(std::string_view line) {
  skip_word(line, "async");
  if (skip_word(line, "def")) return is_main_then(line, "(");
  return is_main_then(line, "=");
}

bool javascript_line_defines(std::string_view line) {
  line = trimmed(line);
  if (line.find("exports.main") != std::string_view::npos) return true;
  if (line.starts_with("module.exports") && line.find("main") != std::string_view::npos)
    return true;
  skip_word(line, "export");
  skip_word(line, "default");
  skip_word(line, "async");
  if (skip_word(line, "function") || skip_word(line, "function*")) return is_main_then(line, "(");
  if (skip_word(line, "const") || skip_word(line, "let") || skip_word(line, "var"))
    return is_main_then(line, "=");
  return false;
}

bool is_module(std::string_view code) {
  bool module = false;
  for_each_line(code, [&](std::string_view line, bool) {
    std::string_view rest = line;
    module |= skip_word(rest, "export") ||
              (skip_word(rest, "import") && !trimmed(line).starts_with("import("));
  });
  return module;
}

bool exports_main(std::string_view code) {
  bool exported = false;
  for_each_line(code, [&](std::string_view line, bool) {
    std::string_view rest = trimmed(line);
    if (skip_word(rest, "export") && rest.find("main") != std::string_view::npos) exported = true;
  });
  return exported;
}

Result<void> check_arguments(Language language, const json::object& arguments) {
  if (language != Language::bash || arguments.empty()) return {};
  return make_error(Errc::invalid_argument,
                    "'arguments' are for main() of Python and JavaScript, not for bash");
}

SourceFile javascript_source(std::string_view code, bool calls_main) {
  std::string text(code);
  if (is_module(code)) {
    if (calls_main && defines_main(Language::javascript, code) && !exports_main(code))
      text += "\nexport { main }\n";
    return {"main.mjs", std::move(text)};
  }
  // A declaration that is not exported, as people write it.
  if (calls_main)
    text +=
        "\n;if (typeof main === 'function' && !module.exports.main) module.exports.main = main\n";
  return {"main.cjs", std::move(text)};
}

}  // namespace

Extracted extract_result(std::string_view out) {
  Extracted found;
  for_each_line(out, [&](std::string_view line, bool ended) {
    if (const std::size_t at = line.find(kMarker); at != std::string_view::npos) {
      const auto decoded = base64_decode(trimmed(line.substr(at + kMarker.size())));
      auto parsed = decoded ? parse_json(*decoded) : Result<json::value>(Error{});
      const json::object* report = parsed.ok() ? parsed->if_object() : nullptr;
      const json::value* present = report != nullptr ? report->if_contains("present") : nullptr;
      if (present != nullptr && present->is_bool()) {
        const json::value* value = report->if_contains("value");
        const json::value* type = report->if_contains("type");
        found.value.reset();
        if (present->get_bool()) found.value = value != nullptr ? *value : json::value(nullptr);
        found.type =
            type != nullptr && type->is_string() ? std::string(type->get_string()) : "json";
        found.text += line.substr(0, at);  // text of the code's that ended without a line end
        return;
      }
    }
    found.text += line;
    if (ended) found.text += '\n';
  });
  return found;
}

bool defines_main(Language language, std::string_view code) {
  bool defines = false;
  for_each_line(code, [&](std::string_view line, bool) {
    if (language == Language::python) defines |= python_line_defines(line);
    if (language == Language::javascript) defines |= javascript_line_defines(line);
  });
  return defines;
}

Result<Program> make_program(Language language, std::string_view code,
                             const json::object& arguments, const std::string& directory) {
  ATOLL_TRY(check_arguments(language, arguments));
  Program out;
  out.calls_main = !arguments.empty() || defines_main(language, code);
  switch (language) {
    case Language::python:
      out.program = "python3";
      out.files.push_back({"main.py", std::string(code)});
      if (out.calls_main) out.files.push_back({"run.py", std::string(kPythonRunner)});
      break;
    case Language::javascript:
      out.program = "node";
      out.files.push_back(javascript_source(code, out.calls_main));
      if (out.calls_main) out.files.push_back({"run.cjs", std::string(kNodeRunner)});
      break;
    case Language::bash:
      out.program = "bash";
      out.files.push_back({"main.sh", std::string(code)});
      break;
  }
  out.arguments.push_back(directory + "/" + out.files.back().name);
  if (out.calls_main) out.files.push_back({"arguments.json", json::serialize(arguments)});
  return out;
}

Result<std::string> with_marker(Language language, std::string_view code,
                                const json::object& arguments) {
  ATOLL_TRY(check_arguments(language, arguments));
  std::string text(code);
  if (arguments.empty() && !defines_main(language, code)) return text;
  const std::string given = base64_encode(json::serialize(arguments));
  if (language == Language::python) {
    text +=
        "\n\nimport base64 as _b64, json as _json\n_value = main(**_json.loads(_b64.b64decode('" +
        given + "')))\nprint('" + std::string(kMarker) +
        "' + _b64.b64encode(_json.dumps({'present': True, 'value': _value, 'type': 'json'}, "
        "allow_nan=False).encode()).decode())\n";
  } else {
    text +=
        "\n;(() => {\n  const show = (value) => {\n    if (value === undefined) throw new "
        "Error('main() returned undefined; return null where there is no value')\n    "
        "console.log('" +
        std::string(kMarker) +
        "' + Buffer.from(JSON.stringify({ present: true, value, type: 'json' })).toString('"
        "base64'))\n  }\n  const value = main(JSON.parse(Buffer.from('" +
        given +
        "', 'base64').toString()))\n  if (value && typeof value.then === 'function') return "
        "value.then(show)\n  show(value)\n})()\n";
  }
  return text;
}

std::string with_main(Language language, std::string_view code) {
  std::string text(code);
  if (defines_main(language, code)) return text;
  if (language == Language::python) text += "\n\n\ndef main():\n    return None\n";
  if (language == Language::javascript)
    text += "\n\nasync function main() {\n  return null\n}\n\nmodule.exports = { main }\n";
  return text;
}

}  // namespace atl::providers
