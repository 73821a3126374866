#include "wire/plain/refused_samples.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <simdjson.h>

namespace harmonics::plain {
namespace {

constexpr size_t kMostTables = 16;  // files for tables with different headers

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

uint64_t bytes_in(const std::string& folder) {
  DIR* const all = opendir(folder.c_str());
  if (!all) return 0;
  uint64_t bytes = 0;
  struct stat is {};
  while (const dirent* const entry = readdir(all))
    if (wire::is_dead_letter(entry->d_name) && fstatat(dirfd(all), entry->d_name, &is, 0) == 0 && S_ISREG(is.st_mode))
      bytes += static_cast<uint64_t>(is.st_size);
  closedir(all);
  return bytes;
}

std::string json_text(const std::string& text) {
  const bool utf8 = simdjson::validate_utf8(text);
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      json += {'\\', c};
    else if (static_cast<uint8_t>(c) < ' ')
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      json += utf8 || static_cast<uint8_t>(c) < 128 ? c : '?';
  }
  return json + '"';
}

std::string base64(std::string_view bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string now_text() {
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto milliseconds = now.time_since_epoch().count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03d}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds);
}

// Returns the text as whole lines. Joins a value over several lines into one: in JSON, line ends are white space.
std::string as_lines(Format format, std::string_view bytes) {
  std::string text(bytes);
  if (format == Format::Jsonl) std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

}  // namespace

RefusedSamples::RefusedSamples(std::string where, std::string prefix, uint64_t most_bytes)
    : where_(std::move(where)),
      folder_(folder_of(prefix)),
      name_(prefix.substr(prefix.rfind('/') + 1)),
      budget_(most_bytes, bytes_in(folder_), [this] { return bytes_in(folder_); }) {}

RefusedSamples::~RefusedSamples() {
  if (reasons_ && reasons_->file >= 0) close(reasons_->file);
  for (const auto& [key, lines] : texts_)
    if (lines.file >= 0) close(lines.file);
}

void RefusedSamples::give_up(const std::string& why) {
  given_up_ = fmt::format("refused samples are no longer kept in '{}': {}", folder_, why);
}

// Opens a file for appending. Terminates an incomplete line of a killed run.
RefusedSamples::Lines RefusedSamples::open_lines(const std::string& name) {
  Lines lines;
  lines.name = name;
  lines.file = open((folder_ + '/' + name).c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (lines.file < 0) return lines;
  char piece[65536], last = '\n';
  lines.is_new = true;
  for (ssize_t n; (n = read(lines.file, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);) {
    if (n < 0) continue;
    lines.is_new = false;
    lines.count += static_cast<uint64_t>(std::count(piece, piece + n, '\n'));
    last = piece[n - 1];
  }
  if (last != '\n') write(lines, "\n");
  return lines;
}

bool RefusedSamples::write(Lines& lines, std::string_view bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(lines.file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return give_up(std::strerror(errno)), false;
    done += static_cast<size_t>(n);
  }
  lines.count += static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  budget_.wrote(bytes.size());
  return true;
}

// Returns the file for samples of this format; null: there are too many tables, or an error was reported.
RefusedSamples::Lines* RefusedSamples::lines_of(Format format, std::string_view header) {
  const std::pair key(format, std::string(header));
  if (const auto known = texts_.find(key); known != texts_.end()) return &known->second;
  const std::string top = header.empty() ? "" : as_lines(format, header);
  for (size_t n = 1; n <= kMostTables; ++n) {
    Lines lines =
        open_lines(fmt::format("{}.refused{}.{}", name_, n == 1 ? "" : fmt::format("-{}", n), format_name(format)));
    if (lines.file < 0) return give_up(std::strerror(errno)), nullptr;
    std::string first(top.size(), '\0');
    const bool same =
        pread(lines.file, first.data(), first.size(), 0) == static_cast<ssize_t>(top.size()) && first == top;
    if (!same && !lines.is_new) {
      close(lines.file);
      continue;
    }
    if (lines.is_new && !write(lines, top)) return close(lines.file), nullptr;
    return &(texts_[key] = std::move(lines));
  }
  return nullptr;
}

void RefusedSamples::keep(const Sample& sample, const std::string& reason) {
  if (!given_up_.empty()) return;
  const bool is_text = sample.format == Format::Jsonl || sample.format == Format::Csv;
  Lines* const text = is_text && !sample.bytes.empty() ? lines_of(sample.format, sample.header) : nullptr;
  if (!given_up_.empty()) return;
  std::string entry =
      fmt::format(R"({{"time":"{}","address":{},"sender":{},"number":{},"format":"{}","reason":{})", now_text(),
                  json_text(where_), sample.sender, sample.number, format_name(sample.format), json_text(reason));
  std::string lines;
  if (text) {
    lines = as_lines(sample.format, sample.bytes);
    entry += fmt::format(R"(,"bytes":{},"file":{},"line":{}}})", sample.bytes.size(), json_text(text->name),
                         text->count + 1);
  } else if (!sample.bytes.empty()) {
    entry += fmt::format(R"(,"bytes":{},"base64":"{}"}})", sample.bytes.size(), base64(sample.bytes));
  } else {
    entry += '}';
  }
  entry += '\n';
  if (!budget_.allows(lines.size() + entry.size()))
    return give_up(fmt::format("it holds {} bytes; allow more with --dead-letters-limit", budget_.held()));
  if (!reasons_) reasons_ = open_lines(name_ + ".reasons.jsonl");
  if (reasons_->file < 0) return give_up(std::strerror(errno));
  if (!text || write(*text, lines)) write(*reasons_, entry);
}

}  // namespace harmonics::plain
