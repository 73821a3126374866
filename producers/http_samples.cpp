#include "producers/http_samples.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "wire/plain/plain_streams.hpp"

namespace harmonics {
namespace {

using plain::Format;
using Answer = std::function<void(SentAnswer)>;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaitingBytes = 32u << 20;
constexpr size_t kMostWaitingPosts = 64;
constexpr auto kMostPatience = std::chrono::seconds(5);  // time to wait for room, before the sender must retry
constexpr auto kBeginning = std::chrono::seconds(2);     // wait for the other streams of a run that has not begun
constexpr auto kLookFor = std::chrono::milliseconds(50);

SentAnswer refusal(int status, std::string error, std::string note) {
  return {status, 0, 0, "", std::move(error), std::move(note)};
}

std::optional<Format> format_of_type(const std::string& content_type, const std::string& body) {
  std::string type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  for (const auto& [name, format] : {std::pair{"application/json", Format::Jsonl},
                                     {"application/x-ndjson", Format::Jsonl},
                                     {"application/jsonl", Format::Jsonl},
                                     {"application/json-lines", Format::Jsonl},
                                     {"text/csv", Format::Csv},
                                     {"application/msgpack", Format::Msgpack},
                                     {"application/x-msgpack", Format::Msgpack},
                                     {"application/vnd.msgpack", Format::Msgpack},
                                     {"application/x-npy", Format::Npy}})
    if (type == name) return format;
  // No type, and the default of curl, declare nothing.
  if (type.empty() || type == "application/x-www-form-urlencoded" || type == "application/octet-stream" ||
      type == "text/plain")
    return plain::format_of_first(std::as_bytes(std::span(body)), true);
  return std::nullopt;
}

// Passes request bodies to the feed in order of arrival, on a separate thread: senders wait, the server does not.
class HttpEndpoint {
 public:
  explicit HttpEndpoint(plain::FeedOptions options) : feed_(std::move(options)) {
    feed_.wake_by([this] { changed_.notify_all(); });
    thread_ = std::thread([this] { run(); });
  }
  ~HttpEndpoint() {
    feed_.wake_by({});
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
    for (Post& post : posts_) post.answer(over());
  }
  plain::SampleFeed& feed() { return feed_; }
  wire::Inbox& inbox() { return feed_.inbox(); }

  void send(SentSamples samples, Answer answer) {
    const auto format = format_of_type(samples.content_type, samples.body);
    if (!format)
      return answer(refusal(415, "a body of this type cannot be read",
                            "send application/json (an object, an array of objects, or a line each), text/csv, "
                            "application/msgpack or application/x-npy"));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!leaving_ && posts_.size() < kMostWaitingPosts && waiting_bytes_ + samples.body.size() <= kMostWaitingBytes) {
        waiting_bytes_ += samples.body.size();
        posts_.push_back({std::move(samples.body), *format, std::move(answer), Clock::now()});
        answer = nullptr;
      }
    }
    if (answer) return answer(busy());
    changed_.notify_all();
  }

