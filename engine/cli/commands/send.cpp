// harmonics send and harmonics receive: transfer samples between streams, without a flow.
#include <boost/json.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stop_token>
#include <thread>

#include <csignal>
#include <unistd.h>

#include "consumers/format.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/live_addresses.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/streams/streams.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr size_t kMostProducerName = 255;  // bytes; limit of the frame format

using Clock = std::chrono::steady_clock;

// Named streams that are read jointly, like the producers of a flow.
class Together {
 public:
  Together(const std::vector<Binding>& bindings, const Options& options) {
    for (const Binding& b : bindings) {
      GraphNode node;
      node.kind = DeclarationKind::Producer;
      node.name = b.name;
      graph_.nodes.push_back(std::move(node));
    }
    graph_.name = options.verb;
    graph_.cycles.resize(1);
    FirstSamples first(options);
    streams_.set_awaited([&](const Address& address) { return first.of(Registry::global(), address); });
    for (const Binding& b : bindings) {
      Address address = b.address;
      expect_end(HX_PRODUCER, address);
      expect_door(address, options);
      if (options.insecure) set_option(Registry::global(), HX_PRODUCER, address, "insecure", "true");
      streams_.bind(graph_, Registry::global(), b.name, std::move(address));
    }
    streams_.set_awaited({});
    std::vector<int> all;
    bool live = options.rate > 0;
    streams_.each([&](const Source& source) {
      live |= source.info().live;
      std::istringstream notes(source.info().notes);
      for (std::string line; !options.quiet && std::getline(notes, line);)
        print_note("'" + source.name() + "': " + line);
    });
    for (size_t i = 0; i < bindings.size(); ++i) all.push_back(static_cast<int>(i));
    reader_ = streams_.reader(graph_, all, live ? 1 : 64, false, 0);
    memory_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      memory_[i].resize(reader_->bytes(i) * reader_->options().batch);
      to_.push_back(memory_[i].data());
    }
  }

  // Reads the next samples. Returns 0 at the end.
  uint64_t read(uint64_t most) { return reader_->read(std::min(most, reader_->options().batch), to_.data()); }
  // Returns the numbers of refused samples with the last reason, once for streams of one address. Thread-safe.
  std::map<std::string, std::pair<uint64_t, std::string>> refused() const {
    std::map<std::string, std::pair<uint64_t, std::string>> all;
    streams_.each([&](const Source& source) {
      const std::optional<StreamHealth> health = source.health();
      if (!health || health->refused == 0) return;
      const std::pair<uint64_t, std::string> counts(health->refused, health->last_error);
      const bool is_known = std::ranges::any_of(all, [&](const auto& other) { return other.second == counts; });
      if (!is_known) all[source.name()] = counts;
    });
    return all;
  }
  // Ends reading. Thread-safe.
  void cancel() const {
    streams_.each([](const Source& source) { source.cancel(); });
  }
  size_t size() const { return memory_.size(); }
  const std::string& name(size_t i) const { return graph_.nodes[i].name; }
  const StreamInfo& info(size_t i) const { return reader_->source(i).info(); }
  const std::byte* sample(size_t i, uint64_t n) const { return memory_[i].data() + n * reader_->bytes(i); }

 private:
  Graph graph_;
  StreamSet streams_;
  std::unique_ptr<JointReader> reader_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<void*> to_;
};

constexpr int64_t kMostClasses = int64_t{1} << 24;  // of classes= of a consumer

volatile std::sig_atomic_t stopped_by = 0;
void note_signal(int number) { stopped_by = number; }

// Prints the numbers of refused samples as they grow: five notes at most, then only the last numbers.
class Refusals {
 public:
  Refusals(const Together& streams, bool quiet) : streams_(streams), quiet_(quiet) {}
  // The result of the last call.
  uint64_t samples() const { return samples_; }
  void tell(bool last) {
    uint64_t all = 0;
    for (const auto& [name, counts] : streams_.refused()) {
      all += counts.first;
      uint64_t& told = told_[name];
      if (quiet_ || counts.first == told || (notes_ >= kMostNotes && !last)) continue;
      told = counts.first;
      ++notes_;
      print_note(fmt::format("refused: {} of '{}': {}", number_of(counts.first, "sample"), name, counts.second));
    }
    samples_ = all;
  }

 private:
  static constexpr int kMostNotes = 5;
  const Together& streams_;
  const bool quiet_;
  int notes_ = 0;
  std::map<std::string, uint64_t> told_;
  uint64_t samples_ = 0;
};

