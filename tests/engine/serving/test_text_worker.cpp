// Texts of many clients in one batch: exhausted pages, disconnecting clients, prompts during other texts.
#include <catch2/catch.hpp>

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>

#include <sys/socket.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "engine/serving/http_server.hpp"
#include "engine/serving/language_service.hpp"
#include "tests/engine/language/small_language.hpp"
#include "tests/engine/serving/served.hpp"
#include "tests/engine/serving/text_client.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Collects texts by number from the worker.
class WrittenTexts {
 public:
  std::shared_ptr<TextJob> job(int number, std::vector<int32_t> ids, const ContinuationSettings& settings) {
    auto made = std::make_shared<TextJob>();
    made->prepare = [ids = std::move(ids), settings] { return TextJob::Prompt{ids, settings}; };
    made->tell = [this, number](const TextJob::News& news) {
      const std::lock_guard lock(mutex_);
      texts_[number] += news.error ? std::string("error: ") + news.error->what() : news.text;
      begun_ += news.begun;
      over_ += news.over;
      changed_.notify_all();
    };
    return made;
  }
  bool wait_for(int begun, int over) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(100), [&] { return begun_ >= begun && over_ >= over; });
  }
  std::map<int, std::string> texts() {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> texts_;
  int begun_ = 0, over_ = 0;
};

// Returns settings for a text of this many letters, whatever the weights.
ContinuationSettings letters(int count) {
  ContinuationSettings settings;
  settings.temperature = 0;
  settings.tokens = 390;
  settings.grammar = std::make_shared<const Grammar>("root ::= [a-z]{" + std::to_string(count) + "}");
  return settings;
}

std::vector<int32_t> prompt_ids(const SmallLanguage& small, int number, int64_t length) {
  std::vector<int32_t> ids = some_tokens(length, 256, static_cast<uint32_t>(number + 1));
  for (int32_t& id : ids) id = kFirstByte + id % 200;
  ids[0] = *small.tokenizer->bos();
  return ids;
}

std::string alone(SmallLanguage& small, const std::vector<int32_t>& ids, const ContinuationSettings& settings) {
  Session session(small.decoder);
  Generation text(session, *small.tokenizer, ids, settings);
  std::string all;
  while (!text.is_over()) all += text.step();
  return all;
}

}  // namespace

TEST_CASE("text worker: texts that need more pages than there are wait or give theirs back, and none fails") {
  SmallLanguage small, other;
  WrittenTexts written;
  std::map<int, std::string> expected;
  {
    TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 5, .queue = 16, .cached_tokens = 432});
    REQUIRE(worker.report().pages == 27);
    std::promise<void> all_wait;
    for (int i = 0; i < 9; ++i) {
      const auto ids = prompt_ids(small, i, 40 + 20 * (i % 4));
      const auto settings = letters(160 + 10 * i);
      expected[i] = alone(other, ids, settings);
      const auto job = written.job(i, ids, settings);
      if (i == 0)  // the worker's thread waits in it until all texts have arrived
        job->prepare = [&all_wait, prepare = job->prepare] {
          all_wait.get_future().wait();
          return prepare();
        };
      REQUIRE(worker.add(job));
    }
    all_wait.set_value();
    REQUIRE(written.wait_for(9, 9));
    CHECK(worker.drain(std::chrono::seconds(60)));
    const TextWorker::Report report = worker.report();
    CHECK(report.preempted > 0);
    CHECK(report.failed == 0);
    CHECK(report.pages_used == 0);
    CHECK(report.steps > 0);
    CHECK(report.step_tokens > static_cast<int64_t>(report.steps));
  }
  CHECK(written.texts() == expected);
}

TEST_CASE("text worker: drafts of several texts in one step leave the texts as they are") {
  SmallLanguage small, other, drafts;
  WrittenTexts written;
  std::map<int, std::string> expected;
  const bool drawn = GENERATE(false, true);
  TextWorker::Settings how{.sequences = 3};
  how.drafter = [&]() -> std::shared_ptr<Drafter> {
    if (drawn) return std::make_shared<ModelDrafter>(drafts.decoder, 0);
    return std::make_shared<LookupDrafter>(2);
  };
  TextWorker worker(small.decoder, *small.tokenizer, how);
  for (int i = 0; i < 5; ++i) {
    ContinuationSettings settings = letters(60 + 10 * i);
    if (i == 4) settings.grammar = nullptr, settings.tokens = 60;
    expected[i] = alone(other, prompt_ids(small, i, 30 + i), settings);
    REQUIRE(worker.add(written.job(i, prompt_ids(small, i, 30 + i), settings)));
  }
  REQUIRE(written.wait_for(5, 5));
  CHECK(worker.drain(std::chrono::seconds(60)));
  CHECK(written.texts() == expected);
  CHECK(worker.report().accepted > 0);
  CHECK(worker.report().accepted <= worker.report().drafted);
  CHECK(worker.report().pages_used == 0);
}

