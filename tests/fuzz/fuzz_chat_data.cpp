// Any line is an example or rejected with a reason: conversations, instructions and texts, with the chat template.
#include <boost/json.hpp>

#include "engine/corpus/example.hpp"
#include "formats/utf8.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    boost::json::error_code failed;
    boost::json::parse_options depth;
    depth.max_depth = 64;
    const boost::json::value line = boost::json::parse({exact.data(), size}, failed, {}, depth);
    if (failed) return;
    const auto chat = std::make_shared<ChatTemplate>(ChatTemplate::usual());
    const ExampleFormat format(ExampleKind::automatic, {}, chat, "<|im_end|>", false);
    const auto check = [](const TextExample& example) {
      require(!find_invalid_utf8(example.text), "a text that is not UTF-8");
      size_t at = 0;
      for (const TextExample::Range& range : example.learned) {
        require(range.begin >= at && range.begin <= range.end && range.end <= example.text.size(),
                "a learned part outside the text");
        at = range.end;
      }
    };
    const ExampleKind kind = format.kind_of(line);
    if (kind != ExampleKind::preference) return check(format.read(line, kind));
    const auto [chosen, rejected] = format.read_pair(line);
    check(chosen);
    check(rejected);
  });
}