// During its lifetime Ctrl-C, SIGTERM and SIGHUP end reading; samples already read are kept. A second signal ends the
// program. Reports refused samples.
class ReceiverWatch {
 public:
  ReceiverWatch(const Together& streams, Refusals& refusals)
      : thread_([&](const std::stop_token& over) {
          for (int looks = 1; !over.stop_requested() && stopped_by == 0; ++looks) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (looks % 25 == 0) refusals.tell(false);
          }
          if (stopped_by != 0) streams.cancel();
        }) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    struct sigaction before {};
    if (sigaction(SIGHUP, &action, &before) == 0 && before.sa_handler == SIG_IGN) sigaction(SIGHUP, &before, nullptr);
  }

 private:
  std::jthread thread_;
};

class Tally {
 public:
  Tally(const Options& options, const char* done) : options_(options), done_(done) {}
  void add(uint64_t samples) {
    samples_ += samples;
    if (options_.quiet || isatty(STDERR_FILENO) || Clock::now() < next_) return;
    next_ += std::chrono::seconds(10);
    say(text());
  }
  uint64_t samples() const { return samples_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  int finish(const std::string& address, const Refusals& refusals) const {
    const double s = seconds();
    if (!options_.quiet) say(text());
    boost::json::object o{{"version", 1},
                          {"address", address},
                          {"samples", samples_},
                          {"seconds", s},
                          {"samples_per_second", s > 0 ? static_cast<double>(samples_) / s : 0}};
    o["refused"] = refusals.samples();
    if (options_.json) print_json(o);
    return kDone;
  }

 private:
  std::string text() const {
    const double s = seconds();
    return fmt::format("{} {} in {} ({})", done_, number_of(static_cast<uint64_t>(samples_), "sample"), duration(s),
                       rate(s > 0 ? static_cast<double>(samples_) / s : 0));
  }
  const Options& options_;
  const char* done_;
  uint64_t samples_ = 0;
  Clock::time_point begin_ = Clock::now(), next_ = begin_ + std::chrono::seconds(10);
};

// Gives every stream a name. A single stream is named "value".
std::vector<Binding> named(const std::vector<std::string>& texts, const char* flag) {
  std::vector<Binding> bindings;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    Binding b = parse_binding(text);
    if (b.name.empty() && texts.size() == 1) b.name = "value";
    if (b.name.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' has no name", text), {},
                  {fmt::format("write {} NAME={}", flag, text)});
    if (!names.insert(b.name).second)
      throw Error(ErrorKind::Usage, fmt::format("'{}' is named twice", b.name), {}, {"give every stream its own name"});
    bindings.push_back(std::move(b));
  }
  return bindings;
}

// Returns the name that the sender announces. Repeating a command gives the same name.
std::string producer_name(const Options& options) {
  if (!options.producer_name.empty()) return options.producer_name;
  std::string name;
  for (const std::string& from : options.from) name += (name.empty() ? "" : " ") + from;
  size_t length = std::min(name.size(), kMostProducerName);
  while (length < name.size() && length > 0 && (name[length] & 0xC0) == 0x80) --length;  // whole UTF-8 characters
  return name.substr(0, length);
}

std::vector<Sink> open_targets(const Options& options, const std::vector<Binding>& sources, const Together& streams) {
  Registry& registry = Registry::global();
  std::vector<Sink> sinks;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Binding& source = sources[i];
    Address address = parse_address(options.files.front());
    if (address.fragment)
      throw Error(ErrorKind::Usage,
                  fmt::format("'{}' names a tensor; names are those of --from", options.files.front()), {},
                  {"write --from " + *address.fragment + "=ADDRESS"});
    expect_end(HX_CONSUMER, address);
    set_option(registry, HX_CONSUMER, address, "name", producer_name(options));
    set_option(registry, HX_CONSUMER, address, "resume", "true");
    if (!options.ack.empty()) {
      if (!takes_option(registry, HX_CONSUMER, address, "ack"))
        throw Error(ErrorKind::Usage, fmt::format("{}: has no acknowledgements", address.scheme), {},
                    {"send to tcp:, unix: or zmq+dealer:"});
      set_option(registry, HX_CONSUMER, address, "ack", options.ack);
    }
    if (options.insecure) set_option(registry, HX_CONSUMER, address, "insecure", "true");
    // Integers beyond the largest number of classes are not class numbers.
    if (const int64_t classes = streams.info(i).classes;
        classes > 0 && classes <= kMostClasses && is_integer(streams.info(i).dtype))
      set_option(registry, HX_CONSUMER, address, "classes", std::to_string(classes));
    if (sources.size() > 1 || source.name != "value") address.fragment = source.name;
    sinks.push_back(open_sink(registry, source.name, address));
  }
  return sinks;
}

