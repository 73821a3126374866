#include "formats/npy.hpp"
#include "producers/file/formats.hpp"

#include <algorithm>
#include <cstring>

#include "formats/zip.hpp"
#include "producers/file/frames.hpp"
#include "producers/file/idx.hpp"
#include "producers/file/image.hpp"
#include "producers/file/jsonl.hpp"
#include "producers/file/near_name.hpp"
#include "producers/file/npy.hpp"
#include "producers/file/npz.hpp"
#include "producers/file/part.hpp"
#include "producers/file/safetensors.hpp"

namespace harmonics {
namespace {

std::shared_ptr<Producer> array_producer(ArrayLayout layout, const FileOptions& options) {
  const auto [first, last] = part_of(options.part, layout.count, layout.bytes->name());
  return std::make_shared<ArrayProducer>(std::move(layout), first, last);
}

bool looks_like_picture(const uint8_t* data, size_t size) {
  return looks_like_png(data, size) || looks_like_jpeg(data, size);
}

// Starts with the header's length in 8 bytes, then an object: 0x7B is '{'.
bool looks_like_safetensors(const uint8_t* data, size_t size) {
  return size >= 10 && data[8] == '{' && data[9] == '"' && data[5] == 0 && data[6] == 0 && data[7] == 0;
}

// Any text may start like this; used only if the extension is unknown.
bool looks_like_json(const uint8_t* data, size_t size) {
  size_t at = 0;
  while (at < size && std::strchr(" \t\r\n", data[at]) && data[at]) ++at;
  if (at == size || data[at] != '{') return false;
  for (++at; at < size && data[at] && std::strchr(" \t", data[at]);) ++at;
  return at < size && data[at] == '"';
}

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

const FileFormat* named(const std::string& name) {
  for (const FileFormat& format : file_formats())
    if (name == format.name) return &format;
  return nullptr;
}

// .bin is ambiguous, so the options decide.
const FileFormat* format_of_numbers(const std::string& name, const FileOptions& options) {
  if (!ends_with(name, ".bin")) return nullptr;
  if (options.has("window") || options.has("vocab")) return named("tokens");
  if (options.has("dtype") || options.has("shape")) return named("raw");
  return nullptr;
}

std::string without_packing(std::string name) {
  for (const char* packing : {".gz", ".zst"})
    if (ends_with(name, packing)) name.resize(name.size() - std::strlen(packing));
  return name;
}

void add_word(FileOptions& options, const std::string& word) { options.table.symbols.push_back(word); }
void add_character(FileOptions& options, const std::string& character) { options.text.vocabulary += character; }

}  // namespace

const std::vector<FileFormat>& file_formats() {
  using Options = const FileOptions&;
  using Bytes = const FileBytesPtr&;
  static const std::vector<FileFormat> rows = {
      {"npy",
       {".npy"},
       {"part"},
       looks_like_npy,
       [](Bytes f, Options o) { return array_producer(read_npy(f), o); },
       nullptr},
      {"npz",
       {".npz"},
       {"part", "#"},
       looks_like_zip,
       [](Bytes f, Options o) { return array_producer(read_npz(f, o.selection), o); },
       nullptr},
      {"idx",
       {".idx", "-ubyte"},
       {"part"},
       looks_like_idx,
       [](Bytes f, Options o) { return array_producer(read_idx(f), o); },
       nullptr},
      {"image",
       {".png", ".jpg", ".jpeg"},
       {"part", "resize", "channels", "symbols", "#"},
       looks_like_picture,
       [](Bytes f, Options o) {
         return open_images(f->name(), {{f->name()}, {}, {}}, o.images);
       },
       nullptr},
      {"safetensors",
       {".safetensors"},
       {"part", "#"},
       looks_like_safetensors,
       [](Bytes f, Options o) { return array_producer(read_safetensors_array(f, o.selection), o); },
       nullptr},
      {"hxs",
       {".hxs"},
       {"part", "#"},
       looks_like_frames,
       [](Bytes f, Options o) { return open_frames(f, o.selection, o.part); },
       nullptr},
      {"jsonl",
       {".jsonl", ".ndjson"},
       {"part", "missing", "as", "symbols", "dtype", "shape", "#"},
       nullptr,
       [](Bytes f, Options o) { return open_table(json_rows(f, o.table), o.table); },
       add_word},
      {"csv",
       {".csv", ".tsv"},
       {"part", "header", "delimiter", "missing", "as", "symbols", "dtype", "shape", "#"},
       nullptr,
       [](Bytes f, Options o) { return open_table(csv_rows(f, o.table), o.table); },
       add_word},
      {"text",
       {".txt", ".text", ".md"},
       {"part", "vocabulary", "window", "shift"},
       nullptr,
       [](Bytes f, Options o) { return read_text(f, o.text); },
       add_character},
      {"tokens",
       {".tokens"},
       {"part", "window", "shift", "vocab", "dtype"},
       nullptr,
       [](Bytes f, Options o) { return read_tokens(f, o.tokens); },
       nullptr},
      {"raw",
       {".raw"},
       {"part", "dtype", "shape", "offset"},
       nullptr,
       [](Bytes f, Options o) { return array_producer(read_raw(f, o.raw), o); },
       nullptr},
  };
  return rows;
}

namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const FileFormat& format : file_formats()) names.emplace_back(format.name);
  return names;
}

