// The GGUF plugin: layout, tokens, and every error in a file.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <boost/json.hpp>

#include "engine/execution/executable.hpp"
#include "engine/language/decoder.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"
#include "engine/transformer/architectures.hpp"
#include "formats/gguf.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/message_of.hpp"
#include "tests/plugins/gguf_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

const GgufType& type_of(DType dtype) { return *find_gguf_type(dtype); }

// Returns a file of two tensors: w f32 [3, 2] and b f32 [2], with elements numbered from 0.
std::string small_file() {
  GgufWriter writer;
  writer.set_text("general.architecture", "none");
  writer.set("none.count", GgufKind::U32, int64_t{7});
  writer.set("none.share", GgufKind::F32, 0.5);
  writer.set_bool("none.flag", true);
  writer.set("none.list", std::vector<int32_t>{1, -2});
  const uint64_t w = writer.add("w", type_of(DType::F32), {3, 2}), b = writer.add("b", type_of(DType::F32), {2});
  std::string bytes = writer.header();
  const size_t data = bytes.size();
  bytes.resize(data + b + 8);
  for (int i = 0; i < 8; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes.data() + data + (i < 6 ? w + 4 * static_cast<size_t>(i) : b + 4 * static_cast<size_t>(i - 6)),
                &value, sizeof value);
  }
  return bytes;
}

GgufFile parsed(const std::string& bytes) { return read_gguf(bytes, {"x.gguf", ErrorKind::Weights}); }

std::string refused(const std::string& bytes) {
  const std::string text = message_of([&] { parsed(bytes); });
  const size_t at = text.find("'x.gguf' ");
  return at == std::string::npos ? text : text.substr(at + 9, text.find('\n') - at - 9);
}

// Compares with the reference's ids for each text of a vocabulary.
void check_vectors(const std::string& vocabulary, const std::shared_ptr<const Tokenizer>& tokenizer) {
  const std::string path = data_file("ggml-vocab-" + vocabulary + ".gguf.inp");
  const auto texts = parts_of(read_file(path), "\n__ggml_vocab_test__\n");
  const auto rows = parts_of(read_file(path.substr(0, path.size() - 3) + "out"), "\n");
  REQUIRE(texts.size() > 40);
  REQUIRE(rows.size() >= texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream row(rows[i]);
    std::vector<int32_t> expected;
    for (int32_t id; row >> id;) expected.push_back(id);
    INFO(vocabulary << ", text " << i << ": " << texts[i]);
    const std::vector<int32_t> ids = tokenizer->encode(texts[i], {false, false, false});
    CHECK(ids == expected);
    CHECK(tokenizer->decode(ids) == texts[i]);
  }
}

}  // namespace

TEST_CASE("gguf: what is written is read, and its tensors lie where it says") {
  const std::string bytes = small_file();
  const GgufFile file = parsed(bytes);
  CHECK(file.version == 3);
  REQUIRE(file.metadata.size() == 5);
  CHECK(file.find("general.architecture")->text() == "none");
  CHECK(file.find("none.count")->integer() == 7);
  CHECK(file.find("none.share")->number() == 0.5);
  CHECK(file.find("none.share")->integer() == std::nullopt);
  CHECK(file.find("none.flag")->truth() == true);
  CHECK(file.find("none.list")->integers() == std::vector<int64_t>{1, -2});
  CHECK(file.find("none.list")->texts() == std::nullopt);
  CHECK(file.find("none.other") == nullptr);
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "w");
  CHECK(file.tensors[0].shape == std::vector<uint64_t>{3, 2});
  CHECK(file.tensors[0].bytes == 24);
  CHECK(file.tensors[0].offset % 32 == 0);
  float first_of_b = 0;
  std::memcpy(&first_of_b, bytes.data() + file.tensors[1].offset, sizeof first_of_b);
  CHECK(first_of_b == 6);
}

