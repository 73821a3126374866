// Importers, which describe models in files of other programs, and tokenizers. An extension of the contract that may
// still change (importer_abi.h). plugin.hpp does not include this header.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <harmonics/function.hpp>
#include <harmonics/importer_abi.h>

namespace harmonics {

// The beginning of a file, valid during the call.
struct FileStart {
  std::string name;        // without folders
  std::string_view first;  // the first bytes: the whole file, or at least 64 KiB
  uint64_t size = 0;       // of the file
};

// The value of one key. Lists of texts are views of the file's bytes, or of memory owned by ModelDescription::keep.
using MetadataValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                                   std::vector<std::string_view>>;
using MetadataMap = std::map<std::string, MetadataValue>;

// The location of a tensor in a file: dense, row-major, little-endian.
struct TensorInFile {
  std::string name;  // as in GGUF: "blk.0.attn_q.weight"
  DType dtype = DType::F32;
  Shape shape;
  uint64_t offset = 0;
  uint64_t bytes = 0;       // exactly the size of the shape
  uint32_t file = 0;        // 0: the source; else an index of ImportSource::beside() or memory()
  std::string origin = {};  // its name in the file, for messages; "": the same
};

// The model in a file. Keys of the metadata are those of GGUF.
struct ModelDescription {
  MetadataMap metadata;
  std::vector<TensorInFile> tensors;
  std::shared_ptr<const void> keep = {};  // released after the host has read the description
};

// The file to import, mapped by the host. Valid during the call.
class ImportSource {
 public:
  explicit ImportSource(const hx_import_source* source) : source_(source) {}
  std::string path() const { return source_->path; }  // for messages
  std::string_view bytes() const { return {static_cast<const char*>(source_->data), source_->bytes}; }

  struct File {
    uint32_t index = 0;  // for TensorInFile::file
    std::string_view bytes;
  };
  // Maps another file of the same folder; `name` has no folders.
  HARMONICS_FACE File beside(const std::string& name) const {
    File file;
    const void* data = nullptr;
    uint64_t bytes = 0;
    detail::check(source_->open_beside(source_->host, name.c_str(), &file.index, &data, &bytes));
    file.bytes = {static_cast<const char*>(data), bytes};
    return file;
  }
  struct Memory {
    uint32_t index = 0;  // for TensorInFile::file
    char* data = nullptr;
  };
  // Allocates zeroed memory of the host for converted tensors, to be filled during open.
  HARMONICS_FACE Memory memory(uint64_t bytes) const {
    if (source_->struct_size < sizeof *source_)
      throw Error(ErrorKind::Plugin, "this importer needs a newer version of the program");
    Memory result;
    void* data = nullptr;
    detail::check(source_->open_memory(source_->host, bytes, &result.index, &data));
    result.data = static_cast<char*>(data);
    return result;
  }

 private:
  const hx_import_source* source_;
};

// Called from any thread, also concurrently.
class Importer {
 public:
  // Returns how well it reads the file: HX_PROBE_NO .. HX_PROBE_CERTAIN.
  virtual uint32_t probe(const FileStart& file) const = 0;
  // Describes the model. Throws ErrorKind::Weights for a malformed file, with its path and the offset.
  virtual ModelDescription open(const ImportSource& source, const Arguments& options) const = 0;
  virtual ~Importer() = default;
};

struct TextTokenizerInfo {
  uint64_t tokens = 0;                                     // ids are 0 .. tokens-1
  int64_t bos = -1, eos = -1, unknown = -1, padding = -1;  // -1: none
  uint64_t longest = 0;                                    // bytes of the longest token; 0: unknown
};

// A tokenizer: a vocabulary with its rules. Called from any thread, also concurrently.
class TextTokenizer {
 public:
  virtual TextTokenizerInfo info() const = 0;
  virtual std::vector<int32_t> encode(std::string_view text, uint32_t flags) const = 0;  // HX_ENCODE_...
  // Returns the bytes of one token after the token `previous` (-1: none); they may be part of a character.
  // HX_DECODE_WRITTEN: decodes special tokens to their text.
  virtual std::string decode(int32_t id, int32_t previous) const = 0;
  virtual ~TextTokenizer() = default;
};

// The file of a tokenizer, or a part of a model's file. Valid during the call.
class TokenizerSource {
 public:
  explicit TokenizerSource(const hx_tokenizer_source* source) : source_(source) {}
  std::string path() const { return source_->path; }  // for messages
  std::string_view bytes() const { return {static_cast<const char*>(source_->data), source_->bytes}; }
  Arguments metadata() const { return Arguments(source_->metadata); }  // of the model, by key
  // Maps another file of the same folder; `name` has no folders. Throws ErrorKind::NoInput if there is none.
  HARMONICS_FACE std::string_view beside(const std::string& name) const {
    if (source_->struct_size < sizeof *source_ || !source_->open_beside)
      throw Error(ErrorKind::NoInput, "'" + path() + "' is not in a folder that '" + name + "' can be read from");
    const void* data = nullptr;
    uint64_t bytes = 0;
    detail::check(source_->open_beside(source_->host, name.c_str(), &data, &bytes));
    return {static_cast<const char*>(data), bytes};
  }

