// Compares embeddings of token lists with those of Hugging Face transformers (make_embeddings.py).
#include <catch2/catch.hpp>

#include <cmath>

#include <boost/json.hpp>

#include "engine/language/embedder.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/parity/golden.hpp"
#include "tests/plugins/gguf_files.hpp"

namespace harmonics::engine::parity {

namespace {

using Vectors = std::vector<std::vector<float>>;

std::vector<int32_t> tokens_at(const boost::json::value& row) {
  return boost::json::value_to<std::vector<int32_t>>(row.at("tokens"));
}

void check_embeddings(const std::string& name) {
  const std::string path = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/" + name + ".gguf";
  const auto file = MappedFile::open(path);
  if (!is_importable(path, {static_cast<const char*>(file->data()), file->bytes()}, Registry::global())) return;
  const boost::json::value all =
      boost::json::parse(read_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/embeddings.json"));
  const auto& rows = all.at(name).as_array();
  REQUIRE(rows.size() >= 6);
  const Model model = model_of(import_model(path, Registry::global()));
  const auto executor = make_team_executor(2);
  for (const Pooling pooling : {Pooling::mean, Pooling::first, Pooling::last}) {
    const char* const how = pooling == Pooling::mean ? "mean" : pooling == Pooling::first ? "first" : "last";
    Embedder embedder(model, *executor, {}, pooling);
    Vectors found;
    for (const auto& row : rows) {
      INFO(name << ", " << how << ", " << row.at("tokens"));
      found.push_back(embedder.embed(tokens_at(row)));
      const auto expected = boost::json::value_to<std::vector<float>>(row.at(how));
      REQUIRE(found.back().size() == expected.size());
      double worst = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, static_cast<double>(std::abs(found.back()[i] - expected[i])));
      CHECK(worst < 1e-4);
    }
    // Independent of the lengths of other texts.
    for (size_t i = rows.size(); i-- > 0;) CHECK(embedder.embed(tokens_at(rows[i])) == found[i]);
    CHECK(Embedder(model, *executor, {}, pooling).embed(tokens_at(rows[2])) == found[2]);
  }
}

}  // namespace

TEST_CASE("embeddings: vectors of a model like BERT are those of transformers") { check_embeddings("bert"); }

TEST_CASE("embeddings: vectors of a causal model are those of transformers") { check_embeddings("qwen2"); }

}  // namespace harmonics::engine::parity