TEST_CASE("gguf: values of every kind are read in every version") {
  for (const uint32_t version : {1u, 2u, 3u}) {
    INFO("version " << version);
    std::string bytes = "GGUF";
    const auto length = [&](uint64_t value) {  // 32 bits in version 1
      version == 1 ? put(bytes, static_cast<uint32_t>(value)) : put(bytes, value);
    };
    const auto text = [&](const std::string& value) {
      length(value.size());
      bytes += value;
    };
    const auto value = [&](GgufKind kind, int number) {
      switch (kind) {
        case GgufKind::U8:
          return put(bytes, static_cast<uint8_t>(number));
        case GgufKind::I8:
          return put(bytes, static_cast<int8_t>(-number));
        case GgufKind::U16:
          return put(bytes, static_cast<uint16_t>(number));
        case GgufKind::I16:
          return put(bytes, static_cast<int16_t>(-number));
        case GgufKind::U32:
          return put(bytes, static_cast<uint32_t>(number));
        case GgufKind::I32:
          return put(bytes, static_cast<int32_t>(-number));
        case GgufKind::F32:
          return put(bytes, static_cast<float>(number) / 2);
        case GgufKind::Bool:
          return put(bytes, static_cast<uint8_t>(number % 2));
        case GgufKind::U64:
          return put(bytes, static_cast<uint64_t>(number));
        case GgufKind::I64:
          return put(bytes, static_cast<int64_t>(-number));
        case GgufKind::F64:
          return put(bytes, static_cast<double>(number) / 4);
        default:
          return text("text " + std::to_string(number));
      }
    };
    const auto key = [&](const std::string& name, GgufKind kind) {
      text(name);
      put(bytes, static_cast<uint32_t>(kind));
    };
    std::vector<GgufKind> kinds;
    for (uint32_t number = 0; number <= static_cast<uint32_t>(GgufKind::F64); ++number)
      if (static_cast<GgufKind>(number) != GgufKind::List) kinds.push_back(static_cast<GgufKind>(number));
    put(bytes, version);
    length(1);
    length(2 * kinds.size() + 1);
    for (const GgufKind kind : kinds) {
      key("one " + std::string(name_of(kind)), kind);
      value(kind, 3);
      key("two " + std::string(name_of(kind)), GgufKind::List);
      put(bytes, static_cast<uint32_t>(kind));
      length(2);
      value(kind, 5);
      value(kind, 6);
    }
    key("lists", GgufKind::List);
    put(bytes, static_cast<uint32_t>(GgufKind::List));
    length(1);
    put(bytes, static_cast<uint32_t>(GgufKind::U8));
    length(3);
    bytes += "abc";
    text("w");
    put<uint32_t>(bytes, 1);
    length(2);
    put<uint32_t>(bytes, 0);
    put<uint64_t>(bytes, 0);
    bytes.resize((bytes.size() + 31) / 32 * 32 + 8);

    const GgufFile file = parsed(bytes);
    CHECK(file.version == version);
    REQUIRE(file.tensors.size() == 1);
    CHECK(file.tensors[0].bytes == 8);
    CHECK(file.find("lists")->items() == GgufKind::List);
    for (const GgufKind kind : kinds) {
      const std::string name(name_of(kind));
      INFO(name);
      const GgufValue &one = *file.find("one " + name), &two = *file.find("two " + name);
      CHECK(one.kind() == kind);
      CHECK(two.items() == kind);
      CHECK(two.size() == 2);
      if (kind == GgufKind::Text) {
        CHECK(one.text() == "text 3");
        CHECK(two.texts() == std::vector<std::string_view>{"text 5", "text 6"});
      } else if (kind == GgufKind::Bool) {
        CHECK(one.truth() == true);
        CHECK(one.number() == std::nullopt);
      } else {
        const bool fraction = kind == GgufKind::F32 || kind == GgufKind::F64;
        const double scale = kind == GgufKind::F32 ? 0.5 : kind == GgufKind::F64 ? 0.25 : name[0] == 'i' ? -1 : 1;
        CHECK(one.number() == 3 * scale);
        CHECK(two.numbers() == std::vector<double>{5 * scale, 6 * scale});
        CHECK(one.integer().has_value() == !fraction);
        CHECK(two.integers().has_value() == !fraction);
      }
    }
  }
}

