// Sessions that share pages on a device with a memory of its own, whose kernels are the CPU's.
#include <catch2/catch.hpp>

#include <map>
#include <random>

#include "engine/language/decoder.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// A decoder on the fake device, and one on the CPU for comparison. Each has a model of its own, with equal weights.
struct BesideHost {
  explicit BesideHost(const SmallLlama& s = {}) : model(small_llama(s)), same(small_llama(s)) {}
  Model model, same;
  std::unique_ptr<Executor> executor = make_sequential_executor();
  Registry registry;
  std::shared_ptr<FakeAccelerator> device = add_fake_accelerator(registry);
  Decoder on_host{same, *executor};

  CompileOptions options() {
    CompileOptions o;
    o.device = "fake";
    o.registry = &registry;
    return o;
  }
  void compare(std::span<const float> scores, std::span<const int32_t> tokens) {
    Session session(on_host);
    const auto expected = session.append(tokens);
    REQUIRE(scores.size() == expected.size());
    for (size_t i = 0; i < scores.size(); ++i) REQUIRE(scores[i] == Approx(expected[i]).margin(1e-5));
  }
};

std::vector<int32_t> sequence_of(const Session& session) { return {session.tokens().begin(), session.tokens().end()}; }

}  // namespace

TEST_CASE("device pages: steps over random sessions give the CPU's scores while the pool grows") {
  BesideHost both;
  Decoder decoder(both.model, *both.executor, both.options());
  REQUIRE(decoder.pages());
  decoder.limit_caches(int64_t{9} * 316, int64_t{9} * 316);
  CHECK(decoder.pages()->limit() == 64);
  CHECK(decoder.page_limit() == 178);
  CHECK(decoder.available_pages() == 178);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 9; ++i) sessions.push_back(std::make_unique<Session>(decoder));
  std::vector<std::vector<int32_t>> more(sessions.size());
  std::mt19937 random(3);
  for (int turn = 0; turn < 16; ++turn) {
    std::vector<StepPart> parts;
    for (size_t i = 0; i < sessions.size(); ++i) {
      Session& s = *sessions[i];
      if (random() % 4 == 0) continue;
      if (random() % 12 == 0) s.keep(static_cast<int64_t>(random() % static_cast<uint32_t>(s.length() + 1)));
      const int64_t count = std::min<int64_t>(1 + static_cast<int64_t>(random() % 40), 300 - s.length());
      if (count == 0) continue;
      more[i] = some_tokens(count, both.model.vocabulary, static_cast<uint32_t>(random() % 3));
      parts.push_back({&s, more[i], random() % 5 == 0 ? StepPart::none : StepPart::last});
    }
    if (parts.empty()) continue;
    decoder.step(parts);
    for (const StepPart& part : parts)
      if (part.wanted != StepPart::none) both.compare(part.scores, sequence_of(*part.session));
  }
  CHECK(decoder.pages()->limit() > 64);
  CHECK(decoder.pages()->limit() <= 178);
  CHECK(decoder.plans() <= 48);
}

TEST_CASE("device pages: nothing of a pool is copied between host and device") {
  BesideHost both;
  Decoder decoder(both.model, *both.executor, both.options());
  Session first(decoder), second(decoder);
  const int32_t token = 3;
  std::vector<StepPart> parts{{&first, {&token, 1}}, {&second, {&token, 1}}};
  for (int i = 0; i < 3; ++i) decoder.step(parts);
  const uint64_t up = both.device->uploaded, down = both.device->downloaded;
  decoder.step(parts);
  CHECK(both.device->uploaded - up < 2048);
  CHECK(both.device->downloaded - down == 2 * 4 * static_cast<uint64_t>(both.model.vocabulary));
}

TEST_CASE("device pages: forks share pages and copy the last one, states move between host and device") {
  BesideHost both;
  Decoder decoder(both.model, *both.executor, both.options());
  const auto tokens = some_tokens(75, both.model.vocabulary);
  Session first(decoder), second(decoder, 80);
  first.append(tokens);
  const auto fork = first.fork();
  CHECK(decoder.pages()->held() == 5);
  auto ours = tokens, theirs = tokens;
  ours.push_back(4);
  theirs.push_back(5);
  both.compare(fork->append({&theirs.back(), 1}), theirs);
  both.compare(first.append({&ours.back(), 1}), ours);
  CHECK(decoder.pages()->held() == 6);
  Session host(both.on_host);
  host.restore(ours, first.states());
  ours.push_back(7);
  both.compare(host.append({&ours.back(), 1}), ours);
  second.restore(ours, host.states());
  ours.push_back(8);
  both.compare(second.append({&ours.back(), 1}), ours);
}

TEST_CASE("device pages: without kernels for them, each session has its own caches") {
  BesideHost both;
  for (const char* op : {"cache_append", "attention"}) {
    both.device->declined = {op};
    Decoder decoder(both.model, *both.executor, both.options());
    CHECK(decoder.pages() == nullptr);
    CHECK(decoder.available_pages() == 0);
    Session first(decoder), second(decoder);
    const auto a = some_tokens(20, both.model.vocabulary, 1), b = some_tokens(3, both.model.vocabulary, 2);
    std::vector<StepPart> parts{{&first, a}, {&second, b}};
    decoder.step(parts);
    both.compare(parts[0].scores, a);
    both.compare(parts[1].scores, b);
  }
}

TEST_CASE("device pages: a device without memory for more pages keeps those that it has") {
  SmallLlama s;
  s.width = 96, s.shared = 6;
  BesideHost both(s);
  Decoder decoder(both.model, *both.executor, both.options());
  decoder.limit_caches(200 * PagePool::kRows, 200 * PagePool::kRows);
  both.device->most_bytes = 600'000;  // 97 pages of a state
  std::vector<std::unique_ptr<Session>> sessions;
  const auto tokens = some_tokens(300, both.model.vocabulary);
  const auto fill = [&](uint32_t begin) {
    sessions.push_back(std::make_unique<Session>(decoder));
    const auto other = some_tokens(8, both.model.vocabulary, begin);
    sessions.back()->append(other);
    for (size_t at = 8; at < 296; at += 8) sessions.back()->append({&tokens[at], 8});
  };
  for (uint32_t i = 0; i < 3; ++i) fill(100 + i);  // 19 pages each
  CHECK(message_of([&] { fill(200); }).find("the caches are full: 64 pages of 16 tokens are in use") == 0);
  CHECK(decoder.page_limit() == 64);
  const int64_t length = sessions.back()->length();
  const auto scores = sessions.front()->append({&tokens[0], 1});
  both.compare(scores, sequence_of(*sessions.front()));
  sessions.erase(sessions.begin() + 1);
  sessions.back()->append({&tokens[0], 8});
  CHECK(sessions.back()->length() == length + 8);
  const auto more = sessions.back()->append({&tokens[1], 1});
  both.compare(more, sequence_of(*sessions.back()));
  both.device->most_bytes = uint64_t{1} << 32;
  decoder.limit_caches(200 * PagePool::kRows, 200 * PagePool::kRows);
  for (uint32_t i = 0; i < 3; ++i) fill(300 + i);
  CHECK(decoder.pages()->limit() == 128);
}
