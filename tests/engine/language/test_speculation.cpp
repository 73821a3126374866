// Speculative decoding changes neither greedy texts nor the distribution of sampled ones.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include "engine/language/continuation.hpp"
#include "tests/engine/language/small_language.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Written {
  std::vector<int32_t> tokens;
  std::string text;
  Continuation done;
};

Written continued(SmallLanguage& small, const std::string& prompt, const ContinuationSettings& settings,
                  int64_t context = 0) {
  Session session(small.decoder, context);
  Written result;
  result.done = continue_tokens(
      session, *small.tokenizer, small.tokenizer->encode(prompt), settings,
      [&](const std::string& more) { result.text += more; },
      [&](const Generation& text) {
        result.tokens.assign(text.tokens().begin(), text.tokens().end());
        // The session contains the text except its last token, and no drafted tokens.
        const auto length = static_cast<size_t>(session.length());
        CHECK(length + 1 == result.tokens.size());
        CHECK(std::equal(session.tokens().begin(), session.tokens().end(), result.tokens.begin()));
      });
  return result;
}

ContinuationSettings of_length(int64_t tokens, double temperature, uint64_t seed = 1) {
  ContinuationSettings settings;
  settings.tokens = tokens;
  settings.temperature = temperature;
  settings.seed = seed;
  return settings;
}

// Another model with the same vocabulary.
struct OtherLanguage {
  std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  Model model = small_llama({.width = 16, .layers = 1, .heads = 4, .vocabulary = tokenizer->size(), .context = 400});
  std::unique_ptr<Executor> executor = make_team_executor(1);
  Decoder decoder{model, *executor};
};

// Scores of a small model and of its drafts: 0.4, 0.3, 0.2 and 0.1; drafts have another order, and a wrong token.
const std::vector<float> kWanted = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f), -60.0f};
const std::vector<float> kGiven = {std::log(0.1f), std::log(0.5f), -60.0f, std::log(0.1f), std::log(0.3f)};

}  // namespace

