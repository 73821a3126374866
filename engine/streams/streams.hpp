// The streams bound to a graph for one purpose (training, testing, inference): opened, typed, joined.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/address.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/spool/dead_letters.hpp"
#include "engine/streams/joint_reader.hpp"
#include "engine/streams/stream_source.hpp"
#include "engine/streams/stream_steps.hpp"

namespace harmonics::engine {

// Opens the source of an address. Options of the joint group (shuffle, batch, take, skip, repeat, shard, seed) and
// steps of the stream (stream_steps.hpp) must already be removed; the others are checked against the scheme's schema.
Source open_source(Registry& registry, const std::string& name, const Address& address,
                   const AwaitedSource& awaited = {});
Sink open_sink(Registry& registry, const std::string& name, const Address& address);

// Returns whether the error concerns incoming data, so that the training before it is valid.
inline bool is_of_streams(ErrorKind kind) {
  return kind == ErrorKind::Stream || kind == ErrorKind::NoInput || kind == ErrorKind::InputOutput ||
         kind == ErrorKind::Denied || kind == ErrorKind::Unavailable;
}

// Fractions of a file's samples where a part of it begins and ends.
using FilePart = std::pair<double, double>;

class StreamSet {
 public:
  // Binds a producer to an address. An empty `name` means the first unbound producer. Throws ErrorKind::Usage or Name,
  // with a suggested command.
  void bind(const Graph& graph, Registry& registry, const std::string& name, Address address);
  // Returns the producer x if the address is "x#label", which means the address of x with another field; otherwise -1.
  static int field_of(const Graph& graph, const std::string& name, const Address& address);
  void bind(const Graph& graph, int producer, Source source);
  // `options`: as written after the '?' of an address.
  void bind(const Graph& graph, Registry& registry, int producer, Source source, const std::string& options);
  // Sets the observer of sources that wait for their first sample, for addresses bound after this call.
  void set_awaited(std::function<AwaitedSource(const Address&)> awaited) { awaited_ = std::move(awaited); }
  // Live streams bound after this call go through the spool.
  void set_spool(std::shared_ptr<Spool> spool) { spool_ = std::move(spool); }
  // Sets the types of live streams of a resumed run, by producer (<harmonics/announced.hpp>). Streams bound after this
  // call, by addresses with the option `type`, can be opened without a sender.
  void expect(std::map<std::string, std::string> types) { expected_ = std::move(types); }
  // Sets the vocabulary of the weights or the training streams, by producer: words or characters in the order of their
  // indices. Addresses bound after this call use it if they have the option `learned` and neither symbols= nor
  // vocabulary=.
  void expect_words(const std::string& producer, std::vector<std::string> words) {
    words_[producer] = std::move(words);
  }
  // Returns the type that the source of a live stream announced, before any step; "" if the stream is not live or was
  // bound as an object.
  std::string announced(int producer) const {
    const auto at = announced_.find(producer);
    return at == announced_.end() ? "" : at->second;
  }
  // Sets the store for samples that a join leaves out or a source refuses.
  void set_dead_letters(std::shared_ptr<DeadLetters> letters) { letters_ = std::move(letters); }
  const DeadLetters* dead_letters() const { return letters_.get(); }  // null: none are kept
  bool bound(int producer) const { return sources_.count(producer) != 0; }
  bool empty() const { return sources_.empty(); }
  const Source& source(int producer) const { return *sources_.at(producer); }
  Source& source(int producer) { return *sources_.at(producer); }
  template <typename Body>
  void each(Body&& body) const {
    for (const auto& [producer, source] : sources_) body(*source);
  }

  // Searches the data of a producer's address for this sample, to report its number. Returns nothing if it is not
  // found: for live streams, objects, samples changed by a step, and data that takes more than a few seconds to read.
  struct Record {
    uint64_t number;
    std::string address;
  };
  std::optional<Record> record_of(int producer, Registry& registry, const void* sample, size_t bytes) const;

  // Returns the types as the graph sees them: declarations applied, groups of a ratio stacked on a new first axis.
  // Throws if a stream does not fit its declaration; with `refused`, passes each such error to it instead and returns
  // the types of the other streams.
  std::map<int, StreamType> types(const Graph& graph,
                                  const std::function<void(int producer, const Error&)>& refused = {}) const;

  std::optional<uint64_t> batch() const { return batch_; }
  // Returns a reader of these producers, which must be bound, in this order. `shuffle` and `unpaired` are defaults for
  // addresses without such an option.
  std::unique_ptr<JointReader> reader(const Graph& graph, const std::vector<int>& producers, uint64_t batch,
                                      bool shuffle, uint64_t seed, std::optional<Unpaired> unpaired = std::nullopt);

 private:
  uint64_t per_group(const Graph& graph, int producer) const;
  StreamType type_of(const Graph& graph, int producer) const;
  const std::vector<std::shared_ptr<Source>>& chosen(const std::vector<int>& producers,
                                                     const std::vector<JointMember>& members, bool refuse_unequal);
  Address of_field(const Graph& graph, int producer, const std::string& name, Address address) const;
  void take_joint_options(const std::string& name, Address& address);
  void take_edge_options(const std::string& name, int producer, Address& address);
  void agree(const std::string& name, const char* key, std::optional<std::string>& slot, const std::string& text);
  void expect_same_part(const Graph& graph, const std::vector<int>& producers) const;
  std::optional<JoinRules> join_rules(const std::vector<int>& producers, std::optional<Unpaired> unpaired);
  void bind_stepped(const Graph& graph, Registry& registry, int producer, Source source, const StreamSteps& steps);

  struct Chosen {
    std::vector<int> producers;
    std::vector<std::shared_ptr<Source>> sources;
  };
  std::function<AwaitedSource(const Address&)> awaited_;
  std::shared_ptr<Spool> spool_;  // outlives the sources
  std::shared_ptr<DeadLetters> letters_;
  std::map<int, std::shared_ptr<Source>> sources_;
  Address expecting(const Graph& graph, int producer, const Item& item, Address address) const;
  Address with_words(const std::string& name, const Item& item, Address address) const;
  std::map<std::string, std::string> expected_;
  std::map<std::string, std::vector<std::string>> words_;
  std::map<int, std::string> announced_;
  std::map<int, std::string> from_;                    // addresses without options
  std::map<int, Address> addresses_;                   // addresses with the options of the source
  std::map<int, FilePart> parts_;                      // of part=, and of whole files
  std::map<int, EdgeOptions> edges_;                   // of edge= and hold=
  std::optional<std::string> join_, unpaired_, rest_;  // as written
  std::optional<std::chrono::milliseconds> late_;
  std::map<int, std::vector<std::function<void(uint64_t)>>>
      reseed_;                           // reseeds augmentations; empty for a stream with its own seed
  std::map<int, Condition> conditions_;  // of where=
  std::vector<Chosen> chosen_;           // streams reduced by conditions, per set of joined streams
  std::optional<uint64_t> batch_, shuffle_, take_, skip_, repeat_, seed_, shard_, shards_;
};

// Throws ErrorKind::Stream if samples differ in type from those of the training, for which programs are compiled.
void check_same_samples(const Graph& graph, const std::map<int, StreamType>& learned,
                        const std::map<int, StreamType>& given, const std::string& purpose = "test");

}  // namespace harmonics::engine
