// The tokenizer of a folder: tokenizer.json, or vocab.json with merges.txt; tokenizer_config.json and
// generation_config.json beside them.
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

// The bytes of a file of the folder by its name; none: there is no such file.
using Beside = std::function<std::optional<std::string_view>(const std::string&)>;

// A further file, or none where it does not exist; other errors pass.
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
  std::string family;  // of the words of byte pairs, as tokenizer.ggml.pre; "": none that is known
};

// Of a tokenizer.json alone. Throws ErrorKind::Weights with the file and the place for what is malformed or not
// implemented.
harmonics::tokens::Vocabulary read_tokenizer(std::string_view text, const std::string& path);

// Normalizers, divisions, ends and decoding of a tokenizer.json. The model of the vocabulary is set.
void read_rules(const Node& root, harmonics::tokens::Vocabulary& to);

// Of a folder; none if it has no tokenizer. `least`: the number of tokens that the model has scores of; what the
// tokenizer lacks becomes unused tokens.
std::optional<FolderTokenizer> read_folder_tokenizer(const Beside& files, const std::string& path, int64_t least);

// The chat template, "" if there is none, and the ids that end a text.
struct FolderSettings {
  std::string chat_template;
  std::vector<int64_t> ends;
};
FolderSettings read_folder_settings(const Beside& files);

// The metadata that GGUF files have of a tokenizer. Lists of texts are views into `kept`. Throws ErrorKind::Weights for
// rules that GGUF has no name for.
void add_tokenizer_metadata(const FolderTokenizer& tokenizer, const std::string& path, harmonics::MetadataMap& to,
                            std::vector<std::vector<std::string>>& kept);

class TokenizerFormat final : public harmonics::TokenizerFormat {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override;
  std::unique_ptr<harmonics::TextTokenizer> open(const harmonics::TokenizerSource& source,
                                                 const harmonics::Arguments&) const override;
};

}  // namespace huggingface
