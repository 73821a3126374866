// Tokenizer: converts text to ids and back, by a tokenizer of a plugin.
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
  std::string tokenizer;                                     // "" selects the tokenizer whose probe fits best
  std::vector<std::pair<std::string, std::string>> options;  // of the tokenizer: name, value
};

// Which special ids encode() adds or recognises.
struct EncodeOptions {
  bool begin = true;     // prepend the begin id, if there is one
  bool end = false;      // append the end id, if there is one
  bool special = false;  // recognise the texts of special tokens
  bool whole = false;    // add begin and end ids where the tokenizer adds them to whole texts
};

// A vocabulary and its rules. Immutable and thread-safe.
class Tokenizer {
 public:
  // `path` is a file or a folder. Throws ErrorKind::NoInput if it cannot be read, ErrorKind::Weights if no tokenizer
  // reads it or it is malformed. `metadata` is that of the model, for tokenizers that need it.
  static std::shared_ptr<const Tokenizer> open(const std::string& path, Registry& registry,
                                               const TokenizerOptions& options = {},
                                               const ModelMetadata& metadata = {});
  // Reads a tokenizer from memory; `name` is for messages.
  static std::shared_ptr<const Tokenizer> read(std::string_view bytes, const std::string& name, Registry& registry,
                                               const TokenizerOptions& options = {},
                                               const ModelMetadata& metadata = {});
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // Returns the ids of a text. Throws ErrorKind::Usage if it is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Returns the bytes of a token after the token `previous`. They may be a part of a character; see WholeCharacters.
  // Throws ErrorKind::Usage for an id outside the vocabulary.
  std::string decode(int32_t id, std::optional<int32_t> previous = std::nullopt) const;
  // Returns the text of a token, also of special tokens if the tokenizer knows it.
  std::string written(int32_t id) const { return decode(id, HX_DECODE_WRITTEN); }
  // Returns the special token with this text, for example "<|im_end|>".
  std::optional<int32_t> special_token(std::string_view text) const;
  // Returns the text of the tokens. Bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;

  int32_t size() const { return size_; }  // ids are 0 .. size()-1
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> unknown() const { return unknown_; }
  std::optional<int32_t> padding() const { return padding_; }
  const Item& item() const { return *item_; }

 private:
  Tokenizer(ItemPtr item, std::string name, void* object);
  // `neighbours` is the host of open_beside; null if there is no folder.
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

// Returns whether a tokenizer reads the file.
bool is_tokenizer(const std::string& path, std::string_view bytes, Registry& registry);

}  // namespace harmonics::engine
