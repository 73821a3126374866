// Steps over many sessions that share pages: bitwise equal to each session alone.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include <harmonics/element_type.hpp>

#include "engine/language/decoder.hpp"
#include "tests/engine/execution/interposed_malloc.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kPage = PagePool::kRows;

std::vector<float> kept_scores(std::span<const float> scores) { return {scores.begin(), scores.end()}; }

// Returns the scores after a sequence, from a session with separate caches.
class Alone {
 public:
  explicit Alone(const Model& model)
      : model_(own_caches(model)), executor_(make_sequential_executor()), decoder_(model_, *executor_) {}
  std::vector<float> after(const std::vector<int32_t>& tokens) {
    Session session(decoder_);
    return kept_scores(session.append(tokens));
  }

 private:
  static Model own_caches(Model model) {
    model.paged = false;
    return model;
  }
  const Model model_;
  std::unique_ptr<Executor> executor_;
  Decoder decoder_;
};

std::vector<int32_t> all_tokens(const Session& session) { return {session.tokens().begin(), session.tokens().end()}; }

int64_t pages_of(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

}  // namespace

TEST_CASE("batches: steps over random sessions, with prompts in pieces, give the bits of each session alone") {
  const Model model = small_llama({.context = 150});
  Alone alone(model);
  std::mt19937 random(3);
  for (const int threads : {1, 3}) {
    const auto executor = make_team_executor(threads);
    Decoder decoder(model, *executor);
    REQUIRE(decoder.pages());
    decoder.limit_caches(int64_t{11} * 160, int64_t{11} * 160);
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 11; ++i) sessions.push_back(std::make_unique<Session>(decoder));
    std::vector<std::vector<int32_t>> more(sessions.size());
    for (int turn = 0; turn < 25; ++turn) {
      std::vector<StepPart> parts;
      for (size_t i = 0; i < sessions.size(); ++i) {
        Session& s = *sessions[i];
        if (random() % 4 == 0) continue;
        if (random() % 12 == 0) s.keep(static_cast<int64_t>(random() % static_cast<uint32_t>(s.length() + 1)));
        const int64_t most = random() % 3 == 0 ? 40 : 1;
        const int64_t count = std::min(1 + static_cast<int64_t>(random()) % most, 150 - s.length());
        if (count == 0) continue;
        // Uses few distinct prefixes, so that sequences often share one.
        more[i] = some_tokens(count, model.vocabulary, static_cast<uint32_t>(random() % 3));
        parts.push_back({&s, more[i], random() % 5 == 0 ? StepPart::none : StepPart::last});
      }
      if (parts.empty()) continue;
      decoder.step(parts);
      for (const StepPart& part : parts) {
        if (part.wanted == StepPart::none) continue;
        REQUIRE(kept_scores(part.scores) == alone.after(all_tokens(*part.session)));
      }
    }
  }
}

TEST_CASE("batches: weights and caches of stored types give the same bits in every number of rows") {
  SmallLlama s;
  s.width = 128, s.heads = 4, s.shared = 2, s.hidden = 96, s.vocabulary = 70, s.context = 64;
  const Model exact = small_llama(s);
  for (const auto& [weights, cache] :
       {std::pair{DType::F16, DType::F16}, std::pair{DType::Q8_0, DType::Q8_0}, std::pair{DType::Q4_0, DType::F16}}) {
    const ImportedModel imported = imported_from(exact);
    ModelOptions options;
    options.weights = weights;
    options.cache = cache;
    const Model model = model_of(imported, options);
    INFO(dtype_name(weights) << " weights, cache of " << dtype_name(cache));
    Alone alone(model);
    const auto executor = make_team_executor(2);
    Decoder decoder(model, *executor);
    for (const size_t count : {2u, 3u, 8u, 17u, 33u}) {
      std::vector<std::unique_ptr<Session>> sessions;
      std::vector<std::vector<int32_t>> tokens;
      std::vector<StepPart> parts;
      for (size_t i = 0; i < count; ++i) {
        sessions.push_back(std::make_unique<Session>(decoder));
        tokens.push_back(some_tokens(static_cast<int64_t>(1 + i % 3), s.vocabulary, static_cast<uint32_t>(i % 5)));
      }
      for (size_t i = 0; i < count; ++i) parts.push_back({sessions[i].get(), tokens[i]});
      decoder.step(parts);
      for (size_t i = 0; i < count; ++i) REQUIRE(kept_scores(parts[i].scores) == alone.after(tokens[i]));
    }
  }
}

