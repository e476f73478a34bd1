#include "client/files.h"

#include <fmt/format.h>

#include <algorithm>

#include "mcp/cut.h"
#include "mcp/lines.h"
#include "mcp/schema.h"
#include "mcp/tools/paths.h"
#include "mcp/tools/tool.h"

namespace atl::mcp {
namespace {

constexpr std::size_t kMaxText = 256 << 10;          // bytes of one answer
constexpr std::size_t kProbe = 8 << 10;              // what tells text from other bytes
constexpr std::uint64_t kMaxCounted = 512ULL << 20;  // lines are counted so far
constexpr std::size_t kMaxEdited = 10 << 20;

ToolError is_directory(std::string_view path) {
  return {"is_directory",
          fmt::format("{} is a directory; list_files shows what is in it", shown(path))};
}

ToolError not_regular(std::string_view path) {
  return {"not_a_file", fmt::format("{} is neither a file nor a directory", shown(path))};
}

ToolError binary(std::string_view path, std::uint64_t size, std::string_view beginning) {
  ToolError error{"binary_file",
                  fmt::format("{} is no text file: {} of {}. Use run_code or bash_exec (file, xxd) "
                              "to look into it.",
                              shown(path), readable_size(size), mime_type_of(beginning))};
  error.more["size"] = size;
  error.more["mime_type"] = mime_type_of(beginning);
  return error;
}

// ---- read_file ----

struct Reading {
  explicit Reading(LinePicker p) : lines(std::move(p)) {}
  LinePicker lines;
  std::string beginning;
  std::optional<Error> failure;
  bool is_binary = false;
  bool whole = false;
};

net::Task<void> read_lines(client::Inside inside, std::string path, Reading& reading) {
  auto opening = client::Download::open(std::move(inside), std::move(path));
  auto download = co_await std::move(opening);
  if (!download.ok()) {
    reading.failure = std::move(download).error();
    co_return;
  }
  std::string buffer(256 << 10, '\0');
  bool probed = false;
  std::uint64_t total = 0;
  for (;;) {
    auto getting = download->read_some(buffer);
    auto got = co_await std::move(getting);
    if (!got.ok()) {
      reading.failure = std::move(got).error();
      co_return;
    }
    const std::string_view piece = std::string_view(buffer).substr(0, *got);
    total += piece.size();
    if (!probed) {
      reading.beginning += piece;
      if (reading.beginning.size() < kProbe && !piece.empty()) continue;
      probed = true;
      reading.is_binary = looks_binary(std::string_view(reading.beginning).substr(0, kProbe));
      if (reading.is_binary) co_return;
      reading.lines.feed(reading.beginning);
    } else {
      reading.lines.feed(piece);
    }
    if (piece.empty()) break;
    if (total > kMaxCounted) co_return;
  }
  reading.lines.finish();
  reading.whole = true;
}

Outcome read_outcome(const Found& found, const Reading& reading, std::int64_t offset) {
  const LinePicker& lines = reading.lines;
  Outcome outcome;
  const std::string text = to_utf8(lines.text());
  const std::int64_t next = offset + lines.lines();
  const bool more = !reading.whole || next < lines.total();
  std::string note;
  if (lines.lines() > 0) {
    note = fmt::format("lines {} to {}", offset, next - 1);
    note += reading.whole ? fmt::format(" of {} (counted from 0)", lines.total())
                          : fmt::format("; the file is too long to count its lines ({})",
                                        readable_size(found.entry.size));
  } else if (reading.whole && lines.total() == 0) {
    note = "the file is empty";
  } else {
    note = fmt::format("no line {}: the file has {} lines", offset, lines.total());
  }
  if (lines.omitted() > 0) note += fmt::format("; {} bytes of that line left out", lines.omitted());
  if (more && lines.lines() > 0) note += fmt::format("; go on with offset {}", next);
  outcome.texts = {text, "[" + note + "]"};
  outcome.fields["path"] = found.path;
  outcome.fields["content"] = text;
  outcome.fields["offset"] = offset;
  outcome.fields["lines"] = lines.lines();
  if (reading.whole) outcome.fields["total_lines"] = lines.total();
  outcome.fields["size"] = found.entry.size;
  if (more && lines.lines() > 0) outcome.fields["next_offset"] = next;
  outcome.fields["note"] = note;
  return outcome;
}

// ---- write_file, edit_file ----

net::Task<void> keep_write(client::Inside inside, std::string path, std::string bytes,
                           std::optional<Result<std::string>>& into) {
  auto writing = client::write_file(std::move(inside), std::move(path), std::move(bytes));
  into.emplace(co_await std::move(writing));
}

net::Task<void> keep_read(client::Inside inside, std::string path,
                          std::optional<Result<std::string>>& into) {
  auto reading = client::read_file(std::move(inside), std::move(path), kMaxEdited);
  into.emplace(co_await std::move(reading));
}

// Nothing if it was written.
net::Task<std::optional<ToolError>> store(Bench& bench, std::string path, std::string bytes) {
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  const std::string name = shown(path);
  std::optional<Result<std::string>> written;
  auto writing = keep_write(*inside, std::move(path), std::move(bytes), written);
  // Not to be cancelled: the file would be half written.
  co_await std::move(writing);
  if (!written) co_return ToolError{"internal_error", "the file was not written"};
  if (written->ok()) co_return std::nullopt;
  ToolError error = to_tool_error(written->error());
  if (error.code == "no_space")
    error.message = fmt::format("no space left in the sandbox for {}", name);
  co_return error;
}

}  // namespace

net::Task<Outcome> read_file(Bench& bench, const json::object& arguments) {
  auto finding = find(bench, text_argument(arguments, "path"));
  auto found = co_await std::move(finding);
  if (!found.ok()) co_return std::move(found).error();
  if (found->entry.type == client::EntryType::directory) co_return is_directory(found->path);
  if (found->entry.type != client::EntryType::file) co_return not_regular(found->path);
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  const std::int64_t offset = number_argument(arguments, "offset");
  Reading reading(LinePicker(offset, number_argument(arguments, "limit"), kMaxText));
  auto running = bench.stop().run(read_lines(*inside, found->path, reading));
  if (co_await std::move(running) != Stop::Ended::finished) co_return stopped_error();
  if (reading.failure) co_return to_tool_error(*reading.failure);
  if (reading.is_binary) co_return binary(found->path, found->entry.size, reading.beginning);
  co_return read_outcome(*found, reading, offset);
}

net::Task<Outcome> write_file(Bench& bench, const json::object& arguments) {
  const std::string_view named = text_argument(arguments, "path");
  if (named.ends_with('/')) co_return is_directory(named);
  auto finding = find(bench, named);
  auto found = co_await std::move(finding);
  std::string path;
  if (found.ok()) {
    if (found->entry.type == client::EntryType::directory) co_return is_directory(found->path);
    if (found->entry.type != client::EntryType::file) co_return not_regular(found->path);
    path = found->path;
  } else if (found.error().code != "not_found") {
    co_return std::move(found).error();
  } else {
    auto resolving = resolve(bench, named);
    auto resolved = co_await std::move(resolving);
    if (!resolved.ok()) co_return std::move(resolved).error();
    path = std::move(*resolved);
  }
  const std::string_view content = text_argument(arguments, "content");
  auto locking = bench.lock(path);
  const EditLocks::Held lock = co_await std::move(locking);
  auto storing = store(bench, path, std::string(content));
  if (auto failure = co_await std::move(storing)) co_return std::move(*failure);
  Outcome outcome;
  outcome.texts.push_back(fmt::format("{} bytes written to {}", content.size(), shown(path)));
  outcome.fields["path"] = path;
  outcome.fields["bytes"] = content.size();
  outcome.fields["created"] = !found.ok();
  co_return outcome;
}

net::Task<Outcome> edit_file(Bench& bench, const json::object& arguments) {
  auto finding = find(bench, text_argument(arguments, "path"));
  auto found = co_await std::move(finding);
  if (!found.ok()) co_return std::move(found).error();
  if (found->entry.type == client::EntryType::directory) co_return is_directory(found->path);
  if (found->entry.type != client::EntryType::file) co_return not_regular(found->path);
  const auto too_large = [&] {
    return ToolError{"too_large",
                     fmt::format("{} has more than {}; use bash_exec (sed) or run_code",
                                 shown(found->path), readable_size(kMaxEdited))};
  };
  if (found->entry.size > kMaxEdited) co_return too_large();
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();

  auto locking = bench.lock(found->path);
  const EditLocks::Held lock = co_await std::move(locking);
  std::optional<Result<std::string>> read;
  auto reading = bench.stop().run(keep_read(*inside, found->path, read));
  if (co_await std::move(reading) != Stop::Ended::finished || !read) co_return stopped_error();
  if (!read->ok()) {
    if (read->error().code == Errc::resource_exhausted) co_return too_large();
    co_return to_tool_error(read->error());
  }
  std::string text = std::move(**read);
  if (looks_binary(std::string_view(text).substr(0, kProbe)))
    co_return binary(found->path, text.size(), std::string_view(text).substr(0, kProbe));
  const std::string_view old_text = text_argument(arguments, "old_text");
  const Occurrences seen = count_occurrences(text, old_text);
  if (seen.count == 0) {
    co_return ToolError{"text_not_found",
                        fmt::format("old_text does not occur in {}; read the file again and give "
                                    "the text exactly, with white space and line ends",
                                    shown(found->path))};
  }
  if (seen.count > 1) {
    ToolError error{"ambiguous_match",
                    fmt::format("old_text occurs {} times in {}; give more of what surrounds the "
                                "one you mean",
                                seen.count, shown(found->path))};
    error.more["count"] = seen.count;
    co_return error;
  }
  const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(seen.first), '\n');
  text.replace(seen.first, old_text.size(), text_argument(arguments, "new_text"));
  const std::size_t bytes = text.size();
  auto storing = store(bench, found->path, std::move(text));
  if (auto failure = co_await std::move(storing)) co_return std::move(*failure);
  Outcome outcome;
  outcome.texts.push_back(fmt::format("replaced in {} at line {}", shown(found->path), line));
  outcome.fields["path"] = found->path;
  outcome.fields["replacements"] = 1;
  outcome.fields["line"] = std::int64_t(line);
  outcome.fields["bytes"] = bytes;
  co_return outcome;
}

}  // namespace atl::mcp
