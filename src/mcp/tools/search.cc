#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include "mcp/cut.h"
#include "mcp/glob.h"
#include "mcp/grep_output.h"
#include "mcp/schema.h"
#include "mcp/tools/paths.h"
#include "mcp/tools/tool.h"
#include "store/timestamp.h"

namespace atl::mcp {
namespace {

namespace asio = net::asio;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kTime{15};      // of a whole search
constexpr std::size_t kMaxListing = 16 << 20;  // bytes of names that are looked at
constexpr std::size_t kMaxFiles = 1000;        // in one answer
constexpr std::size_t kMaxMatches = 500;
constexpr std::size_t kMaxMatchOutput = 1 << 20;
constexpr std::size_t kMaxMatchText = 500;
constexpr milliseconds kTurn{2};  // of matching, until others have theirs
constexpr std::string_view kIncomplete =
    "there are too many files to look at all of them; name a smaller path";

// For a command; never zero, which would be no limit.
milliseconds left_until(Clock::time_point end) {
  return std::max(std::chrono::ceil<milliseconds>(end - Clock::now()), milliseconds(1));
}

ToolError took_too_long(std::string_view what) {
  return {"timeout", fmt::format("{} took longer than {} s; search in a smaller directory", what,
                                 kTime.count())};
}

ToolError bad_pattern(const Error& error) { return {"invalid_pattern", error.message}; }

void add_note(Outcome& outcome, const std::vector<std::string>& notes) {
  std::string note = fmt::format("{}", fmt::join(notes, "; "));
  if (note.empty()) return;
  outcome.texts.push_back("[" + note + "]");
  outcome.fields["note"] = std::move(note);
}

struct Listing {
  std::vector<ListedFile> files;
  bool complete = true;
};

enum class Links : std::uint8_t { listed, left_out };

// All files below a directory; hidden ones only where asked for. Links are not followed, so nothing
// outside is seen; who opens what is listed leaves them out.
net::Task<Got<Listing>> list_below(Bench& bench, const std::string& directory, bool hidden,
                                   Links links, Clock::time_point end) {
  client::Command command;
  command.program = "find";
  command.arguments = {directory, "-mindepth", "1"};
  const auto add = [&command](std::initializer_list<const char*> words) {
    command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  };
  if (!hidden) add({"-name", ".*", "-prune", "-o"});
  add({"-type", links == Links::listed ? "f,l" : "f", "-printf", "%T@ %P\\0"});
  command.envs = {{"LC_ALL", "C.UTF-8"}};
  command.directory = kHome;
  command.timeout = left_until(end);
  command.keep = kMaxListing;
  auto running = bench.run(std::move(command));
  auto done = co_await std::move(running);
  if (!done.ok()) co_return std::move(done).error();
  if (done->timed_out) co_return took_too_long("listing the files");
  Listing out;
  out.complete = done->out.omitted == 0;
  out.files = parse_find(done->out.head);
  if (out.files.empty() && done->exit_code != 0) {
    co_return ToolError{"internal_error",
                        fmt::format("the files cannot be listed: {}",
                                    cut_middle(to_utf8(done->err.text()), 500, ""))};
  }
  co_return out;
}

// Those that the pattern matches. Many names and a long pattern take their time, and a thread of
// the server with it: others have their turn meanwhile.
net::Task<Got<std::vector<ListedFile>>> matching(Bench& bench, std::vector<ListedFile> files,
                                                 const Glob& glob, Clock::time_point end) {
  const auto executor = co_await asio::this_coro::executor;
  std::vector<ListedFile> out;
  auto turn_over = Clock::now() + kTurn;
  for (ListedFile& file : files) {
    if (glob.matches(file.path)) out.push_back(std::move(file));
    if (Clock::now() < turn_over) continue;
    co_await asio::post(executor, asio::use_awaitable);
    if (bench.stop().requested()) co_return stopped_error();
    const auto now = Clock::now();
    if (now > end) co_return took_too_long("matching the names");
    turn_over = now + kTurn;
  }
  co_return out;
}

// ---- grep ----

client::Command grep_command(std::string_view flavour, Clock::time_point end) {
  client::Command command;
  command.program = "grep";
  command.arguments = {"-nHIZ", std::string(flavour), "--color=never", "-D", "skip"};
  command.envs = {{"LC_ALL", "C.UTF-8"}};  // characters, not bytes
  command.directory = kHome;
  command.timeout = left_until(end);
  command.keep = kMaxMatchOutput;
  return command;
}

// The first line, without who says it.
std::string first_line(const client::Output& err) {
  const std::string said = to_utf8(err.head);
  std::string line = said.substr(0, said.find('\n'));
  if (line.starts_with("grep: ")) line.erase(0, 6);
  return cut_middle(line, 300, "");
}

ToolError no_expression(std::string_view reason) {
  return {"invalid_pattern", fmt::format("no valid regular expression: {}", reason)};
}

// Which flavour of expressions this grep understands; invalid_pattern if it takes this one for
// none.
net::Task<Got<std::string>> check_pattern(Bench& bench, std::string_view pattern,
                                          Clock::time_point end) {
  if (pattern.find('\0') != std::string_view::npos)
    co_return ToolError{"invalid_pattern", "a pattern cannot have a NUL character"};
  for (const char* flavour : {"-P", "-E"}) {
    client::Command command = grep_command(flavour, end);
    command.arguments.insert(command.arguments.end(), {"-e", std::string(pattern), "/dev/null"});
    auto running = bench.run(std::move(command));
    auto done = co_await std::move(running);
    if (!done.ok()) co_return std::move(done).error();
    if (done->timed_out) co_return took_too_long("reading the pattern");
    if (done->exit_code == 0 || done->exit_code == 1) co_return std::string(flavour);
    // Built without Perl's expressions.
    if (done->err.head.find("not supported") != std::string::npos) continue;
    co_return no_expression(first_line(done->err));
  }
  co_return ToolError{"internal_error", "grep in the sandbox understands no expressions"};
}

// The files of an `include` with a slash, for xargs.
struct Included {
  std::string names;
  bool complete = true;
};

net::Task<Got<Included>> included_files(Bench& bench, const std::string& directory,
                                        const Glob& include, Clock::time_point end) {
  // grep opens a link that it is given by name.
  auto listing = list_below(bench, directory, include.sees_hidden(), Links::left_out, end);
  auto listed = co_await std::move(listing);
  if (!listed.ok()) co_return std::move(listed).error();
  auto choosing = matching(bench, std::move(listed->files), include, end);
  auto files = co_await std::move(choosing);
  if (!files.ok()) co_return std::move(files).error();
  Included out{.names = {}, .complete = listed->complete};
  for (const ListedFile& file : *files) {
    if (out.names.size() > kMaxListing) {
      out.complete = false;
      break;
    }
    out.names += directory + "/" + file.path;
    out.names += '\0';
  }
  co_return out;
}

// What kept grep from looking at everything; empty: nothing did. xargs says 123 also when nothing
// was found, so that only what was printed tells.
std::string trouble_of(const client::Finished& done) {
  constexpr int kSomeFailed = 123;
  if (done.exit_code <= 1) return {};
  if (std::string line = first_line(done.err); !line.empty()) return line;
  return done.exit_code == kSomeFailed ? "" : done.status;
}

// A search that found nothing because it failed.
std::optional<ToolError> failure_of(std::string_view trouble) {
  // A file that cannot be read, or is gone meanwhile, is worth a note only.
  if (trouble.empty() || trouble.ends_with(": Permission denied") ||
      trouble.ends_with(": No such file or directory"))
    return std::nullopt;
  // "f: exceeded PCRE's backtracking limit", "exhausted PCRE JIT stack" and the like.
  if (trouble.find("PCRE") != std::string_view::npos) {
    ToolError error = no_expression(trouble);
    error.message += "; it can match in too many ways: avoid repetitions of repetitions";
    return error;
  }
  return ToolError{"internal_error", fmt::format("the search failed: {}", trouble)};
}

Outcome grep_outcome(const client::Finished& done, bool complete) {
  std::vector<GrepMatch> found =
      parse_grep(done.out.head + (done.out.omitted > 0 ? "\n" : done.out.tail));
  const std::string trouble = trouble_of(done);
  if (found.empty()) {
    if (auto failure = failure_of(trouble)) return std::move(*failure);
  }
  const bool more = done.out.omitted > 0 || found.size() > kMaxMatches;
  const std::size_t all = found.size();
  if (found.size() > kMaxMatches) found.resize(kMaxMatches);
  Outcome outcome;
  json::array matches;
  std::string text;
  for (const GrepMatch& match : found) {
    const std::string line = cut_middle(to_utf8(match.text), kMaxMatchText, "");
    text += fmt::format("{}:{}:{}\n", shown(to_utf8(match.file)), match.line, line);
    matches.push_back(
        json::object{{"file", to_utf8(match.file)}, {"line", match.line}, {"text", line}});
  }
  outcome.texts.push_back(matches.empty() ? "[no match]" : std::move(text));
  outcome.fields["count"] = matches.size();
  outcome.fields["matches"] = std::move(matches);
  std::vector<std::string> notes;
  if (more) {
    notes.push_back(fmt::format("{} matches were left out; narrow the pattern, the path or include",
                                done.out.omitted > 0 ? "many" : std::to_string(all - kMaxMatches)));
  }
  if (!trouble.empty()) notes.push_back(fmt::format("not everything was searched: {}", trouble));
  if (!complete) notes.emplace_back(kIncomplete);
  add_note(outcome, notes);
  return outcome;
}

}  // namespace

net::Task<Outcome> glob_files(Bench& bench, const json::object& arguments) {
  const SplitPattern split = split_literal_prefix(text_argument(arguments, "pattern"));
  auto glob = Glob::compile(split.rest);
  if (!glob.ok()) co_return bad_pattern(glob.error());
  // The directories before the first * are a path, with the rules of paths.
  std::string base(text_argument(arguments, "path"));
  if (split.directory.starts_with('/')) {
    base = split.directory;
  } else if (!split.directory.empty()) {
    base += "/" + split.directory;
  }
  auto finding = find(bench, base);
  auto found = co_await std::move(finding);
  const bool prefixed = !split.directory.empty();
  if (!found.ok()) {
    const std::string& code = found.error().code;
    if (!prefixed || (code != "not_found" && code != "not_a_directory"))
      co_return std::move(found).error();
  }
  std::vector<ListedFile> files;
  bool complete = true;
  if (found.ok() && found->entry.type == client::EntryType::directory) {
    const auto end = Clock::now() + kTime;
    auto listing = list_below(bench, found->path, glob->sees_hidden(), Links::listed, end);
    auto listed = co_await std::move(listing);
    if (!listed.ok()) co_return std::move(listed).error();
    complete = listed->complete;
    auto choosing = matching(bench, std::move(listed->files), *glob, end);
    auto chosen = co_await std::move(choosing);
    if (!chosen.ok()) co_return std::move(chosen).error();
    files = std::move(*chosen);
  } else if (found.ok() && !prefixed) {
    co_return ToolError{"not_a_directory", fmt::format("{} is no directory", shown(found->path))};
  }
  const bool newest = flag_argument(arguments, "newest_first");
  const auto shown_end = files.begin() + std::ptrdiff_t(std::min(files.size(), kMaxFiles));
  std::partial_sort(files.begin(), shown_end, files.end(),
                    [newest](const ListedFile& a, const ListedFile& b) {
                      if (newest && a.modified != b.modified) return a.modified > b.modified;
                      return a.path < b.path;
                    });
  Outcome outcome;
  json::array paths;
  std::string text;
  for (const ListedFile& file : files) {
    if (paths.size() == kMaxFiles) break;
    const std::string path = to_utf8(found->path + "/" + file.path);
    text += shown(path) + "\n";
    paths.emplace_back(path);
  }
  outcome.texts.push_back(paths.empty() ? "[no file matches]" : std::move(text));
  std::vector<std::string> notes;
  if (files.size() > kMaxFiles)
    notes.push_back(fmt::format("{} more files match; narrow the pattern or the path",
                                files.size() - kMaxFiles));
  if (!complete) notes.emplace_back(kIncomplete);
  outcome.fields["files"] = std::move(paths);
  outcome.fields["count"] = files.size();
  add_note(outcome, notes);
  co_return outcome;
}

net::Task<Outcome> grep_files(Bench& bench, const json::object& arguments) {
  const std::string_view pattern = text_argument(arguments, "pattern");
  const std::string_view include = text_argument(arguments, "include");
  std::vector<std::string> names;
  std::optional<Glob> by_path;
  if (!include.empty()) {
    auto glob = Glob::compile(include);
    if (!glob.ok()) co_return bad_pattern(std::move(glob).error().with("include"));
    auto expanded = expand_braces(include);
    if (!expanded.ok()) co_return bad_pattern(expanded.error());
    names = std::move(*expanded);
    if (include.find('/') != std::string_view::npos) by_path = std::move(*glob);
  }
  auto finding = find(bench, text_argument(arguments, "path"));
  auto found = co_await std::move(finding);
  if (!found.ok()) co_return std::move(found).error();
  const auto end = Clock::now() + kTime;
  auto checking = check_pattern(bench, pattern, end);
  auto flavour = co_await std::move(checking);
  if (!flavour.ok()) co_return std::move(flavour).error();

  Included included;
  const bool chosen = by_path && found->entry.type == client::EntryType::directory;
  if (chosen) {
    auto listing = included_files(bench, found->path, *by_path, end);
    auto listed = co_await std::move(listing);
    if (!listed.ok()) co_return std::move(listed).error();
    included = std::move(*listed);
  }
  client::Command command = grep_command(*flavour, end);
  auto& words = command.arguments;
  words.insert(words.end(), {"-e", std::string(pattern)});
  if (chosen) {
    words.push_back("--");
    words.insert(words.begin(), {"-0", "-r", "grep"});
    command.program = "xargs";
    command.input = std::move(included.names);
  } else {
    words.push_back("-r");
    for (const std::string& name : names) words.push_back("--include=" + name);
    words.insert(words.end(), {"--", found->path});
  }
  auto running = bench.run(std::move(command));
  auto done = co_await std::move(running);
  if (!done.ok()) co_return std::move(done).error();
  if (done->timed_out) co_return took_too_long("the search");
  co_return grep_outcome(*done, included.complete);
}

net::Task<Outcome> list_files(Bench& bench, const json::object& arguments) {
  auto finding = find(bench, text_argument(arguments, "path"));
  auto found = co_await std::move(finding);
  if (!found.ok()) co_return std::move(found).error();
  if (found->entry.type != client::EntryType::directory)
    co_return ToolError{"not_a_directory", fmt::format("{} is no directory", shown(found->path))};
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  auto listing = client::list_directory(*inside, found->path,
                                        std::uint32_t(number_argument(arguments, "depth")));
  auto listed = co_await std::move(listing);
  if (!listed.ok()) {
    if (listed.error().code == Errc::resource_exhausted)
      co_return ToolError{"too_large", listed.error().message + "; name a smaller depth or path"};
    co_return to_tool_error(listed.error());
  }
  std::sort(listed->begin(), listed->end(),
            [](const client::Entry& a, const client::Entry& b) { return a.path < b.path; });
  static constexpr std::string_view kTypes[] = {"file", "directory", "symlink", "other"};
  Outcome outcome;
  json::array entries;
  std::string text;
  for (const client::Entry& entry : *listed) {
    if (entries.size() == kMaxFiles) break;
    const bool link = !entry.symlink_target.empty();
    const std::string_view type = link ? "symlink" : kTypes[std::size_t(entry.type)];
    const std::string path = to_utf8(entry.path);
    json::object one{{"path", path}, {"type", type}, {"size", entry.size}};
    if (entry.modified_ms > 0 && entry.modified_ms < 7'000'000'000'000)
      one["modified"] = to_rfc3339(Timestamp(std::chrono::milliseconds(entry.modified_ms)));
    text += shown(path) + (type == "directory" ? "/" : "");
    if (link) {
      one["target"] = to_utf8(entry.symlink_target);
      text += " -> " + shown(to_utf8(entry.symlink_target));
    } else if (type == "file") {
      text += fmt::format(" ({})", readable_size(entry.size));
    }
    text += '\n';
    entries.emplace_back(std::move(one));
  }
  outcome.texts.push_back(entries.empty() ? "[empty directory]" : std::move(text));
  outcome.fields["path"] = found->path;
  outcome.fields["entries"] = std::move(entries);
  outcome.fields["count"] = listed->size();
  if (listed->size() > kMaxFiles)
    add_note(outcome, {fmt::format("{} more entries; name a smaller depth or path",
                                   listed->size() - kMaxFiles)});
  co_return outcome;
}

}  // namespace atl::mcp