TEST_CASE("speculation: looked-up tokens leave the text as it is, bit for bit") {
  SmallLanguage small;
  const std::string prompt = "one two three one two three one two";
  int64_t accepted = 0;
  for (const double temperature : {0.0, 0.7, 1.5}) {
    ContinuationSettings settings = of_length(60, temperature);
    settings.filters.repeat_penalty = 1.1;
    settings.filters.top_k = 20;
    const Written plain = continued(small, prompt, settings);
    for (const int64_t longest : {1, 2, 4}) {
      settings.drafter = std::make_shared<LookupDrafter>(longest);
      settings.draft_tokens = 5;
      const Written drafted = continued(small, prompt, settings);
      CHECK(drafted.tokens == plain.tokens);
      CHECK(drafted.text == plain.text);
      CHECK(drafted.done.end == plain.done.end);
      CHECK(drafted.done.accepted <= drafted.done.drafted);
      accepted += drafted.done.accepted;
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE("speculation: a grammar, stop texts and mirostat go with looked-up tokens") {
  SmallLanguage small;
  ContinuationSettings settings = of_length(40, 0.9);
  settings.grammar = std::make_shared<const Grammar>("root ::= (\"ab\" | \"ac\")*");
  const auto same = [&] {
    settings.drafter = nullptr;
    const Written plain = continued(small, "abacab", settings);
    settings.drafter = std::make_shared<LookupDrafter>(2);
    const Written drafted = continued(small, "abacab", settings);
    CHECK(drafted.tokens == plain.tokens);
    CHECK(drafted.text == plain.text);
    CHECK(drafted.done.end == plain.done.end);
    return drafted;
  };
  CHECK(same().done.drafted > 0);
  settings.stop = {"caba"};
  same();
  settings.grammar = nullptr;
  settings.filters.mirostat = 2;
  same();
}

TEST_CASE("speculation: greedy tokens of a draft model are verified in one run") {
  SmallLanguage small, twin;
  OtherLanguage other;
  ContinuationSettings settings = of_length(50, 0);
  const Written plain = continued(small, "hello", settings);
  settings.drafter = std::make_shared<ModelDrafter>(other.decoder, 0);
  CHECK(continued(small, "hello", settings).tokens == plain.tokens);
  settings.drafter = std::make_shared<ModelDrafter>(twin.decoder, 0);
  settings.draft_tokens = 4;
  const Written agreed = continued(small, "hello", settings);
  CHECK(agreed.tokens == plain.tokens);
  CHECK(agreed.done.accepted == agreed.done.drafted);
  CHECK(agreed.done.drafted >= agreed.done.tokens / 2);
}

TEST_CASE("speculation: drafts end where the context does") {
  SmallLanguage small, twin;
  ContinuationSettings settings = of_length(500, 0);
  const Written plain = continued(small, "aaaa", settings, 48);
  settings.drafter = std::make_shared<ModelDrafter>(twin.decoder, 0);
  const Written drafted = continued(small, "aaaa", settings, 48);
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafted.done.end == plain.done.end);
}

TEST_CASE("speculation: an accepted or replaced draft has the distribution of the model") {
  constexpr int kTrials = 40000;
  for (const double temperature : {1.0, 0.6}) {
    for (const int64_t top_k : {0, 3}) {
      FilterSettings filters;
      filters.top_k = top_k;
      Sampler sampler({temperature, 11}, filters, 5), drafts({temperature, 12}, filters, 5);
      std::map<int32_t, int> times;
      for (int i = 0; i < kTrials; ++i) {
        const std::vector<TokenChance> from = drafts.chances(kGiven);
        ++times[sampler.accept(kWanted, drafts.draw(from), from)];
      }
      double sum = 0;
      for (const TokenChance& c : sampler.chances(kWanted)) {
        INFO("token " << c.id << " at the temperature " << temperature);
        CHECK(times[c.id] / static_cast<double>(kTrials) == Approx(c.probability).margin(0.012));
        sum += c.probability;
        times.erase(c.id);
      }
      CHECK(sum == Approx(1));
      CHECK(times.empty());
    }
  }
}

TEST_CASE("speculation: drawn texts have the distribution of the model") {
  SmallLanguage small, other;
  StoredTensor& gain = *other.model.parameters->find("output_norm.weight");  // flattens the draft's distribution
  auto* gains = static_cast<float*>(gain.change());
  std::for_each(gains, gains + gain.type.shape.count(), [](float& g) { g *= 0.3f; });
  constexpr int kSeeds = 1500;
  FilterSettings filters;
  filters.top_k = 3;
  // The exact distribution of the second token.
  std::map<int32_t, double> exact;
  const std::vector<int32_t> prompt = small.tokenizer->encode("ab");
  Session session(small.decoder);
  Sampler sampler({1.0, 0}, filters, small.tokenizer->size());
  for (const TokenChance& first : sampler.chances(session.append(prompt))) {
    session.keep(static_cast<int64_t>(prompt.size()));
    for (const TokenChance& second : sampler.chances(session.append({&first.id, 1})))
      exact[second.id] += first.probability * second.probability;
  }
  std::map<int32_t, double> found;
  int64_t drafted = 0, accepted = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    ContinuationSettings settings = of_length(4, 1.0, static_cast<uint64_t>(seed));
    settings.filters = filters;
    settings.drafter = std::make_shared<ModelDrafter>(other.decoder, 0);
    session.keep(0);
    const Continuation done = continue_tokens(
        session, *small.tokenizer, prompt, settings, [](const std::string&) {},
        [&](const Generation& text) {
          REQUIRE(text.tokens().size() > prompt.size() + 1);
          found[text.tokens()[prompt.size() + 1]] += 1.0 / kSeeds;
        });
    drafted += done.drafted;
    accepted += done.accepted;
  }
  CHECK(accepted > 0);
  CHECK(accepted < drafted);
  for (const auto& [id, share] : found) CHECK(exact.count(id) == 1);
  for (const auto& [id, probability] : exact) {
    INFO("token " << id);
    CHECK(found[id] == Approx(probability).margin(0.05));
  }
}

TEST_CASE("speculation: drawn drafts refuse grammars and mirostat") {
  SmallLanguage small;
  ContinuationSettings settings = of_length(4, 0.8);
  settings.drafter = std::make_shared<ModelDrafter>(small.decoder, 0);
  settings.grammar = std::make_shared<const Grammar>("root ::= \"a\"*");
  const auto refusal = [&] {
    return message_of([&] {
      Session session(small.decoder);
      continue_text(session, *small.tokenizer, "a", settings, [](const std::string&) {});
    });
  };
  CHECK_THAT(refusal(), Catch::Contains("cannot be verified with a grammar") && Catch::Contains("--lookup N"));
  settings.grammar = nullptr;
  settings.filters.mirostat = 1;
  CHECK_THAT(refusal(), Catch::Contains("cannot be verified with mirostat"));
}

TEST_CASE("speculation: a draft model of another vocabulary is refused with the tokens that differ") {
  const auto tokenizer_of = [](const std::string& named) {
    GgufWriter writer;
    writer.set_text("tokenizer.ggml.model", "llama");
    writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", named});
    writer.set("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 1});
    writer.set("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1});
    return Tokenizer::read(writer.header(), named + ".gguf", Registry::global());
  };
  const auto a = tokenizer_of("a"), b = tokenizer_of("b");
  CHECK_NOTHROW(expect_same_vocabulary(*a, *tokenizer_of("a"), "big", "small"));
  const std::string message = message_of([&] { expect_same_vocabulary(*a, *b, "big", "small"); });
  CHECK_THAT(message,
             Catch::Contains("'big' and the draft model 'small'") && Catch::Contains("token 3 is 'a' and 'b'"));
  CHECK_THAT(message_of([&] { expect_same_vocabulary(*a, *byte_tokenizer(), "big", "small"); }),
             Catch::Contains("they have 4 and 262 tokens"));
}

TEST_CASE("overflow: the text goes on as if it began with what is left") {
  SmallLanguage small;
  constexpr int64_t kContext = 40, kKept = 3;
  ContinuationSettings settings = of_length(90, 0);
  settings.overflow = Overflow::shift;
  settings.keep = kKept;
  Session session(small.decoder, kContext);
  std::vector<int32_t> text = small.tokenizer->encode("to begin with"), chosen, expected;
  Generation generation(session, *small.tokenizer, text, settings);
  while (!generation.is_over()) {
    const int64_t before = generation.done().tokens;
    generation.step();
    if (generation.done().tokens > before) chosen.push_back(generation.tokens().back());
  }
  CHECK(generation.done().shifts >= 2);
  Sampler greedy({0, 0}, {}, small.tokenizer->size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (static_cast<int64_t>(text.size()) > kContext) {
      const auto first = text.begin() + kKept;
      text.erase(first, first + (kContext - kKept) / 2);
    }
    Session fresh(small.decoder, kContext);
    expected.push_back(greedy.choose(fresh.append(text)));
    text.push_back(expected.back());
  }
  CHECK(chosen == expected);
  settings.drafter = std::make_shared<LookupDrafter>(2);
  Session again(small.decoder, kContext);
  std::vector<int32_t> last;
  continue_tokens(
      again, *small.tokenizer, small.tokenizer->encode("to begin with"), settings, [](const std::string&) {},
      [&](const Generation& all) { last.assign(all.tokens().begin(), all.tokens().end()); });
  CHECK(last == std::vector<int32_t>(generation.tokens().begin(), generation.tokens().end()));
  settings.keep = kContext;
  CHECK_THAT(message_of([&] {
               Generation(again, *small.tokenizer, {1, 2}, settings);
             }),
             Catch::Contains("keeping 40 tokens leaves none to drop of a context of 40"));
}
