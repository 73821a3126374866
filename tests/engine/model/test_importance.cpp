// Importance matrices: both of their file formats, and collecting them from a model.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include <harmonics/ops.hpp>

#include "engine/model/gather_importance.hpp"
#include "engine/model/importance.hpp"
#include "tests/message_of.hpp"
#include "tests/plugins/gguf_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

void put_number(std::string& to, int32_t value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); }

std::string binary_form(const std::vector<float>& sums, int32_t calls, const std::string& end = "") {
  const std::string name = "blk.0.attn_q.weight";
  std::string bytes;
  put_number(bytes, 1);
  put_number(bytes, static_cast<int32_t>(name.size()));
  bytes += name;
  put_number(bytes, calls);
  put_number(bytes, static_cast<int32_t>(sums.size()));
  bytes.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(float));
  return bytes + end;
}

ImportanceMatrix importance_of(const std::string& bytes) {
  return read_importance(bytes, {"i.dat", ErrorKind::Weights});
}

}  // namespace

TEST_CASE("importance: what is written is read back") {
  const journeys::Folder folder;
  ImportanceMatrix matrix;
  matrix.tensors["blk.0.attn_q.weight"] = {3, {1, 2, 9}, {4}};
  matrix.tensors["blk.0.ffn_up_exps.weight"] = {2, {1, 3, 0, 0}, {2, 0}};
  matrix.datasets = {"a.txt", "b.txt"};
  matrix.chunks = 7;
  matrix.chunk_tokens = 512;
  write_importance(matrix, folder / "i.gguf");
  const ImportanceMatrix again = read_importance(folder / "i.gguf");
  CHECK(again.datasets == matrix.datasets);
  CHECK(again.chunks == 7);
  CHECK(again.chunk_tokens == 512);
  REQUIRE(again.tensors.size() == 2);
  const ColumnImportance& one = again.tensors.at("blk.0.attn_q.weight");
  CHECK(one.columns == 3);
  CHECK(one.squares == std::vector<double>{1, 2, 9});
  CHECK(one.weights(0) == std::vector<float>{0.25f, 0.5f, 2.25f});
  const ColumnImportance& stack = again.tensors.at("blk.0.ffn_up_exps.weight");
  CHECK(stack.weights(0) == std::vector<float>{0.5f, 1.5f});
  CHECK(stack.weights(1) == std::vector<float>{1, 1});  // no text reached this expert
}

TEST_CASE("importance: the binary form is read") {
  std::string end;
  put_number(end, 3);
  put_number(end, 5);
  const ImportanceMatrix matrix = importance_of(binary_form({2, 6}, 4, end + "x.txt"));
  CHECK(matrix.chunks == 3);
  CHECK(matrix.datasets == std::vector<std::string>{"x.txt"});
  CHECK(matrix.tensors.at("blk.0.attn_q.weight").weights(0) == std::vector<float>{0.5f, 1.5f});
  CHECK(importance_of(binary_form({2, 6}, 0)).tensors.size() == 1);
}

TEST_CASE("importance: damaged files are refused with the place") {
  const std::string good = binary_form({2, 6}, 4);
  for (size_t length = 0; length < good.size(); ++length) {
    INFO(length);
    CHECK(message_of([&] { importance_of(good.substr(0, length)); }).find("is not an importance matrix") !=
          std::string::npos);
  }
  CHECK(message_of([&] {
          importance_of(binary_form({2, -1}, 4));
        }).find("not finite or negative") != std::string::npos);
  CHECK(message_of([&] {
          importance_of(binary_form({2, NAN}, 4));
        }).find("not finite or negative") != std::string::npos);
  CHECK(message_of([&] { importance_of(good + "abc"); }).find("at byte 43") != std::string::npos);
  GgufWriter writer;
  writer.set_text("general.type", "model");
  CHECK(message_of([&] { importance_of(writer.header()); }).find("general.type is not 'imatrix'") != std::string::npos);
}

