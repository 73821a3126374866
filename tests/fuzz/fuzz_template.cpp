// Any input is a chat template or an error. Its output is bounded, valid UTF-8 and deterministic.
#include <boost/json.hpp>

#include "engine/language/chat_template.hpp"
#include "formats/utf8.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    const ChatTemplate made(std::string_view(exact.data(), size), "<s>", "</s>");
    ChatPrompt prompt;
    prompt.messages = boost::json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Ü x"},
        {"role": "assistant", "content": null, "tool_calls":
          [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}])")
                          .as_array();
    prompt.tools = boost::json::parse(R"([{"type": "function", "function": {"name": "f"}}])").as_array();
    const std::string text = made.render(prompt);
    require(!find_invalid_utf8(text), "a prompt that is not UTF-8");
    require(text == made.render(prompt), "another prompt the second time");
  });
}
