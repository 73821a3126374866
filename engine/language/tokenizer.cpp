#include "engine/language/tokenizer.hpp"

#include <filesystem>
#include <limits>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/contract/file_reader.hpp"
#include "engine/contract/guard.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/language/whole_characters.hpp"
#include "engine/plugin/arguments.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kLongestToken = 1 << 20;  // bytes
constexpr size_t kMostNeighbours = 64;

const hx_tokenizer_vt& table_of(const Item& item) { return item.table<hx_tokenizer_vt>(); }

// Other files in the folder of a tokenizer, mapped until the tokenizer is created.
struct Neighbours {
  std::filesystem::path folder;
  std::vector<std::shared_ptr<const MappedFile>> files;
};

hx_status open_neighbour(void* host, const char* name, const void** data, uint64_t* bytes) {
  return guard([&] {
    auto& all = *static_cast<Neighbours*>(host);
    const std::string wanted = name ? name : "";
    expect_neighbour(wanted);
    if (all.files.size() == kMostNeighbours)
      throw Error(ErrorKind::Weights, fmt::format("a tokenizer has at most {} files", kMostNeighbours));
    all.files.push_back(MappedFile::open((all.folder / wanted).string()));
    *data = all.files.back()->data();
    *bytes = all.files.back()->bytes();
  });
}

[[noreturn]] void refuse(const Item& item, const std::string& name, const std::string& what) {
  throw Error(ErrorKind::Plugin, fmt::format("'{}': {} {}", name, spoken_name(item), what));
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::open(const std::string& given, Registry& registry,
                                                 const TokenizerOptions& options, const ModelMetadata& metadata) {
  const std::string path = model_file(given);
  const auto file = MappedFile::open(path);
  Neighbours neighbours{std::filesystem::path(path).parent_path(), {}};
  return read_whole(*file, [&] {
    return made({static_cast<const char*>(file->data()), file->bytes()}, path, registry, options, metadata,
                &neighbours);
  });
}

std::shared_ptr<const Tokenizer> Tokenizer::read(std::string_view bytes, const std::string& name, Registry& registry,
                                                 const TokenizerOptions& options, const ModelMetadata& metadata) {
  return made(bytes, name, registry, options, metadata, nullptr);
}

std::shared_ptr<const Tokenizer> Tokenizer::made(std::string_view bytes, const std::string& name, Registry& registry,
                                                 const TokenizerOptions& options, const ModelMetadata& metadata,
                                                 void* neighbours) {
  const ItemPtr item = need_reader(HX_TOKENIZER, name, bytes, registry, options.tokenizer);
  const AttributeMap arguments = bind_texts(*item, options.options);
  const AttributeView argument_view(arguments), metadata_view(metadata.values());
  const hx_tokenizer_source source = {sizeof source, 0,
                                      name.c_str(),  bytes.data(),
                                      bytes.size(),  metadata_view.get(),
                                      neighbours,    neighbours ? open_neighbour : nullptr};
  void* object = nullptr;
  const hx_status status = table_of(*item).open(item->self, &source, argument_view.get(), &object);
  if (status != HX_OK) throw plugin_error(*item, status);
  if (!object) refuse(*item, name, "returned no tokenizer");
  const std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(item, name, object));
  tokenizer->describe();
  return tokenizer;
}

Tokenizer::Tokenizer(ItemPtr item, std::string name, void* object)
    : item_(std::move(item)), name_(std::move(name)), object_(object) {}

Tokenizer::~Tokenizer() { table_of(*item_).close(object_); }