TEST_CASE("text worker: an error of a drafter ends its text only") {
  struct Broken : Drafter {
    std::vector<DraftedToken> draft(std::span<const int32_t> text, int64_t, const Sampler&) override {
      if (text[1] == kFirstByte) throw Error(ErrorKind::InputOutput, "the draft model cannot be read");
      if (text[1] == kFirstByte + 1) throw std::runtime_error("anything");
      return {};
    }
    bool draws() const override { return false; }
  };
  SmallLanguage small, other;
  WrittenTexts written;
  std::map<int, std::string> expected;
  TextWorker::Settings how{.sequences = 3};
  how.drafter = [] { return std::make_shared<Broken>(); };
  TextWorker worker(small.decoder, *small.tokenizer, how);
  for (int i = 0; i < 6; ++i) {
    auto ids = prompt_ids(small, i, 30);
    ids[1] = kFirstByte + i % 3;
    expected[i] = i % 3 == 0   ? "error: the draft model cannot be read"
                  : i % 3 == 1 ? "error: anything"
                               : alone(other, ids, letters(40));
    REQUIRE(worker.add(written.job(i, ids, letters(40))));
  }
  REQUIRE(written.wait_for(6, 6));
  CHECK(worker.drain(std::chrono::seconds(60)));
  for (auto& [i, text] : expected) CHECK(written.texts()[i].ends_with(text));
  CHECK(worker.report().failed == 4);
  CHECK(worker.report().pages_used == 0);
}

TEST_CASE("text worker: texts beyond their context go on with what is left, as alone") {
  SmallLanguage small, other;
  WrittenTexts written;
  std::map<int, std::string> expected;
  constexpr int64_t kContext = 48;
  TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 2, .context = kContext});
  for (int i = 0; i < 4; ++i) {
    ContinuationSettings settings = letters(100 + 10 * i);
    settings.overflow = Overflow::shift;
    settings.keep = i;
    Session session(other.decoder, kContext);
    Generation text(session, *small.tokenizer, prompt_ids(small, i, 20 + i), settings);
    while (!text.is_over()) expected[i] += text.step();
    CHECK(text.done().shifts >= 2);
    CHECK(expected[i].size() == static_cast<size_t>(100 + 10 * i));
    REQUIRE(worker.add(written.job(i, prompt_ids(small, i, 20 + i), settings)));
  }
  REQUIRE(written.wait_for(4, 4));
  CHECK(written.texts() == expected);
}

TEST_CASE("text worker: a prompt that begins like an earlier one is computed from there on") {
  SmallLanguage small, other;
  WrittenTexts written;
  TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 2});
  auto ids = prompt_ids(small, 1, 100);
  REQUIRE(worker.add(written.job(0, ids, letters(5))));
  REQUIRE(written.wait_for(1, 1));
  ids.resize(80);
  REQUIRE(worker.add(written.job(1, ids, letters(20))));
  REQUIRE(written.wait_for(2, 2));
  CHECK(worker.drain(std::chrono::seconds(60)));
  CHECK(worker.report().prefix_hits == 1);
  CHECK(worker.report().reused_tokens == 4 * PagePool::kRows);
  CHECK(written.texts()[1] == alone(other, ids, letters(20)));
}

TEST_CASE("text worker: texts of clients that went away leave the queue, and their pages are free") {
  SmallLanguage small;
  WrittenTexts written;
  TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 2, .queue = 4});
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::shared_ptr<TextJob>> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(written.job(i, prompt_ids(small, i, 30), letters(300)));
    jobs.back()->gone = gone;
    REQUIRE(worker.add(jobs.back()));
  }
  REQUIRE(written.wait_for(2, 0));
  *gone = true;
  CHECK(worker.drain(std::chrono::seconds(60)));
  CHECK(worker.report().active == 0);
  CHECK(worker.report().waiting == 0);
  CHECK(worker.report().pages_used == 0);
  CHECK(worker.report().cancelled >= 1);
}

namespace {

struct Unanswered : HttpHandler {
  std::optional<ServiceRequest> request;
  Answer answer;
  void handle(ServiceRequest r, Answer a) override { request = std::move(r), answer = std::move(a); }
  const std::string& known_paths() const override {
    static const std::string none;
    return none;
  }
};

}  // namespace