 private:
  struct Post {
    std::string body;
    Format format;
    Answer answer;
    Clock::time_point came = Clock::now();
  };
  static SentAnswer busy() { return refusal(503, "samples arrive faster than they are used", "send again later"); }
  static SentAnswer over() { return refusal(503, "the run has ended", "start it again"); }

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return leaving_ || !posts_.empty(); });
      if (leaving_) return;
      Post post = std::move(posts_.front());
      posts_.pop_front();
      lock.unlock();
      post.answer(take(post));
      lock.lock();
      waiting_bytes_ -= post.body.size();
    }
  }
  template <typename Holds>
  bool wait_until(Holds holds, Clock::time_point latest) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!leaving_ && Clock::now() < latest) {
      lock.unlock();
      if (holds()) return true;
      lock.lock();
      if (!leaving_) changed_.wait_for(lock, kLookFor);
    }
    return false;
  }
  bool is_leaving() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return leaving_;
  }

  SentAnswer take(const Post& post) {
    if (!wait_until([this] { return !feed_.is_full(); }, post.came + kMostPatience))
      return is_leaving() ? over() : busy();
    const uint64_t peer = ++last_peer_;
    feed_.message(peer, std::as_bytes(std::span(post.body)), post.format);
    const bool begun = wait_until([this] { return feed_.has_begun(); }, Clock::now() + kBeginning);
    const plain::Outcome outcome = feed_.left(peer);
    SentAnswer answer{begun ? 200 : 202, outcome.accepted, outcome.refused, outcome.first_refusal, "", ""};
    if (begun && outcome.accepted == 0 && outcome.refused > 0)
      answer.status = 400, answer.error = "no sample could be read: " + outcome.first_refusal;
    return answer;
  }

  plain::SampleFeed feed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Post> posts_;
  size_t waiting_bytes_ = 0;
  bool leaving_ = false;
  uint64_t last_peer_ = 0;
  std::thread thread_;
};

struct Endpoints {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<HttpEndpoint>> all;
};
Endpoints& endpoints() {
  static auto* const it = new Endpoints;  // never destroyed: a server may still use it
  return *it;
}

}  // namespace

std::shared_ptr<Producer> open_http(const std::string& path, const Arguments& options) {
  for (const char c : path)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
          c == '.'))
      throw Error(ErrorKind::Usage, "http:" + path + " is not a sample name")
          .note(path.starts_with("//") ? "a file of a web server is downloaded first: curl -LO 'http:" + path + "'"
                                       : "a name has letters, digits, '-', '_' and '.'")
          .note(
              "write http: or http:NAME; programs send to POST /v1/samples or /v1/samples/NAME of the address of "
              "--serve");
  const std::string where = "http:" + path;
  std::shared_ptr<HttpEndpoint> door;
  {
    const std::lock_guard<std::mutex> lock(endpoints().mutex);
    std::weak_ptr<HttpEndpoint>& known = endpoints().all[path];
    door = known.lock();
    if (!door) {
      plain::FeedOptions feed = plain::feed_options(where, Format::Jsonl, options);
      feed.remedy = "send one: curl -d '{\"x\": [1, 2]}' -H 'Authorization: Bearer TOKEN' http://ADDRESS/v1/samples" +
                    (path.empty() ? "" : "/" + path) + ", where --serve listens at ADDRESS";
      feed.endless = true;  // requests do not end the stream
      feed.messages = true;
      feed.decoder.batches = feed.decoder.rows = true;
      known = door = std::make_shared<HttpEndpoint>(std::move(feed));
    }
  }
  return std::make_shared<plain::PlainProducer<HttpEndpoint>>(door, options, plain::at_most_once(where));
}

std::vector<Argument> http_options() {
  std::vector<Argument> options = plain::plain_options("", "");
  std::erase_if(options, [](const Argument& o) {
    return o.name == "format" || o.name == "rows" || o.name == "end" || o.name == "forget" || o.name == "wait";
  });
  options.push_back(Argument::integer("wait", 86400, "seconds to wait for the first sample").in("1..86400"));
  return options;
}

void expect_http(const std::string& name) {
  const std::lock_guard<std::mutex> lock(endpoints().mutex);
  endpoints().all.try_emplace(name);
}

void send_by_http(const std::string& name, SentSamples samples, Answer answer) {
  std::shared_ptr<HttpEndpoint> door;
  bool known = false;
  {
    const std::lock_guard<std::mutex> lock(endpoints().mutex);
    if (const auto at = endpoints().all.find(name); at != endpoints().all.end()) known = true, door = at->second.lock();
  }
  if (!door && known) return answer(refusal(503, "the run is starting or ending", "send again later"));
  if (!door) return answer(refusal(404, "no producer takes samples here", "bind one: --producer x=http:" + name));
  door->send(std::move(samples), std::move(answer));
}

}  // namespace harmonics
