// Data sets that are packed by gzip or zstd.
#include <catch2/catch.hpp>

#include <filesystem>

#include "engine/corpus/corpus.hpp"
#include "engine/corpus/example_files.hpp"
#include "engine/corpus/packed_text.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// "the cat sat\n" and "on the mat\n": two members of gzip, one frame of zstd.
template <size_t N>
std::string bytes_of_literal(const char (&text)[N]) {
  return {text, N - 1};
}
const std::string kFirstMember = bytes_of_literal(
    "\037\213\010\000\000\000\000\000\002\377\053\311\110\125\110\116\054\121\050\116\054\341\002\000\135\075\177\272"
    "\014\000\000\000");
const std::string kSecondMember = bytes_of_literal(
    "\037\213\010\000\000\000\000\000\002\377\313\317\123\050\311\110\125\310\115\054\341\002\000\122\222\020\307\013"
    "\000\000\000");
const std::string kZstdFrame = bytes_of_literal(
    "\050\265\057\375\004\130\271\000\000\164\150\145\040\143\141\164\040\163\141\164\012\157\156\040\164\150\145\040"
    "\155\141\164\012\355\373\200\172");
// Two instructions as JSON lines.
const std::string kTwoInstructions = bytes_of_literal(
    "\037\213\010\000\000\000\000\000\002\377\253\126\052\050\312\317\055\050\121\262\122\120\062\260\127\322\121"
    "\120\112\006\162\163\122\113\062\363\363\300\142\212\112\265\134\325\110\212\014\261\050\062\004\051\002\000"
    "\244\264\375\055\112\000\000\000");
constexpr const char* kBothLines = "the cat sat\non the mat\n";

std::string unpacked(const std::string& packed) {
  std::string text;
  unpack(packed, "f.gz", [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace

TEST_CASE("packed texts: gzip with several members, and zstd") {
  CHECK(unpacked(kFirstMember) == "the cat sat\n");
  CHECK(unpacked(kFirstMember + kSecondMember) == kBothLines);
  CHECK(unpacked(kZstdFrame) == kBothLines);
  CHECK(unpacked(kZstdFrame + kZstdFrame) == std::string(kBothLines) + kBothLines);
  CHECK(is_packed(kFirstMember));
  CHECK(is_packed(kZstdFrame));
  CHECK_FALSE(is_packed(kBothLines));
  CHECK(name_unpacked("a.txt.gz") == "a.txt");
  CHECK(name_unpacked("a.txt") == "a.txt");
}

TEST_CASE("packed texts: cut and damaged files are refused with the place") {
  for (const std::string& whole : {kFirstMember, kZstdFrame})
    for (size_t length = 4; length < whole.size(); ++length) {
      INFO(length);
      const std::string said = message_of([&] { unpacked(whole.substr(0, length)); });
      CHECK(said.find("'f.gz' is truncated at byte ") == 0);
    }
  std::string damaged = kFirstMember;
  damaged[damaged.size() - 6] ^= 1;  // of the checksum
  CHECK(message_of([&] { unpacked(damaged); }).find("'f.gz' is damaged") == 0);
  CHECK(message_of([&] { unpacked(kFirstMember + "abc"); }).find("'f.gz' is ") == 0);
}

TEST_CASE("packed texts: a data set of packed files has the examples of the plain ones") {
  const TemporaryFolder folder;
  folder.write("b.txt.gz", kFirstMember + kSecondMember);
  folder.write("a.md.zst", kZstdFrame);
  const std::string all = std::filesystem::path(folder.write("c.txt", kBothLines)).parent_path().string();
  folder.write("d.gz", kFirstMember);  // no ending of examples
  const ExampleFormat format{
      ExampleKind::automatic, {}, std::make_shared<ChatTemplate>(ChatTemplate::usual()), "", false};
  ExampleFileOptions options;
  options.path = all;
  std::vector<std::string> texts;
  const ExampleCounts counts = read_examples(options, format, [&](TextExample one) { texts.push_back(one.text); });
  CHECK(counts.examples == 3);
  CHECK(texts == std::vector<std::string>(3, kBothLines));
  CHECK(characters_of_files(all) == U"\n acehmnost");
}

TEST_CASE("packed texts: compressed instructions have rows of their own, like plain ones") {
  const TemporaryFolder folder;
  CorpusOptions options;
  options.datasets.push_back({folder.write("a.jsonl.gz", kTwoInstructions), ExampleKind::automatic, {}, 0, false});
  options.tokenizer = "bytes";
  options.window = 16;
  CHECK_FALSE(holds_texts(options.datasets[0]));
  const Corpus corpus(options);
  CHECK(corpus.counts()[0].examples == 2);
  CHECK(corpus.rows() == 2);
}
