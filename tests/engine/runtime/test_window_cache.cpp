// Text from a flow that continues from caches, also on devices with their own memory.
#include <catch2/catch.hpp>

#include "engine/bound/generate.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kLetters = R"(harmonic letters {
  producer text; layer x {*, 16}; layer a {*, 16}; layer next;
  cycle {
    text -(embed(16))-> x;
    x -(norm, attention(heads=2, causal=true, rope=true))-> a; x -(skip)-> a;
    a -(norm, affine)-> next;
    next <-(next_token)- text;
  }
})";

struct Written {
  std::string text, refused;
};

Written written_on(const std::string& device, const std::string& file) {
  const auto g = graph_of(kLetters);
  g->streams().bind(g->graph(), g->registry(), "text", parse_address("file:" + file + "?window=16"));
  GenerateSettings settings;
  settings.prompt = "to be";
  settings.symbols = 60;  // beyond the window
  settings.temperature = 0;
  settings.threads = 1;
  settings.device = device;
  Written result;
  result.refused = generate(*g, 0, settings, [&](const std::string& symbol) { result.text += symbol; });
  return result;
}

}  // namespace

TEST_CASE("window cache: on a device with a memory of its own, the text is the CPU's") {
  const TemporaryFolder folder;
  std::string book;
  for (int i = 0; i < 20; ++i) book += "to be or not to be, that is the question\n";
  const std::string file = folder.write("book.txt", book);
  const auto device = add_fake_accelerator(Registry::global(), "fake_of_windows");
  const Written host = written_on("cpu", file), there = written_on("fake_of_windows", file);
  CHECK(host.refused.empty());
  CHECK(there.refused.empty());
  CHECK(there.text.size() == 60);
  CHECK(there.text == host.text);
  CHECK(device->kernels > 0);
}
