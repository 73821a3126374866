// A thousand turns of chats: what they hold after the first hundred is what they hold at the end.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/language/chat_session.hpp"
#include "engine/language/page_pool.hpp"
#include "tests/bench/counted_memory.hpp"
#include "tests/engine/serving/served_language.hpp"

using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

constexpr int kTurns = 1000, kFirst = 100, kWindow = 48;

// Bytes of malloc in use at the ends of turns: the least of the turns before the hundredth, and of the last ones. A
// leak of a byte for each turn, or of a page or plan now and then, is a growth between them.
class HeldBytes {
 public:
  void note(int turn) {
#ifdef HARMONICS_COUNTED_MEMORY  // sanitizers replace malloc themselves
    const int64_t now = bench::heap.live;
    if (turn >= kFirst - kWindow && turn < kFirst) first_ = std::min(first_, now);
    if (turn >= kTurns - kWindow) last_ = std::min(last_, now);
#else
    static_cast<void>(turn);
    first_ = last_ = 0;
#endif
  }
  int64_t growth() const { return last_ - first_; }

 private:
  int64_t first_ = std::numeric_limits<int64_t>::max(), last_ = first_;
};

constexpr int64_t kMostGrowth = 900;  // bytes: less than one for each turn between

json::object message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

}  // namespace

TEST_CASE("memory: a thousand turns of three chats over HTTP hold no more than the first hundred") {
  SmallLanguage small;
  const ChatTemplate format = ChatTemplate::usual();
  TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 3, .queue = 4, .cached_tokens = 900});
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, worker, *small.tokenizer, format,
                          LanguageOverHttp::usual(*small.tokenizer));
  small.decoder.prepare({.sequences = 3, .length = 400});
  const auto settled = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (worker.report().active > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return worker.report();
  };
  json::array chats[3];
  HeldBytes held;
  size_t plans = 0;
  int64_t pages = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    json::array& chat = chats[turn % 3];
    if (chat.size() == 16) chat.clear();  // the context is full
    // Texts never seen before, of equal length at equal places: only they could fill a cache without a limit.
    chat.push_back(message("user", fmt::format("turn {:04}", turn)));
    json::object request{{"messages", chat}, {"max_tokens", 6}, {"stream", turn % 3 == 1}};
    if (turn % 3 == 2) request["options"] = {{"num_predict", 6}};
    const char* const path = turn % 3 == 2 ? "/api/chat" : "/v1/chat/completions";
    const auto reply = reply_to(service, "POST", path, json::serialize(request));
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    chat.push_back(message("assistant", fmt::format("answer {:04}", turn)));
    const TextWorker::Report report = settled();
    REQUIRE(report.active == 0);
    REQUIRE(report.pages_used == 0);
    held.note(turn);
    if (turn + 1 == kFirst) {
      plans = small.decoder.plans();
      pages = report.pages;
    }
  }
  const TextWorker::Report report = worker.report();
  CHECK(report.requests == kTurns);
  CHECK(report.failed == 0);
  CHECK(report.prefix_hits > kTurns / 2);
  CHECK(report.pages == pages);
  CHECK(report.pages_kept <= pages);
  CHECK(small.decoder.plans() == plans);
  CHECK(held.growth() <= kMostGrowth);
}

TEST_CASE("memory: one chat of a thousand turns, with the oldest forgotten, holds no more than its first hundred") {
  SmallLanguage small;
  const ChatTemplate format = ChatTemplate::usual();
  constexpr int64_t kContext = 160;
  Session session(small.decoder, kContext, true);
  small.decoder.prepare({.sequences = 1, .context = kContext, .length = kContext});
  ChatSession chat(session, *small.tokenizer, format, Overflow::shift);
  chat.set_system("Short.");
  ContinuationSettings settings;
  settings.tokens = 6;
  settings.temperature = 0;
  settings.ends = answer_ends(*small.tokenizer);
  HeldBytes held;
  size_t plans = 0, forgotten = 0, most = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const ChatAnswer answer = chat.answer(
        fmt::format("turn {:04}", turn), settings, [](const AnswerPart&) {}, [] { return false; });
    forgotten += answer.forgotten;
    most = std::max(most, chat.messages().size());
    held.note(turn);
    if (turn + 1 == kFirst) plans = small.decoder.plans();
  }
  CHECK(forgotten + chat.messages().size() == 2 * kTurns + 1);
  CHECK(most < 12);
  CHECK(session.length() <= kContext);
  CHECK(small.decoder.pages()->held() <= kContext / PagePool::kRows + 1);
  CHECK(small.decoder.plans() == plans);
  CHECK(held.growth() <= kMostGrowth);
}
