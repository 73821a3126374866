// Reads a folder's tokenizer: tokenizer.json, or vocab.json with merges.txt; and tokenizer_config.json and
// generation_config.json.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/importer.hpp>

#include "json.hpp"
#include "tokens/vocabulary.hpp"

namespace huggingface {

// Returns the bytes of a file in the folder; none: there is no such file.
using Beside = std::function<std::optional<std::string_view>(const std::string&)>;

// Returns none for a file that does not exist; other errors propagate.
template <typename Source>
Beside beside(const Source& source) {
  return [&source](const std::string& name) -> std::optional<std::string_view> {
    try {
      if constexpr (requires { source.beside(name).bytes; })
        return source.beside(name).bytes;
      else
        return source.beside(name);
    } catch (const harmonics::Error& e) {
      if (e.kind() != harmonics::ErrorKind::NoInput) throw;
      return std::nullopt;
    }
  };
}

struct FolderTokenizer {
  harmonics::tokens::Vocabulary vocabulary;
  std::string family;  // family of a byte-pair vocabulary in tokenizer.ggml.pre; "": unknown
};

// Reads a tokenizer.json alone. Throws ErrorKind::Weights with the file and the location for malformed or unsupported
// content.
harmonics::tokens::Vocabulary read_tokenizer(std::string_view text, const std::string& path);

// Reads normalizers, divisions, added ids and decoding of a tokenizer.json. `to.model` must be set.
void read_rules(const Node& root, harmonics::tokens::Vocabulary& to);

// Reads a folder's tokenizer; none if it has none. `least`: the number of tokens of the model; missing ones become
// unused tokens.
std::optional<FolderTokenizer> read_folder_tokenizer(const Beside& files, const std::string& path, int64_t least);

// The chat template and the one for prompts with tools, "" if there is none, and the end ids.
struct FolderSettings {
  std::string chat_template, tools_template;
  std::vector<int64_t> ends;
};
FolderSettings read_folder_settings(const Beside& files);

// Adds GGUF's metadata of a tokenizer. Lists of texts are views into `kept`. Throws ErrorKind::Weights for rules that
// GGUF cannot express.
void add_tokenizer_metadata(const FolderTokenizer& tokenizer, const std::string& path, harmonics::MetadataMap& to,
                            std::vector<std::vector<std::string>>& kept);

class TokenizerFormat final : public harmonics::TokenizerFormat {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override;
  std::unique_ptr<harmonics::TextTokenizer> open(const harmonics::TokenizerSource& source,
                                                 const harmonics::Arguments&) const override;
};

}  // namespace huggingface