TEST_CASE("gguf: an entry of the metadata is copied from a file of any version") {
  std::string old = "GGUF";  // version 1: lengths of 32 bits
  put<uint32_t>(old, 1);
  put<uint32_t>(old, 0);
  put<uint32_t>(old, 2);
  const auto short_text = [&](const std::string& text) {
    put<uint32_t>(old, static_cast<uint32_t>(text.size()));
    old += text;
  };
  short_text("name");
  put<uint32_t>(old, 8);
  short_text("value");
  short_text("names");
  put<uint32_t>(old, 9);
  put<uint32_t>(old, 8);
  put<uint32_t>(old, 2);
  short_text("a");
  short_text("bc");
  const GgufFile first = parsed(old);
  CHECK(first.version == 1);
  CHECK(first.find("name")->text() == "value");
  GgufWriter writer;
  for (const GgufMetadata& entry : first.metadata) writer.copy(entry);
  const std::string copied = writer.header();
  const GgufFile second = parsed(copied);
  CHECK(second.version == 3);
  CHECK(second.find("name")->text() == "value");
  CHECK(second.find("names")->texts() == std::vector<std::string_view>{"a", "bc"});
}

TEST_CASE("gguf: every cut of a file is refused, and no length is believed") {
  const std::string bytes = small_file();
  for (size_t end = 0; end + 1 < bytes.size(); ++end) {
    INFO(end);
    CHECK(message_of([&] { parsed(bytes.substr(0, end)); }).find("'x.gguf' is not a GGUF file: at byte ") == 0);
  }
  const auto with = [&](size_t at, auto value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return refused(changed);
  };
  CHECK(with(0, 'g') == "is not a GGUF file: at byte 0, it does not begin with 'GGUF'");
  CHECK(with(4, uint32_t{4}) == "is a GGUF file of version 4; versions 1 to 3 can be read");
  CHECK(with(4, uint32_t{0x03000000}) == "is a GGUF file of a big-endian machine");
  CHECK(with(8, uint64_t{10000}).find("is not a GGUF file: at byte 8, 10000 tensors cannot be described") == 0);
  CHECK(with(16, uint64_t{4000}).find("keys of metadata cannot be in the") != std::string::npos);
  CHECK(with(24, ~uint64_t{0}).find("at byte 24, a key is 18446744073709551615 bytes long; the limit is 65536") !=
        std::string::npos);
  const size_t w = bytes.find(std::string("\1\0\0\0\0\0\0\0w", 9)) + 9;
  REQUIRE(w > 9);
  CHECK(with(w, uint32_t{5}) ==
        "is not a GGUF file: at byte " + std::to_string(w) + ", tensor 'w': it has 5 axes; the limit is 4");
  CHECK(with(w + 4, uint64_t{1} << 62).find("tensor 'w': its size overflows") != std::string::npos);
  CHECK(with(w + 4, uint64_t{200}).find("tensor 'w': its 2400 bytes from 0 of the data on end beyond the file") !=
        std::string::npos);
  CHECK(with(w + 20, uint32_t{4}).find("tensor 'w': the type 4 is unknown") != std::string::npos);
  CHECK(with(w + 20, uint32_t{8}).find("tensor 'w': rows of 2 elements are not whole blocks of Q8_0") !=
        std::string::npos);
  CHECK(with(w + 24, uint64_t{8}).find("tensor 'w': the offset 8 is not a multiple of 32") != std::string::npos);
  const size_t b = bytes.find(std::string("\1\0\0\0\0\0\0\0b", 9)) + 9;
  CHECK(with(b + 16, uint64_t{0}).find("the tensors 'w' and 'b' overlap") != std::string::npos);
  const size_t flag = bytes.find("none.flag") + 9 + 4;
  CHECK(with(flag, '\2').find("metadata 'none.flag': a bool is 2") != std::string::npos);
  std::string twice = bytes;
  twice[bytes.find("none.flag") + 5] = 's';
  std::memcpy(twice.data() + bytes.find("none.flag"), "none.list", 9);
  CHECK(refused(twice).find("metadata 'none.list': the key occurs twice") != std::string::npos);
}