TEST_CASE("http: a request knows when its client hangs up before the reply") {
  Unanswered handler;
  HttpServer server(handler, HttpLimits{});
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  server.take(pair[1]);
  const auto ask = [&] {
    const std::string asked = "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    REQUIRE(::send(pair[0], asked.data(), asked.size(), 0) == static_cast<ssize_t>(asked.size()));
    server.work(std::chrono::steady_clock::now());
  };
  for (int i = 0; i < 3; ++i) {
    handler.request.reset();
    ask();
    REQUIRE(handler.request);
    REQUIRE(handler.request->gone);
    CHECK_FALSE(*handler.request->gone);
    if (i == 2) break;
    std::exchange(handler.answer, nullptr)({200, "text/plain", "there", {}});
    server.work(std::chrono::steady_clock::now());
    char piece[4096];
    CHECK(::recv(pair[0], piece, sizeof piece, MSG_DONTWAIT) > 0);
  }
  ::close(pair[0]);
  server.work(std::chrono::steady_clock::now());
  CHECK(*handler.request->gone);
  handler.answer = nullptr;
}

TEST_CASE("language service: a request whose client has hung up is not computed, and its connection is let go") {
  SmallLanguage small;
  const ChatTemplate format = ChatTemplate::usual();
  TextWorker worker(small.decoder, *small.tokenizer, {});
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, worker, *small.tokenizer, format, {});
  ServiceRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.host = "127.0.0.1:1";
  request.body = R"({"prompt": "a", "max_tokens": 300})";
  request.gone = std::make_shared<std::atomic<bool>>(true);
  std::mutex mutex;
  std::condition_variable came;
  int status = 0;
  service.handle(std::move(request), [&](ServiceReply reply) {
    const std::lock_guard lock(mutex);
    status = reply.status;
    came.notify_all();
  });
  std::unique_lock lock(mutex);
  REQUIRE(came.wait_for(lock, std::chrono::seconds(60), [&] { return status != 0; }));
  CHECK(status == 499);
  lock.unlock();
  CHECK(worker.drain(std::chrono::seconds(60)));
  CHECK(worker.report().cancelled == 1);
  CHECK(worker.report().step_tokens == 0);
}

TEST_CASE("language service: fifty streams at once give what each gives alone") {
  SmallLanguage small;
  const ChatTemplate format = ChatTemplate::usual();
  TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 8, .queue = 64});
  ContinuationSettings usual;
  usual.tokens = 400;
  usual.temperature = 0;
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, worker, *small.tokenizer, format, usual);
  HttpServer server(service, {"127.0.0.1", 0, true});
  const auto body = [](int i, const char* more) {
    return R"({"prompt": "Client number )" + std::to_string(i) + std::string(static_cast<size_t>(i % 7) * 9, 'x') +
           R"( says", "max_tokens": 14, "grammar": "root ::= [a-z]{12}")" + more + "}";
  };
  std::vector<std::unique_ptr<TextClient>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<TextClient>(server.port()));
    clients.back()->post("/v1/completions", body(i, R"(, "stream": true)"));
  }
  const auto text_in = [](const std::string& heard) {
    std::string text;
    const std::string key = "\"text\":\"";
    for (size_t at = 0; (at = heard.find(key, at)) != std::string::npos;) {
      at += key.size();
      text += heard.substr(at, heard.find('"', at) - at);
    }
    return text;
  };
  std::vector<std::string> texts;
  for (const auto& client : clients) {
    const std::string heard = client->hear([](const std::string& s) { return s.ends_with("\r\n0\r\n\r\n"); });
    CHECK(heard.find("data: [DONE]") != std::string::npos);
    texts.push_back(text_in(heard));
  }
  CHECK(worker.report().failed == 0);
  TextClient last(server.port());
  for (int i = 0; i < 50; i += 6) {
    last.post("/v1/completions", body(i, ""));
    const std::string heard = last.hear([](const std::string& s) { return s.find("\"usage\"") != std::string::npos; });
    INFO(i);
    CHECK(texts[static_cast<size_t>(i)].size() == 12);
    CHECK(texts[static_cast<size_t>(i)] == text_in(heard));
  }
}

TEST_CASE("prompt budget: steps beside running texts stay within three steps without prompts") {
  PromptBudget budget;
  CHECK(budget.tokens(0) == PromptBudget::kMost);
  const int64_t first = budget.tokens(4);
  CHECK(first < PromptBudget::kMost);
  budget.took(4, first, 1.0);  // no earlier measurement to compare with
  CHECK(budget.tokens(4) == first);
  budget.took(4, 0, 0.1);
  budget.took(4, first, 0.4);
  CHECK(budget.tokens(4) == first / 2);
  for (int i = 0; i < 9; ++i) budget.took(4, budget.tokens(4), 1.0);
  CHECK(budget.tokens(4) == PromptBudget::kLeast);
  budget.took(4, PromptBudget::kLeast - 1, 0.1);  // the budget was not used up
  CHECK(budget.tokens(4) == PromptBudget::kLeast);
  for (int i = 0; i < 9; ++i) budget.took(4, budget.tokens(4), 0.1);
  CHECK(budget.tokens(4) == PromptBudget::kMost - 4);
  CHECK(budget.tokens(200) == PromptBudget::kLeast);
  budget.took(0, 128, 9.0);
  CHECK(budget.tokens(4) == PromptBudget::kMost - 4);
}