std::vector<Binding> tensors_of(const std::string& text) {
  const Address address = parse_address(text);
  std::vector<Binding> bindings;
  if (!address.fragment) return {{"value", address}};
  std::istringstream names(*address.fragment);
  for (std::string name; std::getline(names, name, ',');) {
    bindings.push_back({name, address});
    bindings.back().address.fragment = name;
  }
  if (bindings.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' names no tensor", text), {},
                {"write #image,label, or nothing after the address"});
  return bindings;
}

class Lines {
 public:
  void print(const Together& streams, uint64_t n) {
    std::string line = "{";
    for (size_t i = 0; i < streams.size(); ++i) {
      const StreamInfo& info = streams.info(i);
      line += fmt::format("{}{}:{}", i ? "," : "", boost::json::serialize(boost::json::string(streams.name(i))),
                          json_.line(HTensor(info.dtype, info.sample, streams.sample(i, n))));
    }
    print_json_line(line + "}");
  }

 private:
  LineWriter json_{LineFormat::Json};
};

}  // namespace

int send_command(const Options& options) {
  const std::vector<Binding> bindings = named(options.from, "--from");
  Together streams(bindings, options);
  std::vector<Sink> sinks = open_targets(options, bindings, streams);
  Tally tally(options, "sent");
  Refusals refusals(streams, options.quiet);
  const uint64_t most = options.count ? *options.count : UINT64_MAX;
  const auto begin = Clock::now();
  while (const uint64_t n = tally.samples() < most ? streams.read(most - tally.samples()) : 0) {
    for (uint64_t k = 0; k < n; ++k)
      for (size_t i = 0; i < sinks.size(); ++i)
        sinks[i].push(streams.info(i).dtype, streams.info(i).sample, 1, streams.sample(i, k));
    tally.add(n);
    if (options.rate > 0)
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                                static_cast<double>(tally.samples()) / options.rate)));
  }
  for (Sink& sink : sinks) sink.finish();
  refusals.tell(true);
  return tally.finish(options.files.front(), refusals);
}

int receive_command(const Options& options) {
  const std::vector<Binding> bindings = tensors_of(options.files.front());
  Together streams(bindings, options);
  std::vector<std::pair<size_t, Sink>> sinks;
  for (const std::string& text : options.to) {
    Binding b = parse_binding(text);
    size_t i = 0;
    while (!b.name.empty() && i < bindings.size() && bindings[i].name != b.name) ++i;
    if (i == bindings.size())
      throw Error(ErrorKind::Usage, fmt::format("'{}' is not received", b.name), {},
                  {fmt::format("write {}#{}", options.files.front(), b.name)});
    if (b.name.empty() && bindings.size() > 1)
      throw Error(ErrorKind::Usage, fmt::format("'{}' does not name a tensor", text), {},
                  {fmt::format("write --to {}={}", bindings[0].name, text)});
    if (options.insecure) set_option(Registry::global(), HX_CONSUMER, b.address, "insecure", "true");
    sinks.emplace_back(i, open_sink(Registry::global(), bindings[i].name, b.address));
  }
  Lines lines;
  Tally tally(options, "received");
  Refusals refusals(streams, options.quiet);
  std::optional<ReceiverWatch> watch(std::in_place, streams, refusals);
  const uint64_t most = options.count ? *options.count : UINT64_MAX;
  while (const uint64_t n = tally.samples() < most && stopped_by == 0 ? streams.read(most - tally.samples()) : 0) {
    for (uint64_t k = 0; k < n && sinks.empty(); ++k) lines.print(streams, k);
    if (sinks.empty()) flush_output();
    for (auto& [i, sink] : sinks) sink.push(streams.info(i).dtype, streams.info(i).sample, n, streams.sample(i, 0));
    tally.add(n);
  }
  for (auto& [i, sink] : sinks) sink.finish();
  watch.reset();
  refusals.tell(true);
  const int code = tally.finish(options.files.front(), refusals);
  return stopped_by != 0 ? 128 + stopped_by : code;
}

}  // namespace harmonics::engine::cli
