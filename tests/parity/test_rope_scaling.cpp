// Compares scaled rotary positions with Hugging Face transformers (make_rope_scaling.py): folders opened by their spec
// and as .ndsl models.
#include <catch2/catch.hpp>

#include "engine/model/exported.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/message_of.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

namespace {

struct ScaledCase {
  const char *folder, *ndsl;
  int64_t tokens;
  bool has_spec;  // besides the .ndsl model
};
// Sequences of 12 tokens are within the original context of 16.
constexpr ScaledCase kScaledCases[] = {{"longrope", "Phi3", 12, true},
                                       {"longrope", "Phi3", 24, true},
                                       {"dynamic", "Llama2", 12, true},
                                       {"dynamic", "Llama2", 24, true},
                                       {"yarn", "Phi", 24, false}};

std::string scaled_folder(const ScaledCase& one) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/rope_scaling/" + one.folder;
}

// Compares one run, and a run token by token.
void check_scores(const Model& model, const HTensor& tokens, const HTensor& values) {
  const HTensor result = forward_results(model, tokens).at("scores");
  REQUIRE(result.size() == values.size());
  const auto executor = make_team_executor(2);
  Decoder decoder(model, *executor);
  Session session(decoder, tokens.size());
  const auto width = static_cast<size_t>(values.shape().back());
  for (size_t row = 0; row < static_cast<size_t>(tokens.size()); ++row) {
    INFO("token " << row);
    const float* const expected = values.data<float>() + row * width;
    CHECK(relative_difference({result.data<float>() + row * width, width}, expected) < 1e-4);
    CHECK(relative_difference(session.append({tokens.data<int32_t>() + row, 1}), expected) < 1e-4);
  }
}

}  // namespace

TEST_CASE("rope scaling: longrope, dynamic and yarn have the scores of transformers") {
  const TensorFile file = golden("rope_scaling.safetensors");
  const bool reads_folders = is_model(scaled_folder(kScaledCases[0]), Registry::global());  // not without PCRE2
  for (const ScaledCase& one : kScaledCases) {
    INFO(one.folder << " of " << one.tokens);
    const auto expected = below(file, one.folder + ("/" + std::to_string(one.tokens)));
    NdslOptions options;
    options.weights = scaled_folder(one);
    options.length = one.tokens;
    check_scores(open_ndsl(one.ndsl, options).model, expected.at("tokens"), expected.at("scores"));
    if (!one.has_spec || !reads_folders) continue;
    ModelOptions same;
    same.length = one.tokens;
    const ImportedModel imported = import_model(scaled_folder(one), Registry::global());
    check_scores(model_of(imported, same), expected.at("tokens"), expected.at("scores"));
  }
}

TEST_CASE("rope scaling: the factors of longrope must be those of each pair") {
  NdslOptions options;
  options.weights = scaled_folder(kScaledCases[0]);
  options.set["partial_rotary_factor"] = "0.5";
  CHECK(message_of([&] { open_ndsl("Phi3", options); }).find("3 factors of rotary positions for 2 pairs") !=
        std::string::npos);
}

}  // namespace harmonics::engine::parity
