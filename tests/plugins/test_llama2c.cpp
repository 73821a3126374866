// The llama2.c plugin: layout, tokens, and every error in a file.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/message_of.hpp"
#include "tests/plugins/llama2c_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

ImportedModel imported(const std::string& bytes, const ImportOptions& options = {}) {
  const journeys::Folder folder;
  return import_model(folder.write("model.bin", bytes), Registry::global(), options);
}

std::string refused(const std::string& bytes) {
  const std::string text = message_of([&] { imported(bytes, {"llama2c", {}}); });
  const size_t at = text.find("model.bin' ");
  return at == std::string::npos ? text : text.substr(at + 11);
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Pieces& pieces) {
  return Tokenizer::read(vocabulary_file(pieces), "tok.bin", Registry::global());
}

std::string refused_tokens(const std::string& bytes) {
  const std::string text = message_of([&] { Tokenizer::read(bytes, "tok.bin", Registry::global(), {"llama2c", {}}); });
  const size_t at = text.find("tokenizer: at byte ");
  return at == std::string::npos ? text : text.substr(at + 11);
}

// Merges by examining all pairs in every round.
std::vector<int32_t> merged_plainly(const Pieces& pieces, std::vector<int32_t> ids) {
  for (;;) {
    float best = -INFINITY;
    size_t at = ids.size();
    int32_t found = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (ids[i] > 258 && ids[i + 1] > 258) {
        const std::string joined =
            pieces[static_cast<size_t>(ids[i])].first + pieces[static_cast<size_t>(ids[i + 1])].first;
        for (size_t id = 259; id < pieces.size(); ++id)
          if (pieces[id].first == joined) {
            if (pieces[id].second > best) best = pieces[id].second, at = i, found = static_cast<int32_t>(id);
            break;
          }
      }
    if (at == ids.size()) return ids;
    ids[at] = found;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::vector<double> numbers_after(const std::string& json, const std::string& key) {
  std::vector<double> all;
  const char* at = json.c_str() + json.find("[", json.find("\"" + key + "\""));
  while (*at != ']') {
    char* end = nullptr;
    all.push_back(std::strtod(at + 1, &end));
    at = end;
    while (*at == ' ') ++at;
  }
  return all;
}

// ---- a forward pass of one token at position 0, in plain loops: attention sees this token only ----

using Vector = std::vector<double>;

Vector values_of(const HTensor& t) {
  const auto* at = static_cast<const float*>(t.bytes());
  return {at, at + t.size()};
}
Vector times(const HTensor& matrix, const Vector& x) {
  const Vector m = values_of(matrix);
  Vector y(m.size() / x.size());
  for (size_t i = 0; i < m.size(); ++i) y[i / x.size()] += m[i] * x[i % x.size()];
  return y;
}
Vector normed(const Vector& x, const HTensor& gain) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Vector y = values_of(gain);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  return y;
}
Vector logits_of_first(const ImportedModel& model, size_t token) {
  const Vector all = values_of(model.tensor("token_embd.weight"));
  const auto dim = static_cast<size_t>(model.metadata.integer("llama.embedding_length"));
  const auto heads = static_cast<size_t>(model.metadata.integer("llama.attention.head_count")),
             of_kv = heads / static_cast<size_t>(model.metadata.integer("llama.attention.head_count_kv"));
  Vector x(all.begin() + static_cast<std::ptrdiff_t>(token * dim),
           all.begin() + static_cast<std::ptrdiff_t>((token + 1) * dim));
  const auto add = [&](const Vector& y) {
    for (size_t i = 0; i < dim; ++i) x[i] += y[i];
  };
  for (int64_t l = 0; l < model.metadata.integer("llama.block_count"); ++l) {
    const auto weight = [&](const char* name) {
      return model.tensor("blk." + std::to_string(l) + "." + name + ".weight");
    };
    const Vector v = times(weight("attn_v"), normed(x, weight("attn_norm")));
    Vector attended(dim);
    for (size_t i = 0; i < dim; ++i) attended[i] = v[i / (dim / heads) / of_kv * (dim / heads) + i % (dim / heads)];
    add(times(weight("attn_output"), attended));
    const Vector h = normed(x, weight("ffn_norm")), up = times(weight("ffn_up"), h);
    Vector gate = times(weight("ffn_gate"), h);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    add(times(weight("ffn_down"), gate));
  }
  const HTensor* own = model.find("output.weight");
  return times(own ? *own : model.tensor("token_embd.weight"), normed(x, model.tensor("output_norm.weight")));
}

}  // namespace