TEST_CASE("gguf: lists are nested four deep at most") {
  const auto nested = [](int depth) {
    std::string bytes = "GGUF";
    put<uint32_t>(bytes, 3);
    put<uint64_t>(bytes, 0);
    put<uint64_t>(bytes, 1);
    put_text(bytes, "deep");
    for (int i = 0; i < depth; ++i) {
      put<uint32_t>(bytes, 9);
      if (i > 0) put<uint64_t>(bytes, 1);
    }
    put<uint32_t>(bytes, 0);
    put<uint64_t>(bytes, 1);
    bytes += '\7';
    return bytes + std::string(32, '\0');
  };
  CHECK(parsed(nested(4)).find("deep")->kind() == GgufKind::List);
  CHECK(refused(nested(6)).find("lists are nested more than 4 deep") != std::string::npos);
}

TEST_CASE("gguf: a model in several files is one model") {
  const journeys::Folder folder;
  const auto part = [&](int64_t number, const char* tensor) {
    GgufWriter writer;
    if (number == 0) writer.set_text("general.architecture", "none");
    writer.set("split.no", GgufKind::U16, number);
    writer.set("split.count", GgufKind::U16, int64_t{2});
    writer.set("split.tensors.count", GgufKind::I32, int64_t{2});
    writer.add(tensor, type_of(DType::F32), {2});
    std::string bytes = writer.header();
    put(bytes, static_cast<float>(number));
    put(bytes, 5.0f);
    return bytes;
  };
  const std::string path = folder.write("m-00001-of-00002.gguf", part(0, "a"));
  CHECK(message_of([&] { import_model(path, Registry::global()); }).find("m-00002-of-00002.gguf") != std::string::npos);
  folder.write("m-00002-of-00002.gguf", part(1, "b"));
  const ImportedModel model = import_model(path, Registry::global());
  REQUIRE(model.tensors.size() == 2);
  CHECK(static_cast<const float*>(model.tensor("b").bytes())[0] == 1);
  folder.write("m-00002-of-00002.gguf", part(0, "b"));
  CHECK(message_of([&] {
          import_model(path, Registry::global());
        }).find("'m-00002-of-00002.gguf' is not part 2 of 2") != std::string::npos);
  const std::string second = folder.write("m-00002-of-00002.gguf", part(1, "b"));
  CHECK(message_of([&] { import_model(second, Registry::global()); }).find("is part 2 of 2") != std::string::npos);
}

TEST_CASE("gguf: the tokens of byte-pair vocabularies are the reference's") {
  for (const char* vocabulary : {"gpt-2", "starcoder"})
    if (const std::string path = data_file(std::string("ggml-vocab-") + vocabulary + ".gguf"); !path.empty())
      check_vectors(vocabulary, Tokenizer::open(path, Registry::global()));
}

TEST_CASE("gguf: the words of qwen2 are the reference's") {
  const std::string data = journeys::data_folder() + "/tokenizer/qwen2/";
  if (data_file("ggml-vocab-qwen2.gguf.inp").empty() || !std::filesystem::exists(data + "vocab.json")) return;
  check_vectors("qwen2", tokenizer_of(byte_pair_file(data, "qwen2")));
}