 private:
  const hx_tokenizer_source* source_;
};

// Reads the files of one kind of tokenizer. Called from any thread, also concurrently.
class TokenizerFormat {
 public:
  virtual uint32_t probe(const FileStart& file) const = 0;
  virtual std::unique_ptr<TextTokenizer> open(const TokenizerSource& source, const Arguments& options) const = 0;
  virtual ~TokenizerFormat() = default;
};

namespace detail {

HARMONICS_FACE inline FileStart file_start(const hx_file_start* file) {
  return {file->name, {static_cast<const char*>(file->first), file->n_first}, file->size};
}

// A description for the host, with the objects that its pointers refer to.
struct HeldModel : hx_imported_model {
  ModelDescription description;
  std::vector<hx_imported_tensor> all;
  Attributes metadata;
  std::vector<hx_attribute> items;  // of metadata
};
HARMONICS_FACE inline std::unique_ptr<HeldModel> held_model(ModelDescription description) {
  auto held = std::make_unique<HeldModel>();
  held->description = std::move(description);
  for (const TensorInFile& t : held->description.tensors)
    held->all.push_back({sizeof(hx_imported_tensor), t.file, t.name.c_str(), make_type(t.dtype, t.shape), t.offset,
                         t.bytes, t.origin.empty() ? nullptr : t.origin.c_str()});
  for (const auto& [key, value] : held->description.metadata)
    std::visit([&, name = key.c_str()](const auto& v) { held->metadata.set(name, v); }, value);
  static_cast<hx_imported_model&>(*held) = {sizeof(hx_imported_model), static_cast<uint32_t>(held->all.size()),
                                            held->all.data(), held->metadata.view(held->items)};
  return held;
}

HARMONICS_FACE inline const hx_importer_vt* importer_vt() {
  static const hx_importer_vt vt = {
      sizeof(hx_importer_vt),
      [](void* self, const hx_file_start* file, uint32_t* score) {
        return guarded([&] { return *score = object<Importer>(self).probe(file_start(file)), HX_OK; });
      },
      [](void* self, const hx_import_source* source, const hx_attributes* options, const hx_imported_model** out) {
        return guarded([&] {
          *out = held_model(object<Importer>(self).open(ImportSource(source), Arguments(options))).release();
          return HX_OK;
        });
      },
      [](void*, const hx_imported_model* model) { delete static_cast<const HeldModel*>(model); }, destroy<Importer>};
  return &vt;
}

HARMONICS_FACE inline const hx_tokenizer_vt* tokenizer_vt() {
  static const hx_tokenizer_vt vt = {
      sizeof(hx_tokenizer_vt),
      [](void* self, const hx_file_start* file, uint32_t* score) {
        return guarded([&] { return *score = object<TokenizerFormat>(self).probe(file_start(file)), HX_OK; });
      },
      [](void* self, const hx_tokenizer_source* source, const hx_attributes* options, void** tokenizer) {
        return guarded([&] {
          auto made = object<TokenizerFormat>(self).open(TokenizerSource(source), Arguments(options));
          if (!made) throw Error(ErrorKind::Plugin, "the tokenizer's format returned nothing");
          *tokenizer = made.release();
          return HX_OK;
        });
      },
      [](void* tokenizer, hx_tokenizer_info* out) {
        return guarded([&] {
          const TextTokenizerInfo info = static_cast<TextTokenizer*>(tokenizer)->info();
          const hx_tokenizer_info all = {sizeof all,   0,           info.tokens, info.bos, info.eos, info.unknown,
                                         info.padding, info.longest};
          const uint32_t room = std::min<uint32_t>(out->struct_size, sizeof all);
          std::memcpy(out, &all, room);
          out->struct_size = room;
          return HX_OK;
        });
      },
      [](void* tokenizer, const char* text, uint64_t bytes, uint32_t flags, int32_t* ids, uint64_t capacity,
         uint64_t* count) {
        return guarded([&] {
          const auto all = static_cast<TextTokenizer*>(tokenizer)->encode({text, bytes}, flags);
          *count = all.size();
          if (!all.empty() && all.size() <= capacity) std::memcpy(ids, all.data(), all.size() * sizeof(int32_t));
          return HX_OK;
        });
      },
      [](void* tokenizer, int32_t id, int32_t previous, char* dst, uint64_t capacity, uint64_t* size) {
        return guarded([&] {
          const std::string piece = static_cast<TextTokenizer*>(tokenizer)->decode(id, previous);
          *size = piece.size();
          if (!piece.empty() && piece.size() <= capacity) std::memcpy(dst, piece.data(), piece.size());
          return HX_OK;
        });
      },
      [](void* tokenizer) { delete static_cast<TextTokenizer*>(tokenizer); },
      destroy<TokenizerFormat>};
  return &vt;
}

// Registers through an extension. Returns false, and drops the item, if the host lacks the extension.
template <typename T, typename Table>
HARMONICS_FACE bool register_extended(FunctionRegistry& registry, const char* extension, uint32_t kind,
                                      const char* kind_text, const std::string& name, std::shared_ptr<T> f,
                                      const std::string& description, const std::vector<Argument>& arguments,
                                      Table table) {
  const auto& registration = reinterpret_cast<const hx_registration&>(registry);  // the registry is a view of it
  api_slot() = registration.api;
  const auto* through = static_cast<const hx_item_extension*>(registration.api->extension(extension));
  if (!through) return false;
  std::vector<hx_argument_spec> specs;
  for (const Argument& a : arguments)
    specs.push_back({sizeof(hx_argument_spec), a.type, a.name.c_str(), a.required ? nullptr : a.default_text.c_str(),
                     a.description.c_str(), a.range.c_str()});
  const hx_item item = {sizeof(hx_item),
                        kind,
                        0,
                        static_cast<uint32_t>(specs.size()),
                        name.c_str(),
                        description.c_str(),
                        specs.data(),
                        held(std::move(f), kind_text, name),
                        table};
  check(through->register_item(registration.registry, &item));
  return true;
}

}  // namespace detail

// Registers an importer. Returns false if the program does not support importers of this version.
HARMONICS_FACE inline bool register_importer(FunctionRegistry& registry, const std::string& name,
                                             std::shared_ptr<Importer> importer, const std::string& description = "",
                                             const std::vector<Argument>& options = {}) {
  return detail::register_extended(registry, HX_IMPORTER_EXTENSION, HX_IMPORTER, "importer", name, std::move(importer),
                                   description, options, detail::importer_vt());
}

// Registers a tokenizer format, likewise.
HARMONICS_FACE inline bool register_tokenizer(FunctionRegistry& registry, const std::string& name,
                                              std::shared_ptr<TokenizerFormat> format,
                                              const std::string& description = "",
                                              const std::vector<Argument>& options = {}) {
  return detail::register_extended(registry, HX_TOKENIZER_EXTENSION, HX_TOKENIZER, "tokenizer", name, std::move(format),
                                   description, options, detail::tokenizer_vt());
}

}  // namespace harmonics