TEST_CASE("llama2c: a checkpoint's tensors lie where its layout says") {
  const SmallCheckpoint small;
  const ImportedModel model = imported(small.file());
  CHECK(model.importer->identity() == "harmonics.llama2c/llama2c");
  CHECK(model.architecture() == "llama");
  CHECK(model.tensors.size() == 2 + 9 * 2);
  CHECK(model.find("output.weight") == nullptr);  // shared with the embedding
  struct Row {
    const char* name;
    Shape shape;
    int first;  // value of its first element
  };
  const Row rows[] = {
      {"token_embd", {5, 8}, 0},          {"blk.0.attn_norm", {8}, 40},       {"blk.1.attn_norm", {8}, 48},
      {"blk.0.attn_q", {8, 8}, 56},       {"blk.1.attn_q", {8, 8}, 120},      {"blk.0.attn_k", {4, 8}, 184},
      {"blk.1.attn_k", {4, 8}, 216},      {"blk.0.attn_v", {4, 8}, 248},      {"blk.1.attn_v", {4, 8}, 280},
      {"blk.0.attn_output", {8, 8}, 312}, {"blk.1.attn_output", {8, 8}, 376}, {"blk.0.ffn_norm", {8}, 440},
      {"blk.1.ffn_norm", {8}, 448},       {"blk.0.ffn_gate", {6, 8}, 456},    {"blk.1.ffn_gate", {6, 8}, 504},
      {"blk.0.ffn_down", {8, 6}, 552},    {"blk.1.ffn_down", {8, 6}, 600},    {"blk.0.ffn_up", {6, 8}, 648},
      {"blk.1.ffn_up", {6, 8}, 696},      {"output_norm", {8}, 744}};
  for (const Row& row : rows) {
    INFO(row.name);
    const HTensor& t = model.tensor(std::string(row.name) + ".weight", {DType::F32, row.shape});
    CHECK(values_of(t).front() == row.first);
    CHECK(values_of(t).back() == row.first + static_cast<double>(t.size()) - 1);
  }
  CHECK(model.parameters() == 752);
  const std::pair<const char*, int64_t> metadata[] = {{"vocab_size", 5},
                                                      {"context_length", 3},
                                                      {"embedding_length", 8},
                                                      {"block_count", 2},
                                                      {"feed_forward_length", 6},
                                                      {"attention.head_count", 4},
                                                      {"attention.head_count_kv", 2},
                                                      {"rope.dimension_count", 2}};
  for (const auto& [key, value] : metadata) CHECK(model.metadata.integer("llama." + std::string(key)) == value);
  CHECK(model.metadata.number("llama.rope.freq_base") == 10000);
  CHECK(model.metadata.number("llama.attention.layer_norm_rms_epsilon") == 1e-5);
  CHECK(model.metadata.text("llama.rope.pairing") == "interleaved");
  CHECK(imported(small.file(), {"", {{"rope_base", "500000"}}}).metadata.number("llama.rope.freq_base") == 500000);
}

TEST_CASE("llama2c: a classifier of its own follows the table of rotations") {
  SmallCheckpoint small;
  small.shared = false;
  const ImportedModel model = imported(small.file());
  const HTensor& output = model.tensor("output.weight", {DType::F32, {5, 8}});
  CHECK(values_of(output).front() == 752 + 2 * 3 * 1);
  CHECK(model.metadata.integer("llama.vocab_size") == 5);
}