TEST_CASE("gguf: byte pairs are joined in the order of the merges") {
  const std::vector<std::string> tokens = {"a",
                                           "b",
                                           "c",
                                           "\xC4\xA0",
                                           "ab",
                                           "bc",
                                           "abc",
                                           "<end>",
                                           "\xC4\xA0"
                                           "a"};
  const std::vector<int32_t> kinds = {1, 1, 1, 1, 1, 1, 1, 3, 1};
  const auto tokenizer =
      tokenizer_of(vocabulary_file("gpt2", tokens, kinds, {}, {"b c", "a b", "a bc", "\xC4\xA0 a"}, "gpt-2"));
  using Ids = std::vector<int32_t>;
  CHECK(tokenizer->encode("abc", {}) == Ids{6});
  CHECK(tokenizer->encode("ab", {}) == Ids{4});
  CHECK(tokenizer->encode("abab", {}) == Ids{4, 4});
  CHECK(tokenizer->encode("a ab", {}) == Ids{0, 3, 4});  // "a b" precedes "Ġ a"
  CHECK(tokenizer->encode("a a", {}) == Ids{0, 8});
  CHECK(tokenizer->encode("<end>", {}) == Ids{});  // no tokens for its characters, no unknown token
  CHECK(tokenizer->encode("a<end>b", {false, false, true}) == Ids{0, 7, 1});
  CHECK(tokenizer->decode(Ids{8, 7, 6}) == " aabc");
  CHECK(message_of([&] {
          tokenizer_of(vocabulary_file("gpt2", tokens, kinds, {}, {"bc"}, "gpt-2"));
        }).find("'tokenizer.ggml.merges' has the item 0, 'bc', which is not two parts") != std::string::npos);
  CHECK(message_of([&] {
          tokenizer_of(vocabulary_file("gpt2", tokens, kinds, {}, {"b c"}, "martian"));
        }).find("'tokenizer.ggml.pre' is 'martian', a way to divide words that is not known") != std::string::npos);
}

TEST_CASE("gguf: sentence pieces are joined by their scores, and the rest is bytes") {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> kinds = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(name);
    kinds.push_back(6);
    scores.push_back(0);
  }
  const std::string space = "\xE2\x96\x81";
  for (const auto& [piece, score] :
       std::vector<std::pair<std::string, float>>{{space, -1}, {"a", -2}, {"b", -3}, {"ab", -5}, {space + "a", -4}}) {
    tokens.push_back(piece);
    kinds.push_back(1);
    scores.push_back(score);
  }
  const auto tokenizer = tokenizer_of(vocabulary_file("llama", tokens, kinds, scores));
  using Ids = std::vector<int32_t>;
  CHECK(tokenizer->encode("ab", {false, false, false}) == Ids{263, 261});  // "_a" scores above "ab"
  CHECK(tokenizer->encode("bab", {false, false, false}) == Ids{259, 261, 262});
  CHECK(tokenizer->encode("a\n", {false, false, false}) == Ids{263, 3 + '\n'});
  CHECK(tokenizer->decode(tokenizer->encode("a b \xC3\xA9", {false, false, false})) == "a b \xC3\xA9");
  CHECK(tokenizer->encode("<s>", {false, false, true}) == Ids{1});
  CHECK(tokenizer->encode("ab", {true, true, false}) == Ids{1, 263, 261, 2});  // the ids that llama.cpp takes
  CHECK(message_of([&] {
          tokenizer_of(vocabulary_file("llama", tokens, kinds, {0, 1}));
        }).find("'tokenizer.ggml.scores' has 2 items; there are 264 tokens") != std::string::npos);
  CHECK(message_of([&] {
          tokenizer_of(vocabulary_file("elvish", tokens, kinds, scores));
        }).find("'tokenizer.ggml.model' is 'elvish'; the kinds that can be read are llama") != std::string::npos);
}

