#include "engine/corpus/example_files.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/philox.hpp>

#include "engine/base/file.hpp"
#include "engine/corpus/packed_text.hpp"
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kLongestLine = size_t{64} << 20, kLongestList = size_t{1} << 30;
constexpr size_t kTextPiece = size_t{1} << 20;  // target size of a piece of text for one call of the tokenizer

enum class Written { text, lines, list };

bool has_ending(const std::string& path, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return path.ends_with(ending); });
}

[[noreturn]] void refuse_lines(const std::string& path, const std::string& what, const std::string& remedy = "") {
  Error e(ErrorKind::Stream, fmt::format("'{}' {}", path, what));
  if (!remedy.empty()) e.note(remedy);
  throw e;
}

Written written_as(const std::string& name, std::string_view bytes) {
  if (is_packed(bytes)) refuse_lines(name, "is compressed twice", "decompress it first");
  const std::string path = name_unpacked(name);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const char c = first == std::string_view::npos ? ' ' : bytes[first];
  if (has_ending(path, {".jsonl", ".ndjson"})) return Written::lines;
  if (has_ending(path, {".json"})) return c == '[' ? Written::list : Written::lines;
  if (has_ending(path, {".txt", ".text", ".md"})) return Written::text;
  const size_t second = c == '{' ? bytes.find_first_not_of(" \t", first + 1) : std::string_view::npos;
  return second != std::string_view::npos && bytes[second] == '"' ? Written::lines : Written::text;
}

bool is_held_out(std::string_view example, double share) {
  const uint64_t hash = splitmix64(stream_of(example.data(), example.size()));
  return static_cast<double>(hash >> 11) * 0x1p-53 < share;
}

// Reads the examples of one file from its bytes.
class ExampleFile {
 public:
  ExampleFile(const ExampleFileOptions& options, const ExampleFormat& format, const std::string& path,
              std::optional<ExampleKind>& kind, ExampleCounts& counts, const std::function<void(TextExample)>& take)
      : options_(options), format_(format), path_(path), kind_(kind), counts_(counts), take_(take) {}

  void read(std::string_view bytes) {
    if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
    switch (written_as(path_, bytes)) {
      case Written::text:
        return read_text(bytes);
      case Written::lines:
        return read_lines(bytes);
      case Written::list:
        return read_list(bytes);
    }
  }

 private:
  void read_text(std::string_view text) {
    if (options_.kind != ExampleKind::text && options_.kind != ExampleKind::automatic)
      refuse_lines(path_, "is plain text, not a list of examples", "write JSON lines, or type: text");
    if (const auto bad = find_invalid_utf8(text))
      refuse_lines(path_, fmt::format("is not UTF-8 at byte {}", *bad), "convert it to UTF-8");
    size_t cut = text.size() - static_cast<size_t>(static_cast<double>(text.size()) * options_.validation);
    while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;
    text = options_.held_out ? text.substr(cut) : text.substr(0, cut);
    if (text.empty()) return;
    ++counts_.examples;
    for (bool first = true; !text.empty(); first = false) {
      const size_t end = piece_end(text);
      TextExample piece = ExampleFormat::of_text(std::string(text.substr(0, end)));
      text.remove_prefix(end);
      piece.begin = first;
      piece.end = text.empty();
      piece.continues = !text.empty();
      take_(std::move(piece));
    }
  }

  // Returns where to cut the text: after a line break and before a character that is not white space, so that no word
  // crosses the cut.
  static size_t piece_end(std::string_view text) {
    if (text.size() <= kTextPiece) return text.size();
    for (size_t at = kTextPiece; at < text.size(); ++at)
      if (text[at - 1] == '\n' && text[at] != ' ' && text[at] != '\t' && text[at] != '\n' && text[at] != '\r')
        return at;
    return text.size();
  }

