// Any input is a tokenizer.json or an error. Every token decodes, any text encodes to valid ids, and its GGUF metadata
// can be written as a tokenizer.json again.
#include "formats/utf8.hpp"
#include "plugins/huggingface/exported_tokenizer.hpp"
#include "plugins/huggingface/tokenizer_files.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tokens/tokenizer.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

constexpr uint64_t kMostDecodedTokens = 1000;
constexpr size_t kLongestJoinedText = 2000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  return refusing([&] {
    const huggingface::Beside files = [&](const std::string& name) -> std::optional<std::string_view> {
      if (name == "tokenizer.json") return bytes;
      return std::nullopt;
    };
    const auto read = huggingface::read_folder_tokenizer(files, "tokenizer.json", 0);
    require(read.has_value(), "no tokenizer");
    const auto tokenizer = tokens::make_tokenizer(read->vocabulary, "tokenizer.json");
    const TextTokenizerInfo info = tokenizer->info();
    std::string text = "Hello, world's 123 end\n";
    for (uint64_t id = 0; id < info.tokens && id < kMostDecodedTokens; ++id)
      if (const std::string piece = tokenizer->decode(static_cast<int32_t>(id), -1);
          !find_invalid_utf8(piece) && text.size() + piece.size() < kLongestJoinedText)
        text += piece;
    for (const uint32_t flags : {0u, uint32_t{HX_ENCODE_BOS | HX_ENCODE_EOS | HX_ENCODE_SPECIAL}})
      for (const int32_t id : tokenizer->encode(text, flags))
        require(id >= 0 && static_cast<uint64_t>(id) < info.tokens, "an id outside the vocabulary");
    MetadataMap metadata;
    std::vector<std::vector<std::string>> kept;
    kept.reserve(4);
    huggingface::add_tokenizer_metadata(*read, "tokenizer.json", metadata, kept);
    huggingface::tokenizer_files(metadata);
  });
}