TEST_CASE("gguf: texts of Unigram get a space where the file says so, or collapses spaces") {
  const std::string space = "\xE2\x96\x81";
  const auto ids = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer;
    writer.set_text("tokenizer.ggml.model", "t5");
    writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"<pad>", "</s>", "<unk>", "a", space + "a"});
    writer.set("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 2, 1, 1});
    writer.set("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -1});
    change(writer);
    return tokenizer_of(writer.header())->encode("a", {.whole = true});
  };
  using Ids = std::vector<int32_t>;
  CHECK(ids([](GgufWriter&) {}) == Ids{3, 1});
  CHECK(ids([](GgufWriter& w) { w.set_bool("tokenizer.ggml.add_space_prefix", true); }) == Ids{4, 1});
  CHECK(ids([](GgufWriter& w) { w.set_bool("tokenizer.ggml.remove_extra_whitespaces", true); }) == Ids{4, 1});
}

TEST_CASE("gguf: BERT strips accents as the file says, else where it lowers") {
  const std::string space = "\xE2\x96\x81", upper = "\xC3\x89", lower = "\xC3\xA9";
  const auto id = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer;
    writer.set_text("tokenizer.ggml.model", "bert");
    writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", space + upper,
                                                                 space + lower, space + "E", space + "e"});
    change(writer);
    return tokenizer_of(writer.header())->encode(upper, {.begin = false}).at(0);
  };
  const auto lowers = [](bool value) {
    return [value](GgufWriter& w) { w.set_bool("tokenizer.ggml.normalizer.lowercase", value); };
  };
  const auto strips = [](bool value) {
    return [value](GgufWriter& w) { w.set_bool("tokenizer.ggml.normalizer.strip_accents", value); };
  };
  CHECK(id([](GgufWriter&) {}) == 7);
  CHECK(id(lowers(false)) == 4);
  CHECK(id(strips(false)) == 5);
  CHECK(id([&](GgufWriter& w) {
          lowers(false)(w);
          strips(true)(w);
        }) == 6);
}

TEST_CASE("gguf: a list of bools is read as integers") {
  GgufWriter lists;  // of no bools
  lists.set("windows", std::vector<int32_t>{1, 0});
  std::string bytes = lists.header();
  const size_t kind = bytes.find("windows") + std::strlen("windows") + 4;
  const std::string items("\7\0\0\0\2\0\0\0\0\0\0\0\1\0", 14);  // kind 7, two items
  bytes.replace(kind, 4 + 8 + 2 * 4, items + std::string(6, '\0'));
  CHECK(read_gguf(bytes, {"lists.gguf", ErrorKind::Weights}).find("windows")->integers() == std::vector<int64_t>{1, 0});
}

TEST_CASE("gguf: the scores of a whole model are the reference's") {
  const std::string path = data_file("llama-2-tiny-random.gguf");
  if (path.empty()) return;
  const auto expected = boost::json::parse(read_file(path.substr(0, path.size() - 4) + "expected.json"));
  const ImportedModel imported = import_model(path, Registry::global());
  CHECK(imported.importer->identity() == "harmonics.gguf/gguf");
  CHECK(imported.metadata.integer("@len:tokenizer.ggml.tokens") == 32000);
  const auto tokenizer = Tokenizer::open(path, Registry::global(), {}, imported.metadata);
  const std::vector<int32_t> ids = tokenizer->encode("Hello world");
  CHECK(ids == boost::json::value_to<std::vector<int32_t>>(expected.at("input_ids")));
  CHECK(tokenizer->decode(ids) == "Hello world");
  const Model model = model_of(imported);
  const auto executor = make_team_executor(2);
  Decoder decoder(model, *executor);
  Session session(decoder);
  const auto& rows = expected.at("logits_first_16_of_each_position").as_array();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const float> scores = session.append({&ids[i], 1});
    const auto row = boost::json::value_to<std::vector<double>>(rows[i]);
    for (size_t j = 0; j < row.size(); ++j) CHECK(scores[j] == Approx(row[j]).margin(1e-3));
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    CHECK(best == expected.at("argmax_of_each_position").as_array()[i].as_int64());
  }
}