  void read_lines(std::string_view text) {
    for (size_t line = 1; !text.empty(); ++line) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view one = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string place = fmt::format("line {} ", line);
      if (one.size() > kLongestLine)
        refuse_lines(path_, place + fmt::format("is {} bytes long, the maximum is {}", one.size(), kLongestLine));
      json::error_code failed;
      const json::value value = parse_json(one, failed);
      if (failed)
        malformed(place + "is not JSON: " + failed.message());
      else
        take_value(value, place, one);
    }
  }

  void read_list(std::string_view text) {
    if (text.size() > kLongestList)
      refuse_lines(path_, fmt::format("is a list of {} bytes; the maximum is {}", text.size(), kLongestList),
                   "write JSON lines, which are read one by one");
    json::error_code failed;
    const json::value list = parse_json(text, failed);
    if (failed) refuse_lines(path_, "is not JSON: " + failed.message());
    size_t number = 0;
    for (const json::value& one : list.as_array())
      take_value(one, fmt::format("example {} ", ++number), json::serialize(one));
  }

  void take_value(const json::value& value, const std::string& place, std::string_view written) {
    if (is_held_out(written, options_.validation) != options_.held_out) {
      ++counts_.others;
      return;
    }
    try {
      if (!kind_) kind_ = format_.kind_of(value);
      if (*kind_ == ExampleKind::preference) {
        auto [chosen, rejected] = format_.read_pair(value);
        ++counts_.examples;
        take_(std::move(chosen));
        return take_(std::move(rejected));
      }
      TextExample example = format_.read(value, *kind_);
      ++counts_.examples;
      take_(std::move(example));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Stream && e.kind() != ErrorKind::Usage) throw;
      malformed(place + (e.kind() == ErrorKind::Usage ? std::string("is refused: ") : "") + e.what());
    }
  }

  void malformed(const std::string& what) {
    if (!options_.skip_malformed)
      refuse_lines(path_, what,
                   "correct it, or leave such lines out: malformed=skip (for train: skip_malformed: true)");
    if (counts_.malformed++ == 0) counts_.first_malformed = fmt::format("'{}' {}", path_, what);
  }

  const ExampleFileOptions& options_;
  const ExampleFormat& format_;
  const std::string& path_;
  std::optional<ExampleKind>& kind_;
  ExampleCounts& counts_;
  const std::function<void(TextExample)>& take_;
};

std::string_view text_in(const MappedFile& file) { return {static_cast<const char*>(file.data()), file.bytes()}; }

// Calls `read` with the decompressed text of a file.
void with_text(const std::string& path, const std::function<void(std::string_view)>& read) {
  auto file = MappedFile::open(path);
  if (is_packed(text_in(*file))) file = read_whole(*file, [&] { return unpacked_file(text_in(*file), path); });
  read_whole(*file, [&] { return read(text_in(*file)), 0; });
}

}  // namespace

std::vector<std::string> example_files(const std::string& path) {
  std::vector<std::string> paths;
  std::error_code failed;
  if (fs::is_directory(path, failed)) {
    for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed))
      if (has_ending(name_unpacked(at->path().string()), {".txt", ".text", ".md", ".jsonl", ".ndjson", ".json"}))
        paths.push_back(at->path().string());
  } else if (fs::exists(path, failed) || path.find_first_of("*?[") == std::string::npos) {
    return {path};
  } else {
    glob_t found{};
    if (::glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
  }
  if (paths.empty())
    throw Error(
        ErrorKind::NoInput, fmt::format("there are no files of examples at '{}'", path), {},
        {"of a folder, files that end with .txt, .text, .md, .jsonl, .ndjson or .json count, also compressed ones"});
  std::sort(paths.begin(), paths.end());
  return paths;
}

ExampleCounts read_examples(const ExampleFileOptions& options, const ExampleFormat& format,
                            const std::function<void(TextExample)>& take) {
  ExampleCounts counts;
  std::optional<ExampleKind> kind;
  for (const std::string& path : example_files(options.path)) {
    with_text(path, [&](std::string_view text) { ExampleFile(options, format, path, kind, counts, take).read(text); });
  }
  counts.kind = kind;
  return counts;
}

std::u32string characters_of_files(const std::string& path) {
  std::vector<bool> seen(0x110000);
  for (const std::string& one : example_files(path)) {
    with_text(one, [&](std::string_view text) {
      if (written_as(one, text) != Written::text)
        refuse_lines(one, "holds examples, but characters are counted in plain text", "give a tokenizer file");
      if (const auto bad = find_invalid_utf8(text))
        refuse_lines(one, fmt::format("is not UTF-8 at byte {}", *bad), "convert it to UTF-8");
      for (size_t at = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        seen[point.value] = true;
        at += point.length;
      }
    });
  }
  std::u32string characters;
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) characters += c;
  return characters;
}

}  // namespace harmonics::engine