TEST_CASE("llama2c: wrong checkpoints are refused with the place, what was found, and the remedy") {
  const SmallCheckpoint small;
  const std::string file = small.file();
  const auto with = [&](auto change) {
    SmallCheckpoint other = small;
    change(other);
    return refused(other.header());
  };
  const std::string no = "is not a llama2.c checkpoint: ";
  CHECK(refused("") == no + "it has 0 bytes; the header alone has 28");
  CHECK(refused(file.substr(0, 27)) == no + "it has 27 bytes; the header alone has 28");
  CHECK(with([](auto& c) { c.dim = 0; }) == no + "at byte 0, dim is 0; it must be 1 to 67108864");
  CHECK(with([](auto& c) { c.hidden = -6; }) == no + "at byte 4, hidden_dim is -6; it must be 1 to 67108864");
  CHECK(with([](auto& c) { c.layers = 5000; }) == no + "at byte 8, n_layers is 5000; it must be 1 to 4096");
  CHECK(with([](auto& c) { c.heads = 3; }) == no + "at byte 12, n_heads is 3; it must divide dim 8 into even parts");
  CHECK(with([](auto& c) { c.heads = 8; }) == no + "at byte 12, n_heads is 8; it must divide dim 8 into even parts");
  CHECK(with([](auto& c) { c.kv_heads = 3; }) == no + "at byte 16, n_kv_heads is 3; it must divide n_heads 4");
  CHECK(with([](auto& c) { c.vocabulary = INT32_MIN; }).find("vocab_size is 2147483648") != std::string::npos);
  CHECK(with([](auto& c) { c.context = 0; }).find("at byte 24, seq_len is 0") != std::string::npos);
  CHECK(with([](auto& c) { c = {1 << 26, 1 << 26, 4096, 1, 1, 1 << 26, 1 << 26, true}; }) ==
        no + "the size that its header gives overflows");
  CHECK(refused(file.substr(0, file.size() - 1)) ==
        "has 3059 bytes; the header of a llama2.c checkpoint gives 3060\nthe file is truncated: copy it again");
  CHECK(refused(file + "x").find("has 3061 bytes; the header of a llama2.c checkpoint gives 3060\n") == 0);
  CHECK(refused("24ka\x01") ==
        "is a llama2.c checkpoint of a later version; version 0 can be read\nexport the model with --version 0");
}

TEST_CASE("llama2c: a truncated or later checkpoint is recognised, other files are not") {
  const SmallCheckpoint small;
  const std::string file = small.file();
  Registry& registry = Registry::global();
  CHECK(is_importable("m.bin", file, registry));
  CHECK(is_importable("m.bin", file.substr(0, 100), registry));
  CHECK(is_importable("m.bin", "24ka", registry));
  for (const std::string& other : {std::string(), std::string("24k"), std::string(100, '\0'), std::string(100, 'a'),
                                   vocabulary_file(first_pieces())})
    CHECK(!is_importable("m.bin", other, registry));
}

TEST_CASE("llama2c: encoding merges the pair with the highest score, of equal ones the first") {
  Pieces pieces = first_pieces();
  const auto add = [&](const char* piece, float score) {
    pieces.emplace_back(piece, score);
    return static_cast<int32_t>(pieces.size() - 1);
  };
  const int32_t space = add(" ", -10), a = add("a", -9), b = add("b", -8), ab = add("ab", -1), ba = add("ba", -2),
                space_a = add(" a", -3), aba = add("aba", -4), e = add("\xC3\xA9", -5), aa = add("aa", -6);
  const auto t = tokenizer_of(pieces);
  const EncodeOptions plain{false, false, false};
  CHECK(t->size() == static_cast<int32_t>(pieces.size()));
  CHECK((t->bos() == 1 && t->eos() == 2 && t->unknown() == 0));
  CHECK(t->encode("", plain).empty());
  CHECK(t->encode("") == std::vector<int32_t>{1});
  CHECK(t->encode("", {true, true, false}) == std::vector<int32_t>{1, 2});
  CHECK(t->encode("ab", plain) == std::vector<int32_t>{space, ab});
  CHECK(t->encode("aba", plain) == std::vector<int32_t>{space, aba});
  CHECK(t->encode("a", plain) == std::vector<int32_t>{space_a});
  CHECK(t->encode("ba", plain) == std::vector<int32_t>{space, ba});
  CHECK(t->encode("aaaa", plain) == std::vector<int32_t>{space_a, aa, a});
  CHECK(t->encode("bb", plain) == std::vector<int32_t>{space, b, b});
  CHECK(t->encode("\xC3\xA9", plain) == std::vector<int32_t>{space, e});
  CHECK(t->encode("\xE2\x82\xACz", plain) == std::vector<int32_t>{space, 3 + 0xE2, 3 + 0x82, 3 + 0xAC, 3 + 'z'});
  CHECK(t->encode("<s>", plain) == std::vector<int32_t>{space, 3 + '<', 3 + 's', 3 + '>'});
}

