#include "engine/model/imported.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/checked.hpp>
#include <harmonics/importer_abi.h>
#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/contract/file_reader.hpp"
#include "engine/contract/guard.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/model/repeated_value.hpp"
#include "engine/plugin/arguments.hpp"
#include "formats/gguf.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

void ModelMetadata::refuse(std::string_view key, const std::string& what) const {
  throw Error(ErrorKind::Weights, fmt::format("'{}': the metadata '{}' {}", path_, printable(key, 80), what));
}

const AttributeValue& ModelMetadata::value(std::string_view key) const {
  if (const AttributeValue* found = values_.find(key)) return *found;
  std::vector<std::string> known;
  for (const auto& [name, value] : values_.entries()) known.push_back(name);
  Error error(ErrorKind::Weights, fmt::format("'{}' has no metadata '{}'", path_, printable(key, 80)));
  if (const std::string meant = did_you_mean(key, known); !meant.empty()) error.note(meant);
  throw error;
}

int64_t ModelMetadata::integer(std::string_view key) const {
  const AttributeValue& v = value(key);
  if (const auto* i = std::get_if<int64_t>(&v)) return *i;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&v))
    if (const auto one = repeated_value(*list)) return *one;
  refuse(key, "is not a whole number");
}

int64_t ModelMetadata::integer_within(std::string_view key, int64_t least, int64_t most) const {
  const int64_t found = integer(key);
  if (found < least || found > most) refuse(key, fmt::format("is {}; it must be {} to {}", found, least, most));
  return found;
}

double ModelMetadata::number(std::string_view key) const {
  const AttributeValue& v = value(key);
  if (const auto* f = std::get_if<double>(&v)) return *f;
  if (const auto* i = std::get_if<int64_t>(&v)) return static_cast<double>(*i);
  refuse(key, "is not a number");
}

const std::string& ModelMetadata::text(std::string_view key) const {
  const AttributeValue& v = value(key);
  if (const auto* s = std::get_if<std::string>(&v)) return *s;
  refuse(key, "is not a string");
}

const HTensor* ImportedModel::find(const std::string& name) const {
  const auto at = tensors.find(name);
  return at == tensors.end() ? nullptr : &at->second;
}

const HTensor& ImportedModel::tensor(const std::string& name) const {
  if (const HTensor* found = find(name)) return *found;
  std::vector<std::string> known;
  for (const auto& [other, tensor] : tensors) known.push_back(other);
  Error error(ErrorKind::Weights, fmt::format("'{}' has no tensor '{}'", path, printable(name, 80)));
  if (const std::string meant = did_you_mean(name, known); !meant.empty()) error.note(meant);
  throw error;
}

const HTensor& ImportedModel::tensor(const std::string& name, const TensorType& type) const {
  const HTensor& found = tensor(name);
  if (type_of(found) == type) return found;
  throw Error(ErrorKind::Weights, fmt::format("'{}': tensor '{}' is {}; the model needs {}", path, printable(name, 80),
                                              type_of(found).str(), type.str()));
}

uint64_t ImportedModel::parameters() const {
  uint64_t count = 0;
  for (const auto& [name, tensor] : tensors) count += static_cast<uint64_t>(tensor.size());
  return count;
}

uint64_t ImportedModel::bytes() const {
  uint64_t sum = file ? file->bytes() : 0;
  for (const auto& other : others) sum += other->bytes();
  return sum;
}

void ImportedModel::expect_whole() const {
  if (file) file->expect_whole();
  for (const auto& other : others) other->expect_whole();
}

namespace {

constexpr uint32_t kMostTensors = 1 << 20, kMostKeys = 1 << 20, kMostListed = 1 << 24;
constexpr size_t kMostFiles = 10'000, kLongestName = 1 << 12, kLongestText = 1 << 24;
constexpr size_t kMostMemories = 1 << 20;

// The memory that an importer's tensors refer to: the source, further files of its folder, and memory that the importer
// fills.
class Files {
 public:
  struct Bytes {
    const void* data = nullptr;
    uint64_t bytes = 0;
    std::shared_ptr<const void> keep;
  };

  Files(const std::string& path, std::shared_ptr<const MappedFile> source)
      : folder_(std::filesystem::path(path).parent_path()) {
    add(std::move(source));
  }

