// The host's side of tokenizers: validates what a plugin returns, and transfers any length completely.
#include <catch2/catch.hpp>

#include <cstring>

#include "engine/language/tokenizer.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Ids are bytes; 256 is the begin id, 257 the end id, 258 a long token, 259 half a character.
struct Behaviour {
  TextTokenizerInfo info{260, 256, 257, -1, -1, 4};
  uint32_t score = HX_PROBE_LIKELY;
  size_t repeats = 1;  // ids per byte
  int32_t extra = -1;  // an additional last id
  size_t long_token = 3;
};

class Fake final : public TextTokenizer {
 public:
  explicit Fake(Behaviour b) : b_(b) {}
  TextTokenizerInfo info() const override { return b_.info; }
  std::vector<int32_t> encode(std::string_view text, uint32_t flags) const override {
    std::vector<int32_t> ids;
    if (flags & HX_ENCODE_BOS) ids.push_back(256);
    for (const char c : text)
      for (size_t i = 0; i < b_.repeats; ++i) ids.push_back(static_cast<unsigned char>(c));
    if (flags & HX_ENCODE_EOS) ids.push_back(257);
    if (flags & HX_ENCODE_SPECIAL) ids.push_back(258);
    if (b_.extra >= 0) ids.push_back(b_.extra);
    return ids;
  }
  std::string decode(int32_t id, int32_t previous) const override {
    if (id == 256 || id == 257) return "";
    if (id == 258) return std::string(b_.long_token, 'x');
    if (id == 259) return "\xE2\x82";
    return previous == 256 ? "^" + std::string(1, static_cast<char>(id)) : std::string(1, static_cast<char>(id));
  }

 private:
  Behaviour b_;
};

class FakeFormat final : public TokenizerFormat {
 public:
  explicit FakeFormat(Behaviour b) : b_(b) {}
  uint32_t probe(const FileStart& file) const override { return file.first.substr(0, 4) == "TOKS" ? b_.score : 0; }
  std::unique_ptr<TextTokenizer> open(const TokenizerSource& source, const Arguments& options) const override {
    if (source.bytes() == "TOKSnull") return nullptr;
    if (source.metadata().integer("llama.vocab_size", 260) != 260)
      throw Error(ErrorKind::Weights, "'" + source.path() + "' belongs to another model");
    if (options.has("broken") && options.flag("broken")) throw Error(ErrorKind::Weights, "it is broken");
    return std::make_unique<Fake>(b_);
  }

 private:
  Behaviour b_;
};

std::shared_ptr<const Tokenizer> opened(const Behaviour& behaviour, const TokenizerOptions& options = {},
                                        const ModelMetadata& metadata = {}, const std::string& bytes = "TOKS") {
  Registry registry;
  register_by(registry, [&](FunctionRegistry& r) {
    register_tokenizer(r, "fake", std::make_shared<FakeFormat>(behaviour), "bytes",
                       {Argument::flag("broken", false, "fails")});
  });
  return Tokenizer::read(bytes, "x.tok", registry, options, metadata);
}

}  // namespace

TEST_CASE("tokenizer: text to ids and back") {
  const auto t = opened({});
  CHECK(t->size() == 260);
  CHECK((t->bos() == 256 && t->eos() == 257 && !t->unknown() && !t->padding()));
  CHECK(t->item().name == "fake");
  CHECK(t->encode("ab") == std::vector<int32_t>{256, 'a', 'b'});
  CHECK(t->encode("", {false, false, false}).empty());
  CHECK(t->encode("a", {false, true, false}) == std::vector<int32_t>{'a', 257});
  CHECK(t->encode("a", {true, true, true}) == std::vector<int32_t>{256, 'a', 257, 258});
  CHECK(t->decode('a') == "a");
  CHECK(t->decode('a', 256) == "^a");
  CHECK(t->decode(std::vector<int32_t>{256, 'a', 'b', 257}) == "^ab");
  CHECK(t->decode(std::vector<int32_t>{256, 257, 'a'}) == "^a");  // tokens without text have no effect on others
  CHECK(t->decode(std::vector<int32_t>{}) == "");
}

TEST_CASE("tokenizer: tokens that are parts of characters become whole text") {
  const auto t = opened({});
  CHECK(t->decode(std::vector<int32_t>{259, 0xAC, '!'}) == "\xE2\x82\xAC!");
  CHECK(t->decode(std::vector<int32_t>{259}) == "\xEF\xBF\xBD");
}

TEST_CASE("tokenizer: more ids than bytes and tokens longer than promised arrive whole") {
  Behaviour b;
  b.repeats = 40;
  b.long_token = 100'000;
  const auto t = opened(b);
  CHECK(t->encode("ab", {false, false, false}).size() == 80);
  CHECK(t->decode(258) == std::string(100'000, 'x'));
}

TEST_CASE("tokenizer: results that cannot be are refused with the plugin's name") {
  Behaviour b;
  b.repeats = 1000;
  CHECK(message_of([&] { opened(b)->encode("ab"); }) ==
        "'x.tok': tokenizer 'fake' makes 2001 ids of a text of 2 bytes");
  b = {};
  b.extra = 260;
  CHECK(message_of([&] { opened(b)->encode("ab"); }) ==
        "'x.tok': tokenizer 'fake' encoded the id 260; it has 260 tokens");
  b = {};
  b.long_token = 2 << 20;
  CHECK(message_of([&] { opened(b)->decode(258); }) == "'x.tok': tokenizer 'fake' has a token of 2097152 bytes");
  for (const uint64_t tokens : {uint64_t{0}, uint64_t{1} << 31}) {
    b = {};
    b.info.tokens = tokens;
    CHECK(message_of([&] { opened(b); }).find("there must be 1 to 2147483647") != std::string::npos);
  }
  b = {};
  b.info.eos = 260;
  CHECK(message_of([&] { opened(b); }) == "'x.tok': tokenizer 'fake' gives the end id 260; it has 260 tokens");
  CHECK(message_of([&] { opened({}, {}, {}, "TOKSnull"); }) ==
        "tokenizer 'fake': the tokenizer's format returned nothing");
}

TEST_CASE("tokenizer: ids and text of the caller are checked") {
  const auto t = opened({});
  CHECK(message_of([&] { t->decode(260); }) == "the id 260 is outside the vocabulary of 'x.tok', 0 to 259");
  CHECK(message_of([&] { t->decode(-1); }) == "the id -1 is outside the vocabulary of 'x.tok', 0 to 259");
  CHECK(message_of([&] { t->encode("a\xFF"); }) == "the text is not UTF-8 at byte 1\nconvert it to UTF-8");
}

TEST_CASE("tokenizer: options, the model's metadata and unreadable files") {
  CHECK(message_of([&] { opened({}, {"", {{"broken", "true"}}}); }) == "tokenizer 'fake': it is broken");
  const ModelMetadata other("m.bin", AttributeMap().set("llama.vocab_size", int64_t{261}));
  CHECK(message_of([&] { opened({}, {}, other); }) == "tokenizer 'fake': 'x.tok' belongs to another model");
  CHECK(message_of([&] {
          opened({}, {}, {}, "something");
        }).find("no tokenizer reads 'x.tok' (9 bytes, the first are 73 6f 6d 65 74 68 69 6e)\nknown ones: fake") == 0);
  Registry registry;
  CHECK(message_of([&] { Tokenizer::open("missing.tok", registry); }).find("missing.tok") != std::string::npos);
  const TemporaryFolder folder;
  CHECK(message_of([&] { Tokenizer::open(folder.write("x.tok", ""), registry); }).find("is empty") !=
        std::string::npos);
}
