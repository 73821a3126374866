#include "engine/cli/run/live_addresses.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/corpus/live_corpus.hpp"
#include "engine/corpus/register.hpp"

namespace harmonics::engine::cli {

bool takes_option(Registry& registry, uint32_t kind, const Address& address, std::string_view option) {
  const ItemPtr item = registry.need(kind, address.scheme);
  return std::any_of(item->arguments.begin(), item->arguments.end(),
                     [&](const ArgumentSpec& a) { return a.name == option; });
}

void set_option(Registry& registry, uint32_t kind, Address& address, const std::string& option,
                const std::string& value) {
  if (!address.find(option) && takes_option(registry, kind, address, option))
    address.options.push_back({option, value});
}

void expect_end(uint32_t kind, const Address& address) {
  struct Ends {
    const char *receives, *sends;
  };
  for (const Ends& ends :
       {Ends{"zmq+router", "zmq+dealer"}, Ends{"zmq+pull", "zmq+push"}, Ends{"zmq+sub", "zmq+pub"}}) {
    const bool sender = kind == HX_CONSUMER;
    if (address.scheme != (sender ? ends.receives : ends.sends)) continue;
    Address other = address;
    other.scheme = sender ? ends.sends : ends.receives;
    throw Error(ErrorKind::Usage, fmt::format("{}: {} samples", address.scheme, sender ? "receives" : "sends"), {},
                {fmt::format("{} {}", sender ? "send to" : "receive at", other.str())});
  }
}

void expect_door(const Address& address, const Options& options) {
  if (address.scheme != "http" || address.path.starts_with("//")) return;  // its producer names the remedy
  if (!options.serve.empty() || options.ui || !options.control.empty()) return;
  const bool runs = options.verb == "run";
  throw Error(ErrorKind::Usage,
              fmt::format("{}: its samples arrive at the address of {}, which is not given", address.str(),
                          runs ? "--serve" : "'harmonics run --serve'"),
              {},
              {runs ? "add --serve 127.0.0.1:8080"
                    : "receive at tcp:127.0.0.1:5555?format=jsonl, or another address that listens itself"});
}

namespace {

// Returns whether opening this address waits for a sender, which a note then announces.
bool waits_for_sender(Registry& registry, const Address& address) {
  for (const char* other : {"file", "stdin", "http"})  // http: the run prints where it listens
    if (address.scheme == other) return false;
  return !address.find("type") && registry.find(HX_PRODUCER, address.scheme) &&
         takes_option(registry, HX_PRODUCER, address, "wait");
}

// Returns the address of the stream that a corpus reads, or the address itself.
Address read_by(const Address& address) {
  if (address.scheme != "corpus") return address;
  std::string path = address.path;
  if (path.starts_with('{') || path.ends_with(".corpus.json")) {
    const CorpusOptions options =
        parse_corpus_json(path.starts_with('{') ? path : read_plain_file(path), "corpus:" + path);
    path = options.datasets.empty() ? "" : options.datasets.front().path;
  }
  return is_live_address(path) ? parse_address(path) : address;
}

// Prints the samples that a source refuses before its first one, as their number grows.
class RefusedFirst {
 public:
  explicit RefusedFirst(const Source& source)
      : thread_([this, &source](const std::stop_token& over) {
          std::unique_lock lock(mutex_);
          for (;;) {
            changed_.wait_for(lock, over, std::chrono::milliseconds(500), [] { return false; });
            if (over.stop_requested()) return;
            tell(source);
          }
        }) {}

 private:
  static constexpr int kMostNotes = 5;
  void tell(const Source& source) try {
    const std::optional<StreamHealth> health = source.health();
    if (!health || health->refused == told_ || notes_ == kMostNotes) return;
    told_ = health->refused;
    ++notes_;
    print_note(fmt::format("no readable sample of '{}' yet; refused: {}: {}", source.name(), number_of(told_, "sample"),
                           health->last_error));
  } catch (const Error&) {  // the thread that waits for the sample reports it
  }
  std::mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t told_ = 0;
  int notes_ = 0;
  std::jthread thread_;
};

}  // namespace

AwaitedSource FirstSamples::of(Registry& registry, Address address) {
  if (quiet_) return {};
  const bool rows = address.scheme == "corpus";  // of tokens, for which the run waits later
  address = read_by(address);
  if (!waits_for_sender(registry, address)) return {};
  address.fragment.reset();
  address.options.clear();
  return [this, rows, text = address.str()](const Source& source) {
    if (told_.insert(text).second) print_note(fmt::format("waiting for {} of {}", rows ? "texts" : "samples", text));
    return rows ? nullptr : std::make_shared<RefusedFirst>(source);
  };
}

}  // namespace harmonics::engine::cli