  uint32_t open(const std::string& name) {
    expect_neighbour(name);
    if (mapped_.size() == kMostFiles)
      throw Error(ErrorKind::Weights, fmt::format("a model has at most {} files", kMostFiles));
    return add(MappedFile::open((folder_ / name).string()));
  }
  uint32_t allocate(uint64_t bytes, void*& data) {
    if (all_.size() - mapped_.size() == kMostMemories)
      throw Error(ErrorKind::Weights, fmt::format("a model has at most {} computed tensors", kMostMemories));
    const auto storage = std::make_shared<Storage>(bytes);
    data = storage->data();
    all_.push_back({storage->data(), bytes, storage});
    return static_cast<uint32_t>(all_.size() - 1);
  }
  const std::vector<Bytes>& all() const { return all_; }
  const std::vector<std::shared_ptr<const MappedFile>>& mapped() const { return mapped_; }

 private:
  uint32_t add(std::shared_ptr<const MappedFile> file) {
    all_.push_back({file->data(), file->bytes(), file});
    mapped_.push_back(std::move(file));
    return static_cast<uint32_t>(all_.size() - 1);
  }

  std::filesystem::path folder_;
  std::vector<Bytes> all_;
  std::vector<std::shared_ptr<const MappedFile>> mapped_;
};

hx_status open_beside(void* host, const char* name, uint32_t* index, const void** data, uint64_t* bytes) {
  return guard([&] {
    auto& files = *static_cast<Files*>(host);
    *index = files.open(name ? name : "");
    *data = files.all()[*index].data;
    *bytes = files.all()[*index].bytes;
  });
}

hx_status open_memory(void* host, uint64_t bytes, uint32_t* index, void** data) {
  return guard([&] { *index = static_cast<Files*>(host)->allocate(bytes, *data); });
}

// The importer's description of the model. Released by the importer.
class Description {
 public:
  Description(ItemPtr item, const hx_import_source& source, const AttributeMap& options) : item_(std::move(item)) {
    const AttributeView view(options);
    const hx_status status = item_->table<hx_importer_vt>().open(item_->self, &source, view.get(), &model_);
    if (status != HX_OK) throw plugin_error(*item_, status);
    if (!model_) throw Error(ErrorKind::Plugin, spoken_name(*item_) + " returned no description");
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() {
    if (model_) item_->table<hx_importer_vt>().close(item_->self, model_);
  }
  const hx_imported_model& model() const { return *model_; }

 private:
  ItemPtr item_;
  const hx_imported_model* model_ = nullptr;
};

class Reading {
 public:
  Reading(std::string path, ItemPtr item, const Files& files)
      : path_(std::move(path)), item_(std::move(item)), files_(files) {}

  AttributeMap metadata(const hx_attributes& from) const {
    if (from.count > kMostKeys) refuse(fmt::format("gives {} keys; the limit is {}", from.count, kMostKeys));
    if (from.count && !from.items) refuse("gives no table of metadata");
    for (uint32_t i = 0; i < from.count; ++i) expect_key(from.items[i], i);
    return AttributeMap(&from);
  }

  std::map<std::string, HTensor> tensors(const hx_imported_model& model,
                                         std::map<std::string, std::string>& origins) const {
    if (model.n_tensors > kMostTensors)
      refuse(fmt::format("gives {} tensors; the limit is {}", model.n_tensors, kMostTensors));
    if (model.n_tensors && !model.tensors) refuse("gives no table of tensors");
    std::map<std::string, HTensor> all;
    const char* at = reinterpret_cast<const char*>(model.tensors);
    for (uint32_t i = 0; i < model.n_tensors; ++i) {
      const auto& tensor = *reinterpret_cast<const hx_imported_tensor*>(at);
      if (tensor.struct_size < kFirstSize || tensor.struct_size % alignof(hx_imported_tensor) != 0)
        refuse(fmt::format("gives a size of {} bytes for the entry of tensor {}", tensor.struct_size, i));
      expect_name(tensor.name, fmt::format("the name of tensor {}", i));
      if (!all.emplace(tensor.name, view(tensor)).second)
        refuse(fmt::format("gives two tensors the name {}", shown_name(tensor.name)));
      if (tensor.struct_size > kFirstSize && tensor.origin) {
        expect_name(tensor.origin, fmt::format("the origin of tensor {}", i));
        origins.emplace(tensor.name, tensor.origin);
      }
      at += tensor.struct_size;
    }
    return all;
  }