TEST_CASE("batches: the scores after each of several tokens are those of one token at a time") {
  const Model paged = small_llama();
  Model own = small_llama();
  own.paged = false;
  const auto executor = make_team_executor(2);
  const auto tokens = some_tokens(170, paged.vocabulary);
  std::vector<float> expected;
  {
    Decoder decoder(paged, *executor);
    Session session(decoder);
    for (const int32_t& t : tokens) {
      const auto scores = session.append({&t, 1});
      expected.insert(expected.end(), scores.begin(), scores.end());
    }
  }
  for (const Model* model : {&paged, static_cast<const Model*>(&own)}) {
    Decoder decoder(*model, *executor);
    CHECK((decoder.pages() != nullptr) == model->paged);
    Session session(decoder);
    std::vector<float> found;
    for (size_t at = 0, n = 1; at < tokens.size(); at += n, n = std::min(tokens.size() - at, n * 3)) {
      const auto scores = session.append_all({tokens.data() + at, n});
      REQUIRE(scores.size() == n * static_cast<size_t>(model->vocabulary));
      found.insert(found.end(), scores.begin(), scores.end());
    }
    CHECK(found == expected);
    CHECK(session.length() == 170);
  }
}

TEST_CASE("batches: a sequence begins with the pages of others, also of one that is gone") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Alone alone(model);
  Decoder decoder(model, *executor);
  decoder.limit_caches(1000, 1000);
  auto tokens = some_tokens(100, model.vocabulary);
  auto first = std::make_unique<Session>(decoder);
  CHECK(first->begin(tokens) == 0);
  first->append(tokens);
  CHECK(decoder.pages()->held() == pages_of(100));
  Session second(decoder);
  CHECK(second.begin(tokens) == 6 * kPage);
  CHECK(decoder.pages()->held() == pages_of(100));
  CHECK(kept_scores(second.append(std::span(tokens).subspan(6 * kPage))) == alone.after(tokens));
  CHECK(decoder.pages()->held() == pages_of(100) + 1);
  first.reset();
  second.keep(0);
  CHECK(decoder.pages()->held() == 0);
  CHECK(decoder.pages()->kept() == 6);
  tokens[40] = (tokens[40] + 1) % 50;  // in the third page
  CHECK(second.begin(tokens) == 2 * kPage);
  CHECK(kept_scores(second.append(std::span(tokens).subspan(2 * kPage))) == alone.after(tokens));
  // At least one token remains to be computed.
  Session third(decoder);
  CHECK(third.begin(std::span(tokens).first(2 * kPage)) == kPage);
  CHECK(third.begin(std::span(tokens).first(2 * kPage + 1)) == 2 * kPage);
}

TEST_CASE("batches: a shared page is copied by the session that writes it") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Alone alone(model);
  Decoder decoder(model, *executor);
  const auto tokens = some_tokens(kPage + 10, model.vocabulary, 1), others = some_tokens(5, model.vocabulary, 2);
  Session session(decoder);
  session.append(tokens);
  const auto fork = session.fork();
  CHECK(decoder.pages()->held() == 2);
  CHECK(kept_scores(fork->append(others)) == [&] {
    auto all = tokens;
    all.insert(all.end(), others.begin(), others.end());
    return alone.after(all);
  }());
  CHECK(decoder.pages()->held() == 3);
  const int32_t next = 7;
  auto all = tokens;
  all.push_back(next);
  CHECK(kept_scores(session.append({&next, 1})) == alone.after(all));
  CHECK(decoder.pages()->held() == 3);
  // A full page that is findable as a prefix is not written either.
  session.keep(kPage - 3);
  const auto again = session.fork();
  CHECK(decoder.pages()->held() == 2);
  session.append(others);
  const auto rest = std::span(tokens).subspan(kPage - 3);
  CHECK(kept_scores(again->append(rest)) == alone.after(tokens));
}