TEST_CASE("llama2c: a queue of pairs merges as looking at all pairs does") {
  Pieces pieces = first_pieces();
  for (const char* piece : {" ", "a", "b", "c"}) pieces.emplace_back(piece, 0.0f);
  uint32_t random = 1;
  const auto next = [&](uint32_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  for (int i = 0; i < 60; ++i) {
    const std::string joined = pieces[259 + next(static_cast<uint32_t>(pieces.size()) - 259)].first +
                               pieces[259 + next(static_cast<uint32_t>(pieces.size()) - 259)].first;
    if (joined.size() <= 8) pieces.emplace_back(joined, -static_cast<float>(next(12)));
  }
  const auto t = tokenizer_of(pieces);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    std::vector<int32_t> characters{259};
    for (uint32_t n = next(40) + 1; n > 0; --n) {
      const auto letter = next(3);
      text += static_cast<char>('a' + letter);
      characters.push_back(260 + static_cast<int32_t>(letter));
    }
    INFO(text);
    CHECK(t->encode(text, {false, false, false}) == merged_plainly(pieces, characters));
    CHECK(t->decode(t->encode(text)) == text);
  }
}

TEST_CASE("llama2c: a long text is encoded without comparing all pairs again and again") {
  Pieces pieces = first_pieces();
  for (const char* piece : {" ", "a", "aa", "aaaa", "aaaaaaaa"})
    pieces.emplace_back(piece, static_cast<float>(pieces.size()));
  const auto t = tokenizer_of(pieces);
  const std::string text(1 << 20, 'a');
  const std::vector<int32_t> ids = t->encode(text, {false, false, false});
  CHECK(ids.size() == (1 << 17) + 1);
}

TEST_CASE("llama2c: decoding takes the space after the begin away and makes bytes of their tokens") {
  Pieces pieces = first_pieces();
  pieces.insert(pieces.end(), {{" a", -1.0f}, {"b", -2.0f}, {" ", -3.0f}});
  const auto t = tokenizer_of(pieces);
  CHECK(t->decode(259, 1) == "a");
  CHECK(t->decode(259, 260) == " a");
  CHECK(t->decode(259) == " a");
  CHECK(t->decode(3 + 0x0A) == "\n");
  CHECK(t->decode(3) == std::string(1, '\0'));
  CHECK(t->decode(1).empty());
  CHECK(t->decode(2).empty());
  CHECK(t->decode(0) == "<unk>");
  CHECK(t->decode(std::vector<int32_t>{1, 259, 260, 3 + 0xC3, 3 + 0xA9, 2}) == "ab\xC3\xA9");
}

TEST_CASE("llama2c: a vocabulary without tokens for bytes has the unknown token instead") {
  Pieces pieces = first_pieces(false);
  pieces.insert(pieces.end(), {{"a", -1.0f}, {"b", -2.0f}});
  const auto t = tokenizer_of(pieces);
  CHECK(t->encode("axb", {false, false, false}) == std::vector<int32_t>{3, 0, 4});
}

TEST_CASE("llama2c: wrong tokenizers are refused with the place, what was found, and the remedy") {
  const std::string file = vocabulary_file(first_pieces(false));
  CHECK(refused_tokens("") == "at byte 0, the length of the longest token is missing; it must be 1 to 65536");
  CHECK(refused_tokens(std::string(4, '\0')) ==
        "at byte 0, the length of the longest token is 0; it must be 1 to 65536");
  CHECK(refused_tokens(file.substr(0, 10)) == "at byte 4, token 0 ends with the file");
  CHECK(refused_tokens(file.substr(0, 14)) == "at byte 12, token 0 ends with the file");
  CHECK(refused_tokens(file.substr(0, 17)) == "at byte 17, there are fewer tokens than <unk>, <s> and </s>");
  CHECK(refused_tokens(vocabulary_file({{"<unk>", NAN}})) == "at byte 4, token 0 has a score that is not a number");
  CHECK(refused_tokens(vocabulary_file(first_pieces(), 5)) ==
        "at byte 34, token 2 has a length of 6; the longest has 5");
  CHECK(message_of([&] {
          Tokenizer::read(file.substr(0, 17), "tok.bin", Registry::global());
        }).find("no tokenizer reads 'tok.bin'") == 0);
  const ModelMetadata other("m.bin", AttributeMap().set("llama.vocab_size", int64_t{4}));
  CHECK(message_of([&] { Tokenizer::read(file, "tok.bin", Registry::global(), {}, other); }) ==
        "'tok.bin' has 3 tokens, the model has 4\n"
        "use the tokenizer that the model was trained with");
}

