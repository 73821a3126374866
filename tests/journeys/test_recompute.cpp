// --recompute: less memory per step, equal weights, and its report in explain.
#include "tests/journeys/replies.hpp"

using namespace journeys;

namespace {

std::string letters(const Folder& f) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the quick brown fox jumps over the lazy dog " + std::to_string(i * 7 % 31) + "\n";
  return f.write("letters.txt", text);
}

json::object memory_of(const std::string& flow, const std::string& what) {
  const Result r = harmonics("explain " + flow + " --batch 4 --show memory --json --recompute " + what);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return last_line(r.out).at("memory").as_object();
}

}  // namespace

TEST_CASE("recompute: explain shows what a step keeps, and a budget that it meets") {
  const Folder f;
  const std::string flow = kSamples + "char_gpt.hmx -p 'file:" + letters(f) + "?window=128'";
  const auto arena = [](const json::object& memory) { return memory.at("arena_bytes").to_number<int64_t>(); };
  const auto kept = [](const json::object& memory) {
    int64_t bytes = 0;
    for (const json::value& row : memory.at("kept").as_array()) bytes += row.at("bytes").to_number<int64_t>();
    return bytes;
  };
  const json::object none = memory_of(flow, "none"), block = memory_of(flow, "block");
  CHECK(arena(block) < arena(none) / 2);
  CHECK(kept(block) < kept(none) / 2);
  const int64_t budget = (arena(none) + arena(block)) / 2;
  CHECK(arena(memory_of(flow, "auto=" + std::to_string(budget))) <= budget);
  const Result text = harmonics("explain " + flow + " --batch 4 --show memory --recompute attention");
  CHECK(has(text.out, "results of the forward pass until the backward pass, by scope"));
}

TEST_CASE("recompute: weights have the same bits, and unknown names are usage errors") {
  const Folder f;
  const std::string run = "run " + kSamples + "char_gpt.hmx -p 'file:" + letters(f) +
                          "?window=128' --batch 2 --steps 2 --threads 1 --quiet --save ";
  REQUIRE(harmonics(run + (f / "plain.safetensors")).code == 0);
  REQUIRE(harmonics(run + (f / "again.safetensors") + " --recompute block").code == 0);
  CHECK(read(f / "plain.safetensors") == read(f / "again.safetensors"));
  const Result wrong = harmonics(run + (f / "none.safetensors") + " --recompute atention");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "there is nothing named 'atention' to recompute"));
  CHECK(has(wrong.err, "did you mean 'attention'?"));
}