TEST_CASE("importance: sums are those of the inputs of linear maps") {
  // scores = linear(relu(linear(embedding, a)), b[1]): relu's output is the input of the second map.
  Model model;
  model.name = "m";
  model.vocabulary = 4;
  model.context = 3;
  const auto declare = [&](const std::string& name, const Shape& shape) {
    model.parameters->declare(name, {DType::F32, shape}, Role::frozen, hx_init{HX_INIT_UNIFORM, -1, 1}, 5).fixed = true;
  };
  declare("e", {4, 5});
  declare("a", {6, 5});
  declare("b[1]", {4, 6});
  model.entries.emplace_back("forward", [](Tracer& t, const EntrySizes& sizes) {
    const HTensor tokens = t.input("tokens", {DType::I32, {1, sizes.tokens}});
    const HTensor x = apply("embedding", {}, {t.parameter("e", {DType::F32, {4, 5}}), tokens})[0];
    const HTensor h = apply("linear", {}, {x, t.parameter("a", {DType::F32, {6, 5}})})[0];
    const HTensor y = apply("linear", {}, {h * h, t.parameter("b[1]", {DType::F32, {4, 6}})})[0];
    t.output("scores", y);
  });
  const std::vector<int32_t> tokens{0, 3, 1, 1, 2, 0, 3};
  const auto executor = make_sequential_executor();
  GatherOptions options;
  double shown = 0;
  const ImportanceMatrix matrix =
      gather_importance(model, tokens, options, *executor, [&](double fraction) { shown = fraction; });
  CHECK(shown == 1);
  CHECK(matrix.chunk_tokens == 3);  // tokens per chunk: the context
  CHECK(matrix.chunks == 2);
  const auto *e = static_cast<const float*>(model.parameters->find("e")->data()),
             *a = static_cast<const float*>(model.parameters->find("a")->data());
  std::vector<double> inputs(5), hidden(6);
  for (size_t i = 0; i < 6; ++i) {
    const float* row = e + tokens[i] * 5;
    for (size_t c = 0; c < 5; ++c) inputs[c] += static_cast<double>(row[c]) * row[c];
    for (size_t o = 0; o < 6; ++o) {
      double sum = 0;
      for (size_t c = 0; c < 5; ++c) sum += static_cast<double>(row[c]) * a[o * 5 + c];
      hidden[o] += sum * sum * sum * sum;
    }
  }
  REQUIRE(matrix.tensors.size() == 2);
  const ColumnImportance &first = matrix.tensors.at("a"), &second = matrix.tensors.at("b");
  for (size_t c = 0; c < 5; ++c) CHECK(first.squares[c] == Approx(inputs[c]).epsilon(1e-5));
  CHECK(first.counts == std::vector<double>{6});
  REQUIRE(second.counts == std::vector<double>{0, 6});
  for (size_t o = 0; o < 6; ++o) CHECK(second.squares[6 + o] == Approx(hidden[o]).epsilon(1e-4));
  options.chunks = 1;
  CHECK(gather_importance(model, tokens, options, *executor).chunks == 1);
  CHECK(message_of([&] { gather_importance(model, {}, options, *executor); }).find("no tokens") != std::string::npos);
}

TEST_CASE("importance: each expert counts its own rows") {
  Model model;
  model.name = "m";
  model.vocabulary = 4;
  model.context = 4;
  const auto declare = [&](const std::string& name, const Shape& shape) {
    model.parameters->declare(name, {DType::F32, shape}, Role::frozen, hx_init{HX_INIT_UNIFORM, -1, 1}, 5).fixed = true;
  };
  declare("e", {4, 5});
  for (const char* name : {"u[0]", "u[1]", "u[2]"}) declare(name, {6, 5});
  model.entries.emplace_back("forward", [](Tracer& t, const EntrySizes& sizes) {
    const HTensor tokens = t.input("tokens", {DType::I32, {1, sizes.tokens}});
    const HTensor x = apply("embedding", {}, {t.parameter("e", {DType::F32, {4, 5}}), tokens})[0];
    std::vector<HTensor> in{reshape(x, {sizes.tokens, 5}), HTensor::from<int32_t>({4}, {0, 3, 3, 4})};
    for (const char* name : {"u[0]", "u[1]", "u[2]"}) in.push_back(t.parameter(name, {DType::F32, {6, 5}}));
    t.output("scores", apply("grouped_linear", {}, in)[0]);
  });
  const std::vector<int32_t> tokens{0, 3, 1, 1, 2, 0, 3, 2};
  const auto executor = make_sequential_executor();
  const ImportanceMatrix matrix = gather_importance(model, tokens, {}, *executor);
  CHECK(matrix.chunks == 2);
  const ColumnImportance& experts = matrix.tensors.at("u");
  CHECK(experts.counts == std::vector<double>{6, 0, 2});
  const auto* e = static_cast<const float*>(model.parameters->find("e")->data());
  for (size_t c = 0; c < 5; ++c) {
    const double one = e[1 * 5 + c], two = e[2 * 5 + c];
    CHECK(experts.squares[10 + c] == Approx(one * one + two * two).epsilon(1e-5));
  }
}
