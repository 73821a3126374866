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

// Opens the source that an address names. Options of the joint group (shuffle, batch, take, skip, repeat, shard,
// seed) and steps of the stream (stream_steps.hpp) must already be removed; the others are checked against the
// scheme's schema.
Source open_source(Registry& registry, const std::string& name, const Address& address);
Sink open_sink(Registry& registry, const std::string& name, const Address& address);

// Whether the error concerns incoming data; the training before it is then valid.
inline bool is_of_streams(ErrorKind kind) {
  return kind == ErrorKind::Stream || kind == ErrorKind::NoInput || kind == ErrorKind::InputOutput ||
         kind == ErrorKind::Denied || kind == ErrorKind::Unavailable;
}

class StreamSet {
 public:
  // `name` empty: the graph's only producer that is still unbound. Throws ErrorKind::Usage/Name with a suggested
  // command.
  void bind(const Graph& graph, Registry& registry, const std::string& name, Address address);
  // Returns the producer x of an address "x#label", which means x's address with another field; -1 for any other
  // address.
  static int field_of(const Graph& graph, const std::string& name, const Address& address);
  void bind(const Graph& graph, int producer, Source source);
  // `options`: the options of an address, after its '?'.
  void bind(const Graph& graph, Registry& registry, int producer, Source source, const std::string& options);
  // Live streams bound after this call go through the spool.
  void set_spool(std::shared_ptr<Spool> spool) { spool_ = std::move(spool); }
  // Types of the live streams in the continued run, by producer (<harmonics/announced.hpp>). Streams bound after this
  // call, by addresses with the option `type`, can be opened without a sender.
  void expect(std::map<std::string, std::string> types) { expected_ = std::move(types); }
  // Words or characters that weights or training streams have numbered, in their order, by producer. Addresses bound
  // after this call, with the option `learned` and neither symbols= nor vocabulary=, number theirs likewise.
  void expect_words(const std::string& producer, std::vector<std::string> words) {
    words_[producer] = std::move(words);
  }
  // What the source of a live stream announced, before any step; "" if it is not live or was bound as an object.
  std::string announced(int producer) const {
    const auto at = announced_.find(producer);
    return at == announced_.end() ? "" : at->second;
  }
  // Sets the store for samples that a join leaves out, or a source refuses.
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

  // Finds the number of this sample, from 0, in the data of a producer's address, and the address. Empty if it cannot
  // be found: for a live stream, an object, a sample changed by a step, or more data than a few seconds read.
  struct Record {
    uint64_t number;
    std::string address;
  };
  std::optional<Record> record_of(int producer, Registry& registry, const void* sample, size_t bytes) const;

  // Types as the graph sees them: declarations applied, groups of a ratio stacked on a new first axis.
  // A stream that does not fit its declaration throws. With `refused`, each such error is passed to it, and the types
  // of the other streams are returned.
  std::map<int, StreamType> types(const Graph& graph,
                                  const std::function<void(int producer, const Error&)>& refused = {}) const;

  std::optional<uint64_t> batch() const { return batch_; }
  // Returns a reader over these producers (all bound), in this order. `shuffle`: whether to shuffle if no address
  // says; `unpaired`: the rule for samples without a partner if no address gives one.
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
  void expect_same_part(const std::vector<int>& producers) const;
  std::optional<JoinRules> join_rules(const std::vector<int>& producers, std::optional<Unpaired> unpaired);
  void bind_stepped(const Graph& graph, Registry& registry, int producer, Source source, const StreamSteps& steps);

  struct Chosen {
    std::vector<int> producers;
    std::vector<std::shared_ptr<Source>> sources;
  };
  std::shared_ptr<Spool> spool_;  // outlives the sources
  std::shared_ptr<DeadLetters> letters_;
  std::map<int, std::shared_ptr<Source>> sources_;
  Address expecting(const Graph& graph, int producer, const Item& item, Address address) const;
  Address with_words(const std::string& name, const Item& item, Address address) const;
  std::map<std::string, std::string> expected_;
  std::map<std::string, std::vector<std::string>> words_;
  std::map<int, std::string> announced_;
  std::map<int, std::string> from_;                    // the address of each, without options
  std::map<int, Address> addresses_;                   // with the options of its source
  std::map<int, std::pair<double, double>> parts_;     // of part=
  std::map<int, EdgeOptions> edges_;                   // of edge= and hold=
  std::optional<std::string> join_, unpaired_, rest_;  // as written
  std::optional<std::chrono::milliseconds> late_;
  std::map<int, std::vector<std::function<void(uint64_t)>>>
      reseed_;                           // reseeds augmentations; empty for a stream with its own seed
  std::map<int, Condition> conditions_;  // of where=
  std::vector<Chosen> chosen_;           // samples that the conditions keep, per set of joined streams
  std::optional<uint64_t> batch_, shuffle_, take_, skip_, repeat_, seed_, shard_, shards_;
};

// Throws ErrorKind::Stream if samples differ in type from those the graph learned from: programs are compiled for
// those types.
void check_same_samples(const Graph& graph, const std::map<int, StreamType>& learned,
                        const std::map<int, StreamType>& given, const std::string& purpose = "test");

}  // namespace harmonics::engine