void Tokenizer::describe() {
  hx_tokenizer_info info{};
  info.struct_size = sizeof info;
  info.bos = info.eos = info.unknown = info.padding = -1;
  const hx_status status = table_of(*item_).describe(object_, &info);
  if (status != HX_OK) throw plugin_error(*item_, status);
  if (info.tokens == 0 || info.tokens > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    refuse(*item_, name_, fmt::format("has {}; there must be 1 to 2147483647", quantity(info.tokens, "token")));
  size_ = static_cast<int32_t>(info.tokens);
  longest_ = std::min<uint64_t>(info.longest, kLongestToken);
  bos_ = special(info.bos, "begin");
  eos_ = special(info.eos, "end");
  unknown_ = special(info.unknown, "unknown");
  padding_ = special(info.padding, "padding");
}

std::optional<int32_t> Tokenizer::special(int64_t id, const char* which) const {
  if (id < 0) return std::nullopt;
  if (id >= size_) refuse(*item_, name_, fmt::format("gives the {} id {}; it has {} tokens", which, id, size_));
  return static_cast<int32_t>(id);
}

void Tokenizer::expect_ids(const std::vector<int32_t>& ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= size_) refuse(*item_, name_, fmt::format("encoded the id {}; it has {} tokens", id, size_));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (const auto bad = find_invalid_utf8(text))
    throw Error(ErrorKind::Usage, fmt::format("the text is not UTF-8 at byte {}", *bad)).note("convert it to UTF-8");
  const uint32_t flags = options.begin * HX_ENCODE_BOS | options.end * HX_ENCODE_EOS |
                         options.special * HX_ENCODE_SPECIAL | options.whole * HX_ENCODE_WHOLE;
  std::vector<int32_t> ids(text.size() + 8);  // at most one id per byte, and special ids
  uint64_t count = 0;
  const auto encode_once = [&] {
    const hx_status status =
        table_of(*item_).encode(object_, text.data(), text.size(), flags, ids.data(), ids.size(), &count);
    if (status != HX_OK) throw plugin_error(*item_, status);
  };
  encode_once();
  if (count > ids.size()) {
    if (count / 64 > text.size() + 1)
      refuse(*item_, name_, fmt::format("makes {} ids of a text of {}", count, quantity(text.size(), "byte")));
    ids.resize(count);
    encode_once();
    if (count > ids.size()) refuse(*item_, name_, "returns a different number of ids each time");
  }
  ids.resize(count);
  expect_ids(ids);
  return ids;
}

std::string Tokenizer::decode(int32_t id, std::optional<int32_t> previous) const {
  if (id < 0 || id >= size_)
    throw Error(ErrorKind::Usage,
                fmt::format("the id {} is outside the vocabulary of '{}', 0 to {}", id, name_, size_ - 1));
  std::string piece(std::max<size_t>(longest_, 16), '\0');
  uint64_t size = 0;
  const auto decode_once = [&] {
    const hx_status status =
        table_of(*item_).decode(object_, id, previous.value_or(-1), piece.data(), piece.size(), &size);
    if (status != HX_OK) throw plugin_error(*item_, status);
  };
  decode_once();
  if (size > piece.size()) {
    if (size > kLongestToken) refuse(*item_, name_, fmt::format("has a token of {} bytes", size));
    piece.resize(size);
    decode_once();
    if (size > piece.size()) refuse(*item_, name_, "decodes one token to a different length each time");
  }
  piece.resize(size);
  return piece;
}

std::optional<int32_t> Tokenizer::special_token(std::string_view text) const {
  const std::vector<int32_t> ids = encode(text, {false, false, true});
  if (ids.size() != 1 || written(ids[0]) != text) return std::nullopt;
  return ids[0];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  WholeCharacters characters;
  std::string text;
  std::optional<int32_t> previous;
  for (const int32_t id : ids) {
    const std::string piece = decode(id, previous);
    // Control tokens are without effect on their neighbours. Others have text, at least behind another token.
    if (piece.empty() && decode(id, id).empty()) {
      if (!previous && bos_ == id) previous = id;
      continue;
    }
    text += characters.push(piece);
    previous = id;
  }
  return text += characters.finish();
}

bool is_tokenizer(const std::string& path, std::string_view bytes, Registry& registry) {
  return find_reader(HX_TOKENIZER, path, bytes, registry) != nullptr;
}

}  // namespace harmonics::engine
