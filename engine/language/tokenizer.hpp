// Tokenizers of plugins: text to ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/importer_abi.h>

#include "engine/model/imported.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct TokenizerOptions {
  std::string tokenizer;                                     // "": the one whose probe fits best
  std::vector<std::pair<std::string, std::string>> options;  // of the tokenizer: name, text
};

// Which special ids encode() adds or reads.
struct EncodeOptions {
  bool begin = true;     // the begin id first, if there is one
  bool end = false;      // the end id last, if there is one
  bool special = false;  // the text of a special token becomes its id
};

// A vocabulary with its rules. Immutable: used by any threads at once.
class Tokenizer {
 public:
  // `path`: of a file or a folder. Throws ErrorKind::NoInput if the file cannot be read, ErrorKind::Weights if no
  // tokenizer reads it or it is malformed. `metadata`: of the model, for tokenizers that need it.
  static std::shared_ptr<const Tokenizer> open(const std::string& path, Registry& registry,
                                               const TokenizerOptions& options = {},
                                               const ModelMetadata& metadata = {});
  // From bytes in memory; `name` is for messages.
  static std::shared_ptr<const Tokenizer> read(std::string_view bytes, const std::string& name, Registry& registry,
                                               const TokenizerOptions& options = {},
                                               const ModelMetadata& metadata = {});
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // The text must be UTF-8 (ErrorKind::Usage).
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The bytes of one token after the token `previous`, perhaps a part of a character: see WholeCharacters. Throws
  // ErrorKind::Usage for an id outside the vocabulary.
  std::string decode(int32_t id, std::optional<int32_t> previous = std::nullopt) const;
  // The text of a token, also of a special one, where the tokenizer knows it.
  std::string written(int32_t id) const { return decode(id, HX_DECODE_WRITTEN); }
  // The token that this text is, where it is a special one: "<|im_end|>".
  std::optional<int32_t> special_token(std::string_view text) const;
  // The text of all tokens; bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;

  int32_t size() const { return size_; }  // ids are 0 .. size()-1
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> unknown() const { return unknown_; }
  std::optional<int32_t> padding() const { return padding_; }
  const Item& item() const { return *item_; }

 private:
  Tokenizer(ItemPtr item, std::string name, void* object);
  // `neighbours`: the host of open_beside; null: there is no folder.
  static std::shared_ptr<const Tokenizer> made(std::string_view bytes, const std::string& name, Registry& registry,
                                               const TokenizerOptions& options, const ModelMetadata& metadata,
                                               void* neighbours);
  void describe();
  std::optional<int32_t> special(int64_t id, const char* which) const;
  void expect_ids(const std::vector<int32_t>& ids) const;

  ItemPtr item_;
  std::string name_;  // for messages
  void* object_;
  int32_t size_ = 0;
  size_t longest_ = 0;
  std::optional<int32_t> bos_, eos_, unknown_, padding_;
};

// Whether a tokenizer reads the file.
bool is_tokenizer(const std::string& path, std::string_view bytes, Registry& registry);

}  // namespace harmonics::engine
