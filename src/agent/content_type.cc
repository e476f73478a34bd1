#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/content.h"

namespace atl::agent {
namespace {

struct ByExtension {
  std::string_view extension;
  std::string_view type;
};
constexpr ByExtension kExtensions[] = {
    {"avif", "image/avif"},
    {"bmp", "image/bmp"},
    {"bz2", "application/x-bzip2"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"doc", "application/msword"},
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"htm", "text/html; charset=utf-8"},
    {"html", "text/html; charset=utf-8"},
    {"ico", "image/x-icon"},
    {"ipynb", "application/x-ipynb+json"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"jsonl", "application/jsonl"},
    {"md", "text/markdown; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"mov", "video/quicktime"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"ogg", "audio/ogg"},
    {"parquet", "application/vnd.apache.parquet"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
    {"py", "text/x-python; charset=utf-8"},
    {"sh", "application/x-sh"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"toml", "application/toml"},
    {"tsv", "text/tab-separated-values; charset=utf-8"},
    {"txt", "text/plain; charset=utf-8"},
    {"wasm", "application/wasm"},
    {"wav", "audio/x-wav"},
    {"webm", "video/webm"},
    {"webp", "image/webp"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"xml", "text/xml; charset=utf-8"},
    {"xz", "application/x-xz"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
    {"zip", "application/zip"},
    {"zst", "application/zstd"},
};

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  std::string_view type;
};
// String literals with NUL bytes need their length.
#define ATL_BYTES(text) std::string_view(text, sizeof(text) - 1)
constexpr Magic kMagic[] = {
    {0, ATL_BYTES("%PDF-"), "application/pdf"},
    {0, ATL_BYTES("%!PS-Adobe-"), "application/postscript"},
    {0, ATL_BYTES("\xFE\xFF"), "text/plain; charset=utf-16be"},
    {0, ATL_BYTES("\xFF\xFE"), "text/plain; charset=utf-16le"},
    {0, ATL_BYTES("\xEF\xBB\xBF"), "text/plain; charset=utf-8"},
    {0, ATL_BYTES("\x00\x00\x01\x00"), "image/x-icon"},
    {0, ATL_BYTES("BM"), "image/bmp"},
    {0, ATL_BYTES("GIF87a"), "image/gif"},
    {0, ATL_BYTES("GIF89a"), "image/gif"},
    {8, ATL_BYTES("WEBPVP"), "image/webp"},
    {0, ATL_BYTES("\x89PNG\r\n\x1A\n"), "image/png"},
    {0, ATL_BYTES("\xFF\xD8\xFF"), "image/jpeg"},
    {8, ATL_BYTES("WAVE"), "audio/wave"},
    {8, ATL_BYTES("AVI "), "video/avi"},
    {0, ATL_BYTES("OggS\x00"), "application/ogg"},
    {0, ATL_BYTES("ID3"), "audio/mpeg"},
    {4, ATL_BYTES("ftyp"), "video/mp4"},
    {0, ATL_BYTES("\x1A\x45\xDF\xA3"), "video/webm"},
    {0, ATL_BYTES("\x1F\x8B\x08"), "application/x-gzip"},
    {0, ATL_BYTES("PK\x03\x04"), "application/zip"},
    {0, ATL_BYTES("\x00\x61\x73\x6D"), "application/wasm"},
    {0, ATL_BYTES("wOF2"), "font/woff2"},
    {0, ATL_BYTES("wOFF"), "font/woff"},
};
#undef ATL_BYTES

// Tags that open an HTML document; matched without case and followed by a blank or '>'.
constexpr std::array<std::string_view, 8> kHtml = {"<!doctype html", "<html",  "<head",  "<body",
                                                   "<script",        "<title", "<table", "<div"};

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

bool looks_like_html(std::string_view text) {
  return std::any_of(kHtml.begin(), kHtml.end(), [&](std::string_view tag) {
    if (text.size() <= tag.size()) return false;
    for (std::size_t i = 0; i < tag.size(); ++i) {
      if (lower(text[i]) != tag[i]) return false;
    }
    return text[tag.size()] == ' ' || text[tag.size()] == '>' || text[tag.size()] == '\n';
  });
}

bool is_binary(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) {
    const auto b = static_cast<unsigned char>(c);
    return b < 0x20 && b != '\t' && b != '\n' && b != '\r' && b != '\f' && b != 0x1b;
  });
}

}  // namespace

std::string content_type(std::string_view name, std::string_view head) {
  const std::size_t dot = name.rfind('.');
  if (dot != std::string_view::npos) {
    std::string extension(name.substr(dot + 1));
    std::transform(extension.begin(), extension.end(), extension.begin(), lower);
    for (const ByExtension& row : kExtensions) {
      if (row.extension == extension) return std::string(row.type);
    }
  }
  head = head.substr(0, kSniffBytes);
  for (const Magic& row : kMagic) {
    if (head.size() >= row.offset + row.bytes.size() &&
        head.substr(row.offset, row.bytes.size()) == row.bytes) {
      return std::string(row.type);
    }
  }
  std::string_view text = head;
  while (!text.empty() && (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r'))) {
    text.remove_prefix(1);
  }
  if (looks_like_html(text)) return "text/html; charset=utf-8";
  if (text.starts_with("<?xml")) return "text/xml; charset=utf-8";
  return is_binary(head) ? "application/octet-stream" : "text/plain; charset=utf-8";
}

}  // namespace atl::agent
