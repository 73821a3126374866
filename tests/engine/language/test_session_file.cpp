// A text continued from a file has the tokens of an uninterrupted one. Other files are rejected by name.
#include <catch2/catch.hpp>

#include "engine/language/continuation.hpp"
#include "engine/language/session_file.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/engine/language/small_language.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using TokenList = std::vector<int32_t>;

TokenList ids_of(const Generation& text) { return {text.tokens().begin(), text.tokens().end()}; }

SavedSession read_again(const SavedSession& saved) {
  return read_session(std::make_shared<const std::string>(session_bytes(saved)), "text.session");
}

struct LanguageWithCache {
  explicit LanguageWithCache(DType cache) {
    model = bare_llama({.vocabulary = tokenizer->size(), .context = 400});
    add_architecture_entries(model, cache);
    decoder.emplace(model, *executor);
  }
  std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  Model model;
  std::unique_ptr<Executor> executor = make_team_executor(2);
  std::optional<Decoder> decoder;
};

SavedSession saved_text(LanguageWithCache& small, int64_t tokens) {
  ContinuationSettings settings;
  settings.tokens = tokens;
  Session session(*small.decoder);
  std::optional<SavedSession> saved;
  continue_tokens(
      session, *small.tokenizer, small.tokenizer->encode("once upon"), settings, [](const std::string&) {},
      [&](const Generation& text) { saved = saved_session(session, small.model, ids_of(text), text.sampler_state()); });
  return *saved;
}

}  // namespace

TEST_CASE("saved sessions: the text goes on with the same tokens, bit for bit") {
  const DType cache = GENERATE(DType::F32, DType::F16);
  LanguageWithCache small(cache);
  for (const int mirostat : {0, 2}) {
    ContinuationSettings settings;
    settings.tokens = 90;
    settings.seed = 4;
    settings.filters.repeat_penalty = 1.2;
    settings.filters.mirostat = mirostat;
    settings.filters.bias = {{1, -100.0f}, {2, -100.0f}};  // end tokens are suppressed
    TokenList unbroken, resumed;
    Session whole(*small.decoder);
    const TokenList prompt = small.tokenizer->encode("once upon");
    continue_tokens(
        whole, *small.tokenizer, prompt, settings, [](const std::string&) {},
        [&](const Generation& text) { unbroken = ids_of(text); });
    SavedSession saved;
    {
      settings.tokens = 30;
      Session first(*small.decoder);
      continue_tokens(
          first, *small.tokenizer, prompt, settings, [](const std::string&) {},
          [&](const Generation& text) {
            saved = saved_session(first, small.model, ids_of(text), text.sampler_state());
          });
    }
    const SavedSession again = read_again(saved);
    CHECK(again.tokens == saved.tokens);
    Session second(*small.decoder);
    restore_session(second, small.model, again, "text.session");
    CHECK(second.length() == static_cast<int64_t>(saved.tokens.size()) - 1);
    settings.tokens = 60;
    settings.from = again.sampler;
    const Continuation done = continue_tokens(
        second, *small.tokenizer, again.tokens, settings, [](const std::string&) {},
        [&](const Generation& text) { resumed = ids_of(text); });
    CHECK(done.reused_tokens == done.prompt_tokens - 1);
    CHECK(resumed == unbroken);
  }
}

TEST_CASE("saved sessions: the state of an empty one is empty") {
  LanguageWithCache small(DType::F32);
  Session session(*small.decoder);
  const SavedSession again = read_again(saved_session(session, small.model, {}, {}, "[]"));
  CHECK(again.tokens.empty());
  CHECK(again.messages == "[]");
  restore_session(session, small.model, again, "text.session");
  CHECK(session.length() == 0);
}

TEST_CASE("saved sessions: files of other models, caches and sizes are refused") {
  LanguageWithCache small(DType::F32), narrow(DType::F16);
  const SavedSession saved = saved_text(small, 8);
  const auto refusal = [&](LanguageWithCache& into, const SavedSession& session, int64_t context = 0) {
    Session other(*into.decoder, context);
    return message_of([&] { restore_session(other, into.model, session, "text.session"); });
  };
  CHECK(refusal(small, saved) == "no error");
  CHECK_THAT(refusal(narrow, saved), Catch::Contains("'text.session' has the caches") && Catch::Contains("f16"));
  LanguageWithCache changed(DType::F32);
  const float one = 1;
  std::memcpy(changed.model.parameters->find("output_norm.weight")->change(), &one, sizeof one);
  CHECK_THAT(refusal(changed, saved), Catch::Contains("belongs to another model"));
  CHECK_THAT(refusal(small, saved, 4), Catch::Contains("the context holds 4"));
  SavedSession other = saved;
  other.contract = "1.0";
  CHECK_THAT(refusal(small, other), Catch::Contains("was saved with contract 1.0"));
  other = saved;
  other.states.pop_back();
  CHECK_THAT(refusal(small, other), Catch::Contains("states, and the model has"));
  other = saved;
  other.tokens[0] = 100000;
  CHECK_THAT(refusal(small, other), Catch::Contains("has the token 100000"));
}

TEST_CASE("saved sessions: damaged and foreign files are refused by name") {
  LanguageWithCache small(DType::F32);
  const std::string bytes = session_bytes(saved_text(small, 4));
  const auto refusal = [](std::string text) {
    return message_of([&] { read_session(std::make_shared<const std::string>(std::move(text)), "text.session"); });
  };
  CHECK(refusal(bytes) == "no error");
  for (const size_t length : {size_t{0}, size_t{7}, bytes.size() / 2, bytes.size() - 1}) {
    INFO(length);
    CHECK_THAT(refusal(bytes.substr(0, length)), Catch::Contains("text.session"));
  }
  for (size_t at = 0; at < bytes.size(); at += 97) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    INFO("byte " << at);
    CHECK_THAT(refusal(flipped), Catch::Contains("text.session"));
  }
  TensorFile weights;
  weights.tensors["w"] = HTensor::from(Shape{1}, std::vector<float>{1});
  CHECK_THAT(refusal(write_sealed(weights)), Catch::Contains("'text.session' is not a saved session"));
}
