#include <cstring>

#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

constexpr struct {
  Format format;
  const char* name;
} kNames[] = {{Format::Jsonl, "jsonl"},
              {Format::Csv, "csv"},
              {Format::Msgpack, "msgpack"},
              {Format::Npy, "npy"},
              {Format::Raw, "raw"}};

constexpr size_t kMostFirstLine = 64u << 10;

std::string_view text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Detects a map whose first key is a short text. No text file begins like this.
bool begins_msgpack_map(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t key = byte(0) == 0xde ? 3 : byte(0) == 0xdf ? 5 : (byte(0) & 0xf0) == 0x80 ? 1 : 0;
  return key > 0 && text.size() > key && ((byte(key) & 0xe0) == 0xa0 || byte(key) == 0xd9 || byte(key) == 0xc4);
}

}  // namespace

const char* format_name(Format format) {
  for (const auto& row : kNames)
    if (row.format == format) return row.name;
  return "";
}

std::optional<Format> format_named(const std::string& name) {
  for (const auto& row : kNames)
    if (name == row.name) return row.format;
  if (name == "json" || name == "ndjson") return Format::Jsonl;
  return std::nullopt;
}

std::optional<Format> format_of_first(std::span<const std::byte> bytes, bool ended) {
  std::string_view text = text_of_bytes(bytes);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  const size_t blank = text.find_first_not_of(" \t\r\n");
  if (blank == std::string_view::npos) return std::nullopt;
  if (text[blank] == '{' || text[blank] == '[') return Format::Jsonl;
  if (text.substr(0, 6) == std::string_view("\x93NUMPY", 6)) return Format::Npy;
  if (begins_msgpack_map(text)) return Format::Msgpack;
  // Detects a line of text that contains a delimiter.
  const size_t end = text.find('\n', blank);
  if (end == std::string_view::npos && !ended && text.size() < kMostFirstLine) return std::nullopt;
  const std::string_view line = text.substr(blank, end == std::string_view::npos ? end : end - blank);
  for (const char c : line)
    if (static_cast<uint8_t>(c) < ' ' && c != '\t' && c != '\r') return std::nullopt;
  if (line.find_first_of(",;\t|") != std::string_view::npos) return Format::Csv;
  return std::nullopt;
}

std::string shown_first(std::span<const std::byte> bytes) {
  std::string shown;
  for (const std::byte b : bytes.first(std::min<size_t>(16, bytes.size()))) {
    const char c = static_cast<char>(b);
    if (c == '\n') break;
    if (c >= ' ' && c < 127) {
      shown += c;
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(b));
      shown += code;
    }
  }
  return shown;
}

std::unique_ptr<RecordDecoder> make_decoder(Format format, const DecoderOptions& options) {
  switch (format) {
    case Format::Jsonl:
      return make_json_decoder(options);
    case Format::Csv:
      return make_csv_decoder(options);
    case Format::Msgpack:
      return make_msgpack_decoder(options);
    case Format::Npy:
      return make_npy_decoder(options);
    case Format::Raw:
      break;
  }
  return make_raw_decoder(options);
}

}  // namespace harmonics::plain