TEST_CASE("batches: a session whose pages went to another computes its sequence again") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Alone alone(model);
  Decoder decoder(model, *executor);
  decoder.limit_caches(8 * kPage, 8 * kPage);
  const auto tokens = some_tokens(70, model.vocabulary, 1), others = some_tokens(120, model.vocabulary, 2);
  Session first(decoder, 120), second(decoder, 120);
  first.append(tokens);
  CHECK_FALSE(second.reserve(120));
  CHECK(second.cache_bytes() == 0);
  CHECK(message_of([&] { second.append(others); }) ==
        "the caches are full: 5 pages of 16 tokens are in use\n"
        "end other texts, or give more memory: --cache-memory");
  CHECK(second.length() == 0);
  const auto one_more = [&] { Session whole(decoder, 120, true); };
  CHECK(message_of(one_more) ==
        "the caches are full: 5 pages of 16 tokens are in use\n"
        "end other texts, or give more memory: --cache-memory");
  first.release();
  CHECK(first.length() == 70);
  CHECK(first.missing().size() == 70 - 4 * kPage);  // the rest is still cached
  first.release();
  CHECK(kept_scores(second.append(others)) == alone.after(others));
  CHECK(first.missing().size() == 70);
  second.keep(0);
  StepPart part{&first};
  part.missing = 50;
  decoder.step({&part, 1});
  CHECK(first.missing().size() == 20);
  const int32_t next = 7;
  auto all = tokens;
  all.push_back(next);
  CHECK(kept_scores(first.append({&next, 1})) == alone.after(all));
}

TEST_CASE("decoder: a model that does not continue texts is refused with the verbs for it") {
  Model model;
  model.name = "vectors.gguf";
  model.entries.emplace_back("forward", [](Tracer&, const EntrySizes&) {});
  const auto executor = make_sequential_executor();
  CHECK_THAT(message_of([&] { Decoder decoder(model, *executor); }),
             Catch::StartsWith("'vectors.gguf' does not generate text") && Catch::Contains("harmonics embed"));
}

TEST_CASE("batches: the rest of a prompt takes one plan, with the bits of single tokens") {
  const Model model = small_llama(), same = small_llama();
  const auto executor = make_sequential_executor();
  Decoder singles(same, *executor);
  const auto tokens = some_tokens(140, model.vocabulary);
  std::vector<std::vector<float>> expected;
  Session single(singles, 150);
  for (const int32_t token : tokens) {
    const auto scores = single.append({&token, 1});
    expected.emplace_back(scores.begin(), scores.end());
  }
  for (size_t count = 2; count < 32; ++count) {
    CAPTURE(count);
    Decoder decoder(model, *executor);
    Session session(decoder, 150);
    const auto first = session.append({tokens.data(), count});
    CHECK(std::equal(first.begin(), first.end(), expected[count - 1].begin()));
    CHECK(decoder.plans() == 1);
    const auto second = session.append({tokens.data() + count, 64 + 32 + 5});
    CHECK(std::equal(second.begin(), second.end(), expected[count + 100].begin()));
  }
}

TEST_CASE("batches: steps find every plan that was prepared") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor);
  constexpr size_t kSequences = 6;
  constexpr int64_t kContext = 200;
  decoder.limit_caches(static_cast<int64_t>(kSequences) * (kContext + kPage), 0);
  int asked = 0;
  decoder.prepare({kSequences, kContext, kContext, [&] { return ++asked > 3; }});
  CHECK(decoder.plans() == 3);
  decoder.prepare({kSequences, kContext, kContext});
  const size_t plans = decoder.plans();
  CHECK(plans > 20);
  std::mt19937 random(5);
  std::vector<std::unique_ptr<Session>> sessions(kSequences);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<StepPart> parts;
    std::vector<std::vector<int32_t>> tokens(kSequences);
    for (size_t i = 0; i < kSequences; ++i) {
      if (random() % 3 == 0) continue;
      auto& session = sessions[i];
      if (!session || session->length() > kContext - 40) session = std::make_unique<Session>(decoder, kContext);
      tokens[i] = some_tokens(random() % 4 ? 1 : 1 + static_cast<int64_t>(random() % 40), model.vocabulary,
                              static_cast<uint32_t>(random()));
      StepPart part{session.get(), tokens[i]};
      part.wanted = random() % 4 ? StepPart::last : StepPart::none;
      parts.push_back(part);
    }
    if (!parts.empty()) decoder.step(parts);
  }
  CHECK(decoder.plans() == plans);
}