 private:
  static constexpr uint32_t kFirstSize = offsetof(hx_imported_tensor, origin);

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::Plugin, fmt::format("'{}': {} {}", path_, spoken_name(*item_), what));
  }

  void expect_text(const char* text, size_t longest, const std::string& what) const {
    if (!text) refuse(fmt::format("gives no string for {}", what));
    const size_t length = ::strnlen(text, longest + 1);
    if (length > longest) refuse(fmt::format("gives more than {} bytes for {}", longest, what));
    if (find_invalid_utf8({text, length})) refuse(fmt::format("gives a string that is not UTF-8 for {}", what));
  }

  void expect_name(const char* text, const std::string& what) const {
    expect_text(text, kLongestName, what);
    if (!*text) refuse(fmt::format("gives no string for {}", what));
  }

  void expect_key(const hx_attribute& a, uint32_t index) const {
    expect_name(a.name, fmt::format("the key of metadata {}", index));
    const std::string what = shown_name(a.name);
    if ((a.kind < HX_ATTR_INT || a.kind > HX_ATTR_FLOATS) && a.kind != HX_ATTR_TEXTS)
      refuse(fmt::format("gives the metadata {} the unknown kind {}", what, a.kind));
    if (a.kind == HX_ATTR_STRING) expect_text(a.as.s, kLongestText, "the metadata " + what);
    const bool texts = a.kind == HX_ATTR_TEXTS, list = texts || a.kind == HX_ATTR_INTS || a.kind == HX_ATTR_FLOATS;
    const char* items = texts ? "texts" : "numbers";
    if (list && a.count > kMostListed)
      refuse(fmt::format("gives {} {} for the metadata {}; the limit is {}", a.count, items, what, kMostListed));
    if (list && a.count && !a.as.ints) refuse(fmt::format("gives no {} for the metadata {}", items, what));
    for (uint32_t i = 0; texts && i < a.count; ++i) {
      const hx_text& text = a.as.texts[i];
      if (text.bytes > kLongestText)
        refuse(fmt::format("gives more than {} bytes for item {} of the metadata {}", kLongestText, i, what));
      if (text.bytes && (!text.data || find_invalid_utf8({text.data, text.bytes})))
        refuse(fmt::format("gives item {} of the metadata {} that is not UTF-8", i, what));
    }
  }

  HTensor view(const hx_imported_tensor& tensor) const {
    const std::string name = shown_name(tensor.name);
    TensorType type;
    try {
      type = from_c(tensor.type);
    } catch (const Error& e) {
      refuse(fmt::format("gives tensor {} an invalid type: {}", name, e.what()));
    }
    if (tensor.file >= files_.all().size())
      refuse(fmt::format("places tensor {} in file {}; it has opened {}", name, tensor.file, files_.all().size()));
    const Files::Bytes& file = files_.all()[tensor.file];
    const auto end = checked_sum<uint64_t>(tensor.offset, tensor.bytes);
    if (!end || *end > file.bytes)
      throw Error(ErrorKind::Weights, fmt::format("'{}': {} places tensor {} at bytes {} .. {}+{} of a file of {}",
                                                  path_, spoken_name(*item_), name, tensor.offset, tensor.offset,
                                                  tensor.bytes, quantity(file.bytes, "byte")))
          .note("the file is truncated or damaged: copy it again");
    if (tensor.bytes != type.bytes())
      refuse(fmt::format("gives tensor {} {}; {} takes {}", name, quantity(tensor.bytes, "byte"), type.str(),
                         type.bytes()));
    const auto* at = static_cast<const unsigned char*>(file.data) + tensor.offset;
    if (type.dtype == DType::Bool && std::any_of(at, at + tensor.bytes, [](unsigned char b) { return b > 1; }))
      throw Error(ErrorKind::Weights,
                  fmt::format("'{}': tensor {} is bool and has other bytes than 0 and 1", path_, name));
    return typed(type, at, file.keep);
  }