// Files of other programs, by their first bytes.
struct OtherFormat {
  std::string_view begin;
  const char *what, *remedy;
};
constexpr const char* kToPng = "convert it to PNG or JPEG";
constexpr OtherFormat kOtherFormats[] = {
    {"GIF8", "is a GIF image", kToPng},
    {"BM", "may be a BMP image", kToPng},
    {std::string_view("II*\0", 4), "is a TIFF image", kToPng},
    {std::string_view("MM\0*", 4), "is a TIFF image", kToPng},
    {"RIFF", "may be a WebP image or a sound", kToPng},
    {"PAR1", "is a Parquet file", "write it as CSV: pandas.read_parquet(FILE).to_csv('table.csv', index=False)"},
    {"\x89HDF\r\n", "is an HDF5 file", "save its arrays: numpy.save('x.npy', h5py.File(FILE)['x'])"},
    {std::string_view("\x80\x04", 2), "may be a pickle, which can run any program",
     "save its arrays with numpy.save, or its weights with safetensors"},
};

}  // namespace

std::string all_formats() {
  const std::vector<std::string> names = format_names();
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

const FileFormat* format_of_name(const std::string& name) {
  const std::string bare = without_packing(name);
  for (const FileFormat& format : file_formats())
    for (const char* ending : format.endings)
      if (ends_with(bare, ending)) return &format;
  return nullptr;
}

const FileFormat& format_of(const FileBytes& file, const FileOptions& options) {
  if (!options.format.empty()) {
    if (const FileFormat* asked = named(options.format)) return *asked;
    throw Error(ErrorKind::Usage, "format=" + options.format + " is unknown; write format=" + all_formats() +
                                      meant_name(options.format, format_names()));
  }
  for (const FileFormat& format : file_formats())
    if (format.begins && format.begins(file.data(), file.size())) return format;
  if (const FileFormat* by_name = format_of_name(file.name())) return *by_name;
  if (const FileFormat* by_options = format_of_numbers(without_packing(file.name()), options)) return *by_options;
  if (looks_like_json(file.data(), file.size())) return *named("jsonl");
  if (ends_with(without_packing(file.name()), ".bin"))
    refuse_file(file.name(), "may hold tokens or raw numbers",
                "for tokens give window= (and vocab=), for raw numbers dtype= and shape=");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  for (const OtherFormat& other : kOtherFormats)
    if (bytes.starts_with(other.begin)) refuse_file(file.name(), other.what, other.remedy);
  refuse_file(file.name(), "has no known format, by its first bytes or its extension", "add format=" + all_formats());
}

void check_options(const std::string& name, const FileFormat& format, const FileOptions& options) {
  for (const std::string& given : options.given) {
    if (given == "format" || given == "memory" || given == "learned" ||
        std::any_of(format.options.begin(), format.options.end(), [&](const char* o) { return given == o; }))
      continue;
    if (given == "#")
      throw Error(ErrorKind::Usage, "'" + name + "' is " + format.name + ", which has no columns to select with '#" +
                                        *options.selection + "'; leave it out");
    throw Error(ErrorKind::Usage, "the option " + given + "= has no effect for '" + name + "', which is " +
                                      format.name + "; leave it out");
  }
}

}  // namespace harmonics
