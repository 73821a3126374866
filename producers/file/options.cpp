#include "producers/file/options.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "producers/file/formats.hpp"
#include "producers/live_bytes.hpp"
#include "wire/plain/selection.hpp"

namespace harmonics {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

bool is_character(const std::string& symbol) {
  return std::count_if(symbol.begin(), symbol.end(), [](char c) { return (c & 0xC0) != 0x80; }) == 1;
}

uint64_t whole(const Arguments& given, const char* name, int64_t least, const char* of_what) {
  if (!given.has(name)) return 0;
  const int64_t value = given.integer(name);
  if (value < least)
    throw Error(ErrorKind::Usage, std::string(name) + "=" + std::to_string(value) + " is not a number of " + of_what +
                                      "; the minimum is " + std::to_string(least));
  return static_cast<uint64_t>(value);
}

// Parses "512M": bytes, by powers of 1024.
uint64_t memory_named(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit == "T" ? 40 : -1;
  if (error != std::errc() || value == 0 || shift < 0 || value > (uint64_t{1} << 60 >> shift))
    throw Error(ErrorKind::Usage, "memory=" + text + " is not a number of bytes; write a memory limit, such as " +
                                      "memory=512M or memory=8G");
  return value << shift;
}

}  // namespace

FileOptions::FileOptions(const Arguments& a) : format(a.text("format")), part(a.text("part")) {
  for (const Argument& option : options_of_files())
    if (a.has(option.name.c_str()) && !(option.type == HX_ARG_STRING && a.text(option.name.c_str()).empty()))
      given.push_back(option.name);
  if (a.has("#")) {
    selection = a.text("#");
    given.push_back("#");
  }
  if (format == "auto") format.clear();
  table.header = a.text("header", "auto");
  table.delimiter = a.text("delimiter", "auto");
  table.as = a.text("as", "auto");
  table.indices = a.text("use") == "lookup";
  for (std::string* word : {&table.header, &table.delimiter, &table.as})
    if (word->empty()) *word = "auto";
  if (has("missing")) table.missing = a.text("missing");
  table.symbols = images.symbols = words(a.text("symbols"));
  table.selection = images.selection = selection;
  table.part = text.windows.part = tokens.windows.part = images.part = part;
  text.vocabulary = a.text("vocabulary");
  const std::string learned = a.text("learned");
  if (!learned.empty() && !has("symbols") && !has("vocabulary")) {
    table.symbols = images.symbols = plain::read_learned(learned);
    table.learned = images.learned = true;
    text.learned = std::all_of(table.symbols.begin(), table.symbols.end(), is_character);
    for (const std::string& symbol : table.symbols) text.vocabulary += text.learned ? symbol : "";
  }
  text.windows.window = tokens.windows.window = whole(a, "window", 1, "symbols");
  text.windows.shift = tokens.windows.shift = whole(a, "shift", 1, "symbols");
  tokens.vocab = whole(a, "vocab", 1, "tokens");
  tokens.dtype = raw.dtype = table.dtype = a.text("dtype");
  raw.shape = table.shape = a.text("shape");
  raw.offset = whole(a, "offset", 0, "bytes");
  images.resize = a.text("resize");
  if (has("memory")) memory = images.memory = memory_named(a.text("memory"));
  images.channels = whole(a, "channels", 1, "channels");
}

std::vector<Argument> file_options() {
  std::vector<Argument> all = options_of_files(), live = live_file_options();
  all.insert(all.end(), live.begin(), live.end());
  return all;
}

bool FileOptions::has(const std::string& name) const {
  return std::find(given.begin(), given.end(), name) != given.end();
}

std::vector<Argument> options_of_files() {
  return {
      Argument::text("format", "",
                     all_formats() + "; of pipes also msgpack; default: detected from content and extension"),
      Argument::text(
          "memory", "",
          "limit for decompressed and decoded content, such as 8G; default: 256M plus 64 bytes per byte of the file"),
      Argument::text(
          "part", "",
          "a fraction of the samples, such as 0-0.9; of text and tokens, of the symbols; of several files, of each"),
      Argument::text("header", "", "csv: true or false; default: detected from the first rows"),
      Argument::text("delimiter", "", "csv: the separator character, or tab"),
      Argument::text(
          "missing", "",
          "csv, jsonl: replacement for missing cells: a value, mean (of the column) or nan; default: they are refused"),
      Argument::text("as", "", "csv, jsonl, one column: number or class; default: integers and words are classes"),
      Argument::text("symbols", "", "csv, jsonl, image: the class words in order: a,b,c; default: sorted"),
      Argument::text("vocabulary", "", "text: its characters in order; default: those of the file, sorted"),
      Argument::text("learned", "",
                     "the words or characters known to the weights, a JSON array; set by --weights and --resume "
                     "where symbols= and vocabulary= are not given"),
      Argument::integer("window", "text, tokens: symbols in a sample"),
      Argument::integer("shift", "text, tokens: distance between window starts; default: the window"),
      Argument::integer("vocab", "tokens: vocabulary size; default: the largest token plus one"),
      Argument::text(
          "dtype", "",
          "raw: the type of its numbers, such as f32; csv, jsonl: f32, u8, i8, u16, i16 or i32; tokens: u16 or u32"),
      Argument::text("shape", "",
                     "raw, csv, jsonl: the shape of a sample, such as 28x28; default: single numbers, or a row's"),
      Argument::integer("offset", "raw: bytes before the first sample"),
      Argument::text("resize", "", "image: resize all pictures to this height and width, such as 28x28"),
      Argument::integer("channels", "image: 1 grey, 3 colours; default: as the first picture")};
}

}  // namespace harmonics