  static HTensor typed(const TensorType& type, const unsigned char* at, const std::shared_ptr<const void>& file) {
    const size_t bytes = type.bytes();
    // Quantized blocks need 2-byte alignment, because they begin with a 16-bit scale.
    const ElementType& element = element_type(type.dtype);
    const size_t alignment = element.block == 1 ? element.block_bytes : 2;
    if (bytes && reinterpret_cast<uintptr_t>(at) % alignment == 0)
      return make_value(type, std::make_shared<Storage>(const_cast<unsigned char*>(at), bytes, file, false));
    auto storage = std::make_shared<Storage>(bytes);
    if (bytes) std::memcpy(storage->data(), at, bytes);
    return make_value(type, std::move(storage));
  }

  std::string path_;
  ItemPtr item_;
  const Files& files_;
};

std::string_view text_of(const MappedFile& file) { return {static_cast<const char*>(file.data()), file.bytes()}; }

ImportedModel read(const std::string& path, const ItemPtr& item, const ImportOptions& options, Files& files) {
  const auto file = files.mapped().front();  // the importer may add files
  const hx_import_source source = {sizeof source, 0,      path.c_str(), file->data(),
                                   file->bytes(), &files, open_beside,  open_memory};
  const Description description(item, source, bind_texts(*item, options.options));
  const hx_imported_model& model = description.model();
  if (model.struct_size < sizeof model)
    throw Error(ErrorKind::Plugin, fmt::format("'{}': {} gives a size of {} bytes for its description", path,
                                               spoken_name(*item), model.struct_size));
  const Reading reading(path, item, files);
  ImportedModel result;
  result.path = path;
  result.importer = item;
  result.metadata = ModelMetadata(path, reading.metadata(model.metadata));
  result.tensors = reading.tensors(model, result.origins);
  result.file = file;
  result.others.assign(files.mapped().begin() + 1, files.mapped().end());
  return result;
}

}  // namespace

void expect_neighbour(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw Error(ErrorKind::Weights,
                fmt::format("the model's file '{}' is not a name in its folder", printable(name, 80)));
}

std::string model_file(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return path;
  return (std::filesystem::path(path) / kFolderFile).string();
}

void expect_model_folder(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed) || std::filesystem::exists(model_file(path), failed)) return;
  const std::string inside = (std::filesystem::path(path) / "model").string();  // in the output folder of `train`
  throw Error(ErrorKind::NoInput, fmt::format("the folder '{}' has no {}, and so no model", path, kFolderFile), {},
              {std::filesystem::exists(model_file(inside), failed) ? fmt::format("did you mean '{}'?", inside)
               : std::filesystem::exists(path + "/adapter_config.json", failed)
                   ? fmt::format("it has an adapter: give its model, and --lora {}", path)
                   : "give a folder of Hugging Face, or the file of a model"});
}

std::string model_name(const std::string& file) {
  const std::filesystem::path path(file);
  if (path.filename() != kFolderFile) return path.stem().string();
  return std::filesystem::absolute(path).lexically_normal().parent_path().filename().string();
}

ImportedModel import_model(const std::string& given, Registry& registry, const ImportOptions& options) {
  if (given.ends_with(".hmx"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' is a flow, not a model", given), {},
                {fmt::format("run it with: harmonics infer {}", given)});
  const std::string path = model_file(given);
  expect_model_folder(given);
  Files files(path, MappedFile::open(path));
  const auto file = files.mapped().front();
  return read_whole(*file, [&] {
    const ItemPtr item = need_reader(HX_IMPORTER, path, text_of(*file), registry, options.importer);
    return read(path, item, options, files);
  });
}

bool is_importable(const std::string& path, std::string_view bytes, Registry& registry) {
  return find_reader(HX_IMPORTER, path, bytes, registry) != nullptr;
}

bool is_model(const std::string& path, Registry& registry) {
  const std::string file = model_file(path);
  std::error_code failed;
  if (path.ends_with(".hmx") || !std::filesystem::is_regular_file(file, failed)) return false;
  const auto mapped = MappedFile::open(file);
  const std::string_view bytes = text_of(*mapped);
  if (is_gguf(bytes)) need_reader(HX_IMPORTER, file, bytes, registry, "");
  return is_importable(file, bytes, registry);
}

}  // namespace harmonics::engine
