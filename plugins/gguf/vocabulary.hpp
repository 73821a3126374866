// Reads the vocabulary from the metadata of a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <harmonics/importer.hpp>

#include "formats/gguf.hpp"
#include "tokens/vocabulary.hpp"

namespace gguf {

// Throws ErrorKind::Weights with path and key for lists of different lengths, ids outside the vocabulary, and unknown
// kinds or families.
harmonics::tokens::Vocabulary read_vocabulary(const harmonics::GgufFile& file, const std::string& path);

std::unique_ptr<harmonics::TextTokenizer> open_tokenizer(std::string_view bytes, const std::string& path);

class TokenizerFormat final : public harmonics::TokenizerFormat {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override {
    return harmonics::is_gguf(file.first) ? HX_PROBE_CERTAIN : HX_PROBE_NO;
  }
  std::unique_ptr<harmonics::TextTokenizer> open(const harmonics::TokenizerSource& source,
                                                 const harmonics::Arguments&) const override {
    return open_tokenizer(source.bytes(), source.path());
  }
};

}  // namespace gguf