TEST_CASE("batches: plans are compiled beside the steps of another thread") {
  const Model model = small_llama(), same = small_llama();
  const auto executor = make_sequential_executor();
  const auto tokens = some_tokens(150, model.vocabulary);
  const auto scores_of = [&](const Model& of, bool prepares) {
    Decoder decoder(of, *executor);
    decoder.limit_caches(2 * (200 + kPage), 0);
    std::thread preparing;
    if (prepares) preparing = std::thread([&] { decoder.prepare({2, 200, 200}); });
    Session session(decoder, 200);
    std::vector<float> all;
    for (const int32_t token : tokens) {
      const auto scores = session.append({&token, 1});
      all.insert(all.end(), scores.begin(), scores.end());
    }
    if (prepares) preparing.join();
    return all;
  };
  CHECK(scores_of(model, true) == scores_of(same, false));
}

TEST_CASE("batches: a thousand turns of sessions that come and go hold no more pages and plans") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor);
  decoder.limit_caches(40 * kPage, 40 * kPage);
  std::mt19937 random(11);
  std::vector<std::unique_ptr<Session>> sessions(3);
  size_t plans = 0;
  for (int turn = 0; turn < 1000; ++turn) {
    auto& session = sessions[random() % sessions.size()];
    if (!session || session->length() > 180) session = std::make_unique<Session>(decoder, 200);
    const auto tokens =
        some_tokens(1 + static_cast<int64_t>(random() % 9), model.vocabulary, static_cast<uint32_t>(random()));
    session->append(tokens);
    if (turn == 500) plans = decoder.plans();
  }
  CHECK(decoder.plans() <= plans + 3);
  CHECK(decoder.pages()->limit() == 40);
  CHECK(decoder.pages()->held() <= 36);
  sessions.clear();
  CHECK(decoder.pages()->held() == 0);
}

TEST_CASE("batches: a step allocates nothing within one capacity") {
  const Model model = small_llama();
  for (const int threads : {1, 2}) {
    const auto executor = make_team_executor(threads);
    Decoder decoder(model, *executor);
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<StepPart> parts;
    const int32_t token = 3;
    for (int32_t i = 0; i < 5; ++i) {
      sessions.push_back(std::make_unique<Session>(decoder));
      parts.push_back({sessions.back().get(), {&token, 1}});
    }
    decoder.step(parts);
    if (!kCountsAllocations) continue;
    start_counting();
    for (int i = 1; i < 60; ++i) decoder.step(parts);
    CHECK(stop_counting() == 0);
  }
}

TEST_CASE("batches: a model whose states cannot be pages computes one session at a time") {
  Model model = small_llama();
  model.paged = false;
  const auto executor = make_sequential_executor();
  Alone alone(model);
  Decoder decoder(model, *executor);
  CHECK(decoder.pages() == nullptr);
  decoder.limit_caches(10, 10);
  Session first(decoder), second(decoder);
  const auto a = some_tokens(20, model.vocabulary, 1), b = some_tokens(1, model.vocabulary, 2);
  std::vector<StepPart> parts{{&first, a}, {&second, b}};
  decoder.step(parts);
  CHECK(kept_scores(parts[0].scores) == alone.after(a));
  CHECK(kept_scores(parts[1].scores) == alone.after(b));
  const auto fork = first.fork();
  auto all = a;
  all.push_back(b[0]);
  CHECK(kept_scores(fork->append(b)) == alone.after(all));
  CHECK(decoder.token_bytes() == uint64_t{2 * 3 * 2 * 4 * 4});
}

TEST_CASE("batches: the states of a session make another one, with pages and without") {
  const Model paged = small_llama();
  Model own = small_llama();
  own.paged = false;
  const auto executor = make_sequential_executor();
  Alone alone(paged);
  const auto tokens = some_tokens(75, paged.vocabulary);
  Decoder from(paged, *executor), to(own, *executor);
  Session first(from), second(to), third(from, 80);
  CHECK(first.states().empty());
  first.append(tokens);
  second.restore(tokens, first.states());
  third.restore(tokens, second.states());
  auto all = tokens;
  all.push_back(4);
  const std::span<const int32_t> next(&all.back(), 1);
  CHECK(kept_scores(second.append(next)) == alone.after(all));
  CHECK(kept_scores(third.append(next)) == alone.after(all));
  CHECK_THROWS(third.restore(some_tokens(81, paged.vocabulary), first.states()));
  CHECK(third.length() == 76);
}
