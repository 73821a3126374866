#include "producers/file/open.hpp"

#include <algorithm>
#include <cstring>

#include "producers/file/csv.hpp"
#include "producers/file/idx.hpp"
#include "producers/file/npy.hpp"
#include "producers/file/part.hpp"
#include "producers/file/text.hpp"

namespace harmonics {
namespace {

enum class Format { Idx, Npy, Csv, Text };
struct FormatRow {
  Format format;
  const char* name;
  std::vector<const char*> endings;
  std::vector<const char*> options;  // that mean something for it, beside format
};
const std::vector<FormatRow>& formats() {
  static const std::vector<FormatRow> rows = {
      {Format::Idx, "idx", {".idx", "-ubyte", "-idx1-ubyte", "-idx3-ubyte"}, {"part"}},
      {Format::Npy, "npy", {".npy"}, {"part"}},
      {Format::Csv, "csv", {".csv", ".tsv"}, {"part", "header", "delimiter", "missing", "as", "symbols", "#"}},
      {Format::Text, "text", {".txt", ".text", ".md"}, {"part", "vocabulary", "window", "shift"}},
  };
  return rows;
}

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

const FormatRow& row_of(Format format) {
  return *std::find_if(formats().begin(), formats().end(), [&](const FormatRow& r) { return r.format == format; });
}

const FormatRow& format_of(const FileBytes& file, const std::string& asked) {
  for (const FormatRow& row : formats())
    if (asked == row.name) return row;
  if (!asked.empty() && asked != "auto")
    throw Error(ErrorKind::Usage, "format=" + asked + " is unknown; write format=idx, npy, csv or text");
  if (looks_like_npy(file.data(), file.size())) return row_of(Format::Npy);
  if (looks_like_idx(file.data(), file.size())) return row_of(Format::Idx);
  if (file.size() >= 4 && std::memcmp(file.data(), "PK\x03\x04", 4) == 0)
    refuse_file(file.name(), "is a zip archive (perhaps NPZ), which cannot be read",
                "unpack it and give one of its files");
  std::string name = file.name();
  if (ends_with(name, ".gz")) name.resize(name.size() - 3);
  for (const FormatRow& row : formats())
    for (const char* ending : row.endings)
      if (ends_with(name, ending)) return row;
  refuse_file(file.name(), "does not show what it holds, by its first bytes or its ending",
              "add format=idx, npy, csv or text");
}

// An option that means nothing for this format is a mistake, not decoration.
void check_options(const FileBytes& file, const FormatRow& row, const Arguments& options) {
  for (const FormatRow& other : formats())
    for (const char* option : other.options) {
      const bool known = std::any_of(row.options.begin(), row.options.end(),
                                     [&](const char* o) { return std::strcmp(o, option) == 0; });
      if (known || !options.has(option)) continue;
      if (std::strcmp(option, "#") == 0)
        throw Error(ErrorKind::Usage, "'" + file.name() + "' is " + row.name +
                                          ", which has no columns to select with '#" + options.text("#") +
                                          "'; leave it out");
      throw Error(ErrorKind::Usage, std::string("the option ") + option + "= means nothing for '" + file.name() +
                                        "', which is " + row.name + "; leave it out");
    }
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

CsvOptions csv_options(const Arguments& options) {
  CsvOptions csv;
  csv.header = options.text("header", "auto");
  csv.delimiter = options.text("delimiter", "auto");
  csv.as = options.text("as", "auto");
  if (options.has("missing")) csv.missing = options.text("missing");
  csv.symbols = words(options.text("symbols"));
  if (options.has("#")) csv.selection = options.text("#");
  return csv;
}

uint64_t length_option(const Arguments& options, const char* name) {
  if (!options.has(name)) return 0;
  const int64_t value = options.integer(name);
  if (value < 1)
    throw Error(ErrorKind::Usage,
                std::string(name) + "=" + std::to_string(value) + " is no number of characters; the least is 1");
  return static_cast<uint64_t>(value);
}

TextOptions text_options(const Arguments& options) {
  return {options.text("vocabulary"), length_option(options, "window"), length_option(options, "shift"),
          options.text("part")};
}

std::shared_ptr<Producer> array_producer(ArrayLayout layout, const Arguments& options) {
  const auto [first, last] = part_of(options.text("part"), layout.count, layout.bytes->name());
  return std::make_shared<ArrayProducer>(std::move(layout), first, last);
}

}  // namespace

std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& options) {
  FileBytesPtr file = FileBytes::open(path);
  if (is_gzip(*file)) file = gunzip(file);
  const FormatRow& row = format_of(*file, options.text("format"));
  check_options(*file, row, options);
  switch (row.format) {
    case Format::Idx:
      return array_producer(read_idx(file), options);
    case Format::Npy:
      return array_producer(read_npy(file), options);
    case Format::Csv:
      return array_producer(read_csv(file, csv_options(options)), options);
    case Format::Text:
      return std::make_shared<TextProducer>(file, text_options(options));
  }
  throw Error(ErrorKind::Internal, "a file format has no reader");
}

std::vector<Argument> file_options() {
  return {Argument::text("format", "", "idx, npy, csv or text; else told by content and ending"),
          Argument::text("part", "", "a fraction of the samples, such as 0-0.9; of a text, of its characters"),
          Argument::text("header", "", "csv: true or false; else told by the first rows"),
          Argument::text("delimiter", "", "csv: the character between cells, or tab"),
          Argument::text("missing", "", "csv: the value that stands in for missing cells"),
          Argument::text("as", "", "csv, one column: number or class; else integers and words are classes"),
          Argument::text("symbols", "", "csv, one column of words: the classes in order, a,b,c; else sorted"),
          Argument::text("vocabulary", "", "text: its characters in order; else those of the file, sorted"),
          Argument::integer("window", "text: characters in a sample"),
          Argument::integer("shift", "text: from one window's beginning to the next one's; else the window")};
}

}  // namespace harmonics