TEST_CASE("llama2c: inspect shows models and tokenizers") {
  const journeys::Folder folder;
  const std::string model = folder.write("model.bin", SmallCheckpoint().file()),
                    tokens = folder.write("tok.bin", vocabulary_file(first_pieces()));
  const journeys::Result shown = journeys::harmonics("inspect " + model);
  CHECK(shown.code == 0);
  CHECK(journeys::has(shown.out, "model " + model + "\n  read by     importer llama2c\n  parameters  752\n"));
  CHECK(journeys::has(shown.out, "  llama.block_count = 2\n"));
  CHECK(journeys::has(shown.out, "20 tensors\n  blk.0.attn_k.weight"));
  const journeys::Result json = journeys::harmonics("inspect --json " + model);
  CHECK(journeys::has(json.out, "\"importer\":\"llama2c\",\"parameters\":752"));
  const auto fits_schema = [](const std::string& printed) {
    const std::string schema = journeys::read(HARMONICS_SOURCE_DIR "/docs/schema/inspect.json");
    CHECK(journeys::SchemaCheck::run(boost::json::parse(schema), boost::json::parse(printed)).empty());
  };
  fits_schema(json.out);
  fits_schema(journeys::harmonics("inspect --json " + tokens).out);
  CHECK(journeys::has(json.out, "{\"name\":\"output_norm.weight\",\"dtype\":\"f32\",\"shape\":[8]}"));
  CHECK(
      journeys::has(journeys::harmonics("inspect " + tokens).out,
                    "tokenizer " + tokens + "\n  read by     tokenizer llama2c\n  tokens      259\n  begin       1\n"));
  CHECK(journeys::has(journeys::harmonics("inspect --json " + tokens).out,
                      "\"tokens\":259,\"ids\":{\"begin\":1,\"end\":2,\"unknown\":0}"));
  const journeys::Result cut =
      journeys::harmonics("inspect " + folder.write("cut.bin", SmallCheckpoint().file().substr(0, 99)));
  CHECK(cut.code != 0);
  CHECK(journeys::has(cut.err, "the file is truncated: copy it again"));
}

TEST_CASE("llama2c: the library passes the checks of plugins, with and without a file") {
  const journeys::Folder folder;
  const std::string model = folder.write("model.bin", SmallCheckpoint().file()),
                    library = HARMONICS_BINARY_DIR "/lib/harmonics/plugins/libharmonics_llama2c.so";
  const journeys::Result r = journeys::harmonics("plugin check --calls 1000 " + library + " --address " + model);
  CHECK(r.code == 0);
  CHECK(journeys::has(r.out, "importer llama2c\n  ok      reads or refuses any bytes: "));
  CHECK(journeys::has(r.out, "  ok      reads the file: 20 tensors, 752 numbers\n"));
  CHECK(journeys::has(r.out, "reads the file: its probe does not recognise the file"));  // the tokenizer
  CHECK(journeys::has(r.out, " 0 failed"));
  const std::string tokens = folder.write("tok.bin", vocabulary_file(first_pieces()));
  CHECK(journeys::has(journeys::harmonics("plugin check --calls 1000 " + library + " --address " + tokens).out,
                      "  ok      reads the file: 259 tokens; a text comes back "));
}

TEST_CASE("llama2c: a trained model gives the reference's logits, and its tokens the reference's text") {
  const std::string data = journeys::data_folder();
  if (data.empty()) return;
  const std::string folder = data + "/llama2c/", json = journeys::read(folder + "stories260K.expected.json");
  const ImportedModel model = import_model(folder + "stories260K.bin", Registry::global());
  CHECK(model.parameters() == 260'032);
  const Vector logits = logits_of_first(model, 1), expected = numbers_after(json, "logits_after_BOS_at_position_0");
  REQUIRE(logits.size() == 512);
  REQUIRE(expected.size() == 512);
  for (size_t i = 0; i < 512; ++i) {
    INFO(i);
    CHECK(logits[i] == Approx(expected[i]).margin(2e-5));
  }
  const auto t = Tokenizer::open(folder + "tok512.bin", Registry::global(), {}, model.metadata);
  const std::vector<double> numbers = numbers_after(json, "tokens_greedy");
  std::string text = journeys::read(folder + "stories260K.expected.txt");
  CHECK(t->decode(std::vector<int32_t>(numbers.begin(), numbers.end())) ==
        text.substr(0, text.find_last_not_of('\n') + 1));
  CHECK(t->encode("Once upon a time") == std::vector<int32_t>(numbers.begin(), numbers.begin() + 5));
  CHECK(t->decode(t->encode(text)) == text);
  const std::string strange = "  two  spaces, \xF0\x9F\x98\x80 \xE2\x84\xA2\n";
  CHECK(t->decode(t->encode(strange)) == strange);
}
