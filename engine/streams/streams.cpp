#include "engine/streams/streams.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <numeric>

#include <fmt/core.h>

#include <harmonics/announced.hpp>
#include <harmonics/async.hpp>
#include <harmonics/checked.hpp>

#include "engine/base/byte_count.hpp"
#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/spool/spool.hpp"

namespace harmonics::engine {

namespace {

constexpr uint64_t kShuffleBytes = uint64_t{256} << 20;  // default size of a shuffle block

uint64_t number(const std::string& name, const std::string& key, const std::string& text) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorKind::Usage, fmt::format("option '{}={}' of '{}' must be a whole number", key, text, name));
  return v;
}

// Parses "500ms", "5s", "2m"; returns nothing for any other text.
std::optional<std::chrono::milliseconds> parse_milliseconds(const std::string& text) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  const std::string unit(end, text.data() + text.size());
  const uint64_t factor = unit == "ms" ? 1 : unit == "s" ? 1000 : unit == "m" ? 60'000 : 0;
  if (error != std::errc() || factor == 0 || v == 0 || v > 86'400'000 / factor) return std::nullopt;
  return std::chrono::milliseconds(v * factor);
}

// Returns the part that the source has already validated, "0.25-0.75"; without the option, the whole.
FilePart part_of(const Address& address) {
  const std::string* text = address.find("part");
  FilePart part{0, 1};
  if (!text || text->empty()) return part;
  const char *at = text->data(), *end = at + text->size();
  const auto from = std::from_chars(at, end, part.first);
  if (from.ec == std::errc() && from.ptr != end) std::from_chars(from.ptr + 1, end, part.second);
  return part;
}

bool used(const Graph& graph, int producer) {
  for (size_t cycle = 0; cycle < graph.cycles.size(); ++cycle) {
    const std::vector<int> all = graph.producers_used(static_cast<int>(cycle), true);
    if (std::find(all.begin(), all.end(), producer) != all.end()) return true;
  }
  return false;
}

// Returns whether this scheme reads data from other machines.
bool is_remote(const std::string& scheme) {
  for (const char* remote : {"http", "https", "ftp", "s3", "gs", "gcs", "az", "hf", "hdfs"})
    if (scheme == remote) return true;
  return false;
}

ItemPtr producer_of(Registry& registry, const Address& address) {
  if (is_remote(address.scheme) && !registry.find(HX_PRODUCER, address.scheme)) {
    const std::string name = address.path.substr(address.path.rfind('/') + 1);
    const std::string url = address.scheme + ":" + address.path;
    const bool fetched = address.scheme == "http" || address.scheme == "https" || address.scheme == "ftp";
    throw Error(
        ErrorKind::Usage, fmt::format("no producer reads '{}'", url), {},
        {(fetched ? "download it first: curl -LO '" + url + "'" : std::string("copy it to this machine first")) +
         ", then bind " + (name.empty() ? "the file" : "file:" + name)});
  }
  return registry.need(HX_PRODUCER, address.scheme);
}

// Throws for options that are known neither to this producer nor to all producers.
void expect_known_options(const Item& item, const Address& address) {
  std::vector<std::string> known;
  for (const ArgumentSpec& a : item.arguments) known.push_back(a.name);
  for (const AddressOption& o : address.options) {
    if (std::find(known.begin(), known.end(), o.key) != known.end()) continue;
    std::string shared;
    for (const StreamOption& s : stream_options()) {
      known.push_back(s.name);
      shared += (shared.empty() ? "" : ", ") + std::string(s.name);
    }
    Error e(ErrorKind::Usage, fmt::format("producer '{}' has no option '{}'", item.name, o.key));
    if (const std::string meant = did_you_mean(o.key, known); !meant.empty()) e.note(meant);
    throw e.note("note: it is used as " + signature(item)).note("note: every producer also takes " + shared);
  }
}

AttributeMap options_of(const Item& item, const Address& address) {
  AttributeMap map = bind_texts(item, [&] {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const AddressOption& o : address.options) texts.emplace_back(o.key, o.value);
    return texts;
  }());
  if (address.fragment) map.set("#", *address.fragment);
  return map;
}

}  // namespace

Source open_source(Registry& registry, const std::string& name, const Address& address, const AwaitedSource& awaited) {
  const ItemPtr item = producer_of(registry, address);
  expect_known_options(*item, address);
  const AttributeMap options = options_of(*item, address);
  try {
    return Source::open(name, item->table<hx_producer_factory_vt>(), item->self, address.path,
                        *AttributeView(options).get(), item, awaited);
  } catch (Error& e) {
    if (e.kind() == ErrorKind::NoInput && address.scheme == "file")
      if (const std::string advice = advice_for_missing(address.path); !advice.empty()) e.note(advice);
    throw;
  }
}

Sink open_sink(Registry& registry, const std::string& name, const Address& address) {
  const ItemPtr item = registry.need(HX_CONSUMER, address.scheme);
  const AttributeMap options = options_of(*item, address);
  return Sink::open(name, item->table<hx_consumer_factory_vt>(), item->self, address.path,
                    *AttributeView(options).get(), item);
}

void StreamSet::take_joint_options(const std::string& name, Address& address) {
  const auto take = [&](const char* key, std::optional<uint64_t>& slot) {
    const std::optional<std::string> text = address.take(key);
    if (!text) return;
    const uint64_t v = number(name, key, *text);
    if (slot && *slot != v)
      throw Error(
          ErrorKind::Usage,
          fmt::format("'{}={}' of '{}' disagrees with {}={} of a stream it is joined with", key, v, name, key, *slot),
          {}, {"streams that are read together are shuffled and cut together; give it once"});
    slot = v;
  };
  take("batch", batch_);
  take("shuffle", shuffle_);
  take("take", take_);
  if (take_ && *take_ == 0)
    throw Error(ErrorKind::Usage, fmt::format("take=0 of '{}' selects no samples; the minimum is 1", name));
  take("skip", skip_);
  take("repeat", repeat_);
  take("seed", seed_);
  if (const std::optional<std::string> text = address.take("rest")) {
    if (*text != "keep" && *text != "drop")
      throw Error(ErrorKind::Usage, fmt::format("option 'rest={}' of '{}' must be keep or drop", *text, name));
    agree(name, "rest", rest_, *text);
  }
  if (const std::optional<std::string> text = address.take("shard")) {
    const size_t slash = text->find('/');
    if (slash == std::string::npos)
      throw Error(ErrorKind::Usage,
                  fmt::format("option 'shard={}' of '{}' is written INDEX/COUNT, e.g. 0/4", *text, name));
    const uint64_t shard = number(name, "shard", text->substr(0, slash)),
                   of = number(name, "shard", text->substr(slash + 1));
    if (shards_ && (*shard_ != shard || *shards_ != of))
      throw Error(ErrorKind::Usage,
                  fmt::format("'shard={}' of '{}' disagrees with shard={}/{} of a stream it is joined with", *text,
                              name, *shard_, *shards_),
                  {}, {"streams that are read together are cut together; give it once"});
    shard_ = shard;
    shards_ = of;
    if (*shards_ == 0 || *shard_ >= *shards_)
      throw Error(ErrorKind::Usage, fmt::format("shard {} of {} of '{}' does not exist", *shard_, *shards_, name));
  }
}

void StreamSet::agree(const std::string& name, const char* key, std::optional<std::string>& slot,
                      const std::string& text) {
  if (slot && *slot != text)
    throw Error(
        ErrorKind::Usage,
        fmt::format("'{}={}' of '{}' disagrees with {}={} of a stream it is joined with", key, text, name, key, *slot),
        {}, {"streams that are read together are joined in one way; give it once"});
  slot = text;
}

// Removes edge= and hold=, which apply to this stream, and join=, unpaired= and late=, which apply to all joined
// streams, from the address.
void StreamSet::take_edge_options(const std::string& name, int producer, Address& address) {
  const auto refuse = [&](const char* key, const std::string& text, const char* wanted) {
    throw Error(ErrorKind::Usage, fmt::format("option '{}={}' of '{}' must be {}", key, text, name, wanted));
  };
  if (const auto text = address.take("edge")) {
    const auto policy = parse_edge_policy(*text);
    if (!policy)
      refuse("edge", *text, "block, drop_oldest or latest");
    else
      edges_[producer].policy = *policy;
  }
  if (const auto text = address.take("hold")) {
    const auto bytes = parse_byte_count(*text);
    if (!bytes)
      refuse("hold", *text, "a number of bytes, such as 16M");
    else
      edges_[producer].most_bytes = *bytes;
  }
  if (const auto text = address.take("join")) {
    if (*text != "order" && *text != "number") refuse("join", *text, "order or number");
    agree(name, "join", join_, *text);
  }
  if (const auto text = address.take("unpaired")) {
    if (!parse_unpaired(*text)) refuse("unpaired", *text, "drop, last, stop or refuse");
    agree(name, "unpaired", unpaired_, *text);
  }
  if (const auto text = address.take("late")) {
    const auto time = parse_milliseconds(*text);
    if (!time)
      refuse("late", *text, "a duration such as 500ms or 5s");
    else if (late_ && *late_ != *time)
      throw Error(ErrorKind::Usage,
                  fmt::format("'late={}' of '{}' conflicts with a joined stream; give it once", *text, name));
    late_ = time;
  }
}

// Throws if producers have different part= options. Each file is cut separately, so samples stay aligned only if the
// cuts are equal. A whole file may be joined with a part of the same length: it was cut beforehand.
void StreamSet::expect_same_part(const Graph& graph, const std::vector<int>& producers) const {
  const auto groups = [&](int n) { return sources_.at(n)->info().size / per_group(graph, n); };
  const auto whole = [](const FilePart& part) { return part == FilePart{0, 1}; };
  int first = -1;
  for (const int n : producers) {
    const auto part = parts_.find(n);
    if (part == parts_.end()) continue;
    if (first < 0) first = n;
    const FilePart &one = part->second, &other = parts_.at(first);
    if (one == other || ((whole(one) || whole(other)) && groups(n) == groups(first))) continue;
    throw Error(ErrorKind::Usage,
                fmt::format("'part={:g}-{:g}' of '{}' disagrees with part={:g}-{:g} of '{}', which it is joined with",
                            one.first, one.second, sources_.at(n)->name(), other.first, other.second,
                            sources_.at(first)->name()),
                {}, {"streams that are read together need equal parts: give each the same part="});
  }
}

// Returns the rules for joining these streams; nothing: by order, without missing samples.
std::optional<JoinRules> StreamSet::join_rules(const std::vector<int>& producers, std::optional<Unpaired> unpaired) {
  std::string first_live, first_other;
  bool edged = false, one_address = true, numbered = producers.size() > 1;
  for (int n : producers) {
    const Source& source = *sources_.at(n);
    (source.info().live ? first_live : first_other) = source.name();
    if (edges_.count(n) && !source.info().live)
      throw Error(ErrorKind::Usage,
                  fmt::format("edge= and hold= apply to live streams, and '{}' is not live", source.name()), {},
                  {"remove them"});
    edged = edged || edges_.count(n) != 0;
    one_address = one_address && from_.count(n) && from_.at(n) == from_.at(producers.front());
  }
  if (late_ && !first_other.empty())
    throw Error(ErrorKind::Usage, fmt::format("late= applies to live streams, and '{}' is not live", first_other), {},
                {"remove it"});
  const bool by_number = join_ ? *join_ == "number"
                               : !one_address && first_other.empty() &&
                                     std::all_of(producers.begin(), producers.end(),
                                                 [&](int n) { return sources_.at(n)->keep_numbers(); });
  if (!edged && !late_ && !(by_number && numbered)) return std::nullopt;
  JoinRules rules;
  rules.by_number = by_number;
  rules.unpaired = unpaired.value_or(Unpaired::drop);
  rules.late = late_;
  if (letters_)
    rules.on_left_out = [letters = letters_](const LeftOut& out) {
      letters->keep(out.source.name(), out.source.info(), out.why, out.mark.index, out.mark.number, out.bytes);
    };
  return rules;
}

int StreamSet::field_of(const Graph& graph, const std::string& name, const Address& address) {
  if (address.scheme != "file" || !address.fragment || address.path == name) return -1;
  const int n = graph.find(address.path);
  return n >= 0 && graph.nodes[static_cast<size_t>(n)].kind == DeclarationKind::Producer ? n : -1;
}

// Returns the address of `producer` with the field and options of this address.
Address StreamSet::of_field(const Graph& graph, int producer, const std::string& name, Address address) const {
  constexpr const char* kOfFields[] = {"as",      "dtype",   "type",       "shape",
                                       "symbols", "missing", "vocabulary", "learned"};  // specific to the other field
  const std::string& of = graph.nodes[static_cast<size_t>(producer)].name;
  const auto known = addresses_.find(producer);
  if (known == addresses_.end() && bound(producer))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is bound to a field of producer '{}', which is an object without fields", name, of),
                {}, {fmt::format("bind '{}' to an address, or '{}' to a separate object", of, name)});
  if (known == addresses_.end())
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is bound to a field of producer '{}', which is not bound", name, of), {},
                {fmt::format("bind '{}' first; a file of that name is written ./{}", of, of)});
  Address whole = known->second;
  std::erase_if(whole.options, [&](const AddressOption& o) {
    return address.find(o.key) || std::find(std::begin(kOfFields), std::end(kOfFields), o.key) != std::end(kOfFields);
  });
  whole.options.insert(whole.options.end(), address.options.begin(), address.options.end());
  whole.fragment = address.fragment;
  return whole;
}

void StreamSet::bind(const Graph& graph, Registry& registry, const std::string& name, Address address) {
  int producer = -1;
  if (name.empty()) {
    // The first unbound producer, in order of declaration.
    for (int n : graph.nodes_of(DeclarationKind::Producer))
      if (producer < 0 && !bound(n)) producer = n;
    if (producer < 0)
      throw Error(ErrorKind::Usage, fmt::format("'{}' has no unbound producer left for {}", graph.name, address.str()),
                  {}, {"leave it out, or declare a producer that takes it"});
  } else {
    producer = graph.find(name);
    if (producer < 0 || graph.nodes[static_cast<size_t>(producer)].kind != DeclarationKind::Producer) {
      std::vector<std::string> known;
      for (int n : graph.nodes_of(DeclarationKind::Producer)) known.push_back(graph.nodes[static_cast<size_t>(n)].name);
      Error e(ErrorKind::Usage, fmt::format("'{}' has no producer named '{}'", graph.name, name));
      if (auto near = nearest(name, known))
        e.note("did you mean '" + *near + "'?");
      else
        e.note("its producers are " +
               fmt::format("{}", known.empty() ? std::string("none")
                                               : std::accumulate(std::next(known.begin()), known.end(), known.front(),
                                                                 [](std::string a, const std::string& b) {
                                                                   return a + ", " + b;
                                                                 })));
      throw e;
    }
    if (bound(producer)) {
      Error e(ErrorKind::Usage, fmt::format("producer '{}' is bound twice", name));
      for (int n : graph.nodes_of(DeclarationKind::Producer))
        if (!bound(n)) {
          e.note(fmt::format("'{}' is not bound yet: --producer {}={}", graph.nodes[static_cast<size_t>(n)].name,
                             graph.nodes[static_cast<size_t>(n)].name, address.str()));
          break;
        }
      if (e.notes().empty()) e.note("leave one of them out");
      throw e;
    }
  }
  const std::string& bound_name = graph.nodes[static_cast<size_t>(producer)].name;
  if (const int of = field_of(graph, bound_name, address); of >= 0)
    address = of_field(graph, of, bound_name, std::move(address));
  // A source with a seed option (synth:) receives the seed; otherwise the seed is that of the shuffle.
  const ItemPtr item = producer_of(registry, address);
  const bool owns_seed = std::any_of(item->arguments.begin(), item->arguments.end(),
                                     [](const ArgumentSpec& a) { return a.name == "seed"; });
  const std::optional<std::string> own_seed = owns_seed ? address.take("seed") : std::nullopt;
  take_joint_options(bound_name, address);
  take_edge_options(bound_name, producer, address);
  const StreamSteps steps = take_stream_steps(address);
  if (own_seed) address.options.push_back({"seed", *own_seed});
  Source source =
      open_source(registry, bound_name, with_words(bound_name, *item, expecting(graph, producer, *item, address)),
                  awaited_ ? awaited_(address) : AwaitedSource{});
  if (source.info().live) announced_[producer] = announced_text(source.info());
  from_[producer] = address.scheme + ":" + address.path;
  addresses_[producer] = address;
  if (address.find("part") || (address.scheme == "file" && !source.info().live)) parts_[producer] = part_of(address);
  if (spool_ && source.info().live) source = with_spool(bound_name, std::move(source), from_[producer], *spool_);
  bind_stepped(graph, registry, producer, std::move(source), steps);
}

std::optional<StreamSet::Record> StreamSet::record_of(int producer, Registry& registry, const void* sample,
                                                      size_t bytes) const {
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto address = addresses_.find(producer);
  if (address == addresses_.end() || announced_.count(producer)) return std::nullopt;
  try {
    const ItemPtr item = producer_of(registry, address->second);
    Source again =
        open_source(registry, address->second.str(), with_words(sources_.at(producer)->name(), *item, address->second));
    if (again.info().live || again.sample_bytes() != bytes) return std::nullopt;
    std::vector<std::byte> one(bytes);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (uint64_t n = 0; again.read(1, one.data()) == 1 && std::chrono::steady_clock::now() < end; ++n)
      if (std::memcmp(one.data(), sample, bytes) == 0) return Record{n, address->second.str()};
  } catch (const Error&) {  // not readable again: the caller reports the position in the batch
  }
  return std::nullopt;
}

void StreamSet::bind(const Graph& graph, Registry& registry, int producer, Source source, const std::string& options) {
  Address address = parse_address("object:" + (options.empty() ? "" : "?" + options));
  const std::string name = source.name();
  take_joint_options(name, address);
  take_edge_options(name, producer, address);
  const StreamSteps steps = take_stream_steps(address);
  if (!address.options.empty())
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is bound to an object, which has no option '{}'", name, address.options.front().key));
  bind_stepped(graph, registry, producer, std::move(source), steps);
}

void StreamSet::bind_stepped(const Graph& graph, Registry& registry, int producer, Source source,
                             const StreamSteps& steps) {
  const std::string name = source.name();
  SteppedSource stepped = with_steps(name, std::move(source), steps, registry);
  if (stepped.passes_differ) reseed_[producer] = std::move(stepped.reseed);
  if (stepped.condition) conditions_.emplace(producer, *stepped.condition);
  bind(graph, producer, std::move(stepped.source));
}

void StreamSet::bind(const Graph&, int producer, Source source) {
  sources_[producer] = std::make_shared<Source>(known_source(std::move(source)));
}

namespace {

constexpr uint64_t kMostPerGroup = uint64_t{1} << 40;  // samples of one group

// Returns a * b, limited to kMostPerGroup samples.
uint64_t counted(const Graph& graph, int producer, uint64_t a, uint64_t b) {
  const auto product = checked_product(a, b);
  if (product && *product <= kMostPerGroup) return *product;
  const GraphNode& node = graph.nodes[static_cast<size_t>(producer)];
  throw Error(ErrorKind::Shape, fmt::format("the ratios of '{}' join more than {} samples", node.name, kMostPerGroup),
              node.span, {"write ratios of smaller numbers"});
}

}  // namespace

// Returns the number of consecutive samples of this producer in one joint sample.
uint64_t StreamSet::per_group(const Graph& graph, int producer) const {
  // A ratio p/q of X means p samples of this producer for q of X. The fractions multiply along the chain to the stream
  // without a ratio. The group is the least common multiple of the denominators.
  const auto fraction = [&](int n) {
    uint64_t p = 1, q = 1;
    for (int hops = 0; graph.nodes[static_cast<size_t>(n)].ratio && hops < 64; ++hops) {
      const Ratio& ratio = *graph.nodes[static_cast<size_t>(n)].ratio;
      p = counted(graph, producer, p, static_cast<uint64_t>(ratio.numerator));
      q = counted(graph, producer, q, static_cast<uint64_t>(ratio.denominator));
      const uint64_t g = std::gcd(p, q);
      p /= g;
      q /= g;
      n = graph.nodes[static_cast<size_t>(n)].ratio_of;
    }
    return std::pair{p, q};
  };
  uint64_t group = 1;
  // Includes unbound producers, so that a joint sample is the same if only the producers of an inference are bound.
  for (int n : graph.nodes_of(DeclarationKind::Producer)) {
    const uint64_t q = fraction(n).second;
    group = counted(graph, n, group / std::gcd(group, q), q);
  }
  const auto [p, q] = fraction(producer);
  return counted(graph, producer, group / q, p);
}

StreamType StreamSet::type_of(const Graph& graph, int n) const {
  const StreamInfo& info = sources_.at(n)->info();
  StreamType t{info.dtype, info.sample, info.position_axes, info.classes, info.symbols};
  if (!used(graph, n)) return t;  // bound but unused, such as labels during inference
  if (!info.live && info.symbols.empty())
    t.numbers = checked_product(info.size, static_cast<uint64_t>(info.sample.count())).value_or(0);
  t = declared_stream(graph.nodes[static_cast<size_t>(n)], t, use_of(graph, n));
  if (const uint64_t k = per_group(graph, n); k > 1) {
    Shape stacked{static_cast<int64_t>(k)};
    for (int64_t d : t.sample) stacked.push_back(d);
    t.sample = stacked;
  }
  return t;
}

std::map<int, StreamType> StreamSet::types(const Graph& graph,
                                           const std::function<void(int, const Error&)>& refused) const {
  std::map<int, StreamType> result;
  for (const auto& [n, source] : sources_) {
    try {
      result[n] = type_of(graph, n);
    } catch (const Error& e) {
      if (!refused) throw;
      result.erase(n);
      refused(n, e);
    }
  }
  return result;
}

void check_same_samples(const Graph& graph, const std::map<int, StreamType>& learned,
                        const std::map<int, StreamType>& given, const std::string& purpose) {
  for (const auto& [n, t] : given) {
    const auto it = learned.find(n);
    if (it == learned.end() || (it->second.dtype == t.dtype && it->second.sample == t.sample)) continue;
    const TensorType was{it->second.dtype, it->second.sample}, is{t.dtype, t.sample};
    throw Error(ErrorKind::Stream,
                fmt::format("the {} samples of '{}' are {}, but the graph was trained on {}", purpose,
                            graph.nodes[static_cast<size_t>(n)].name, is.str(), was.str()),
                {}, {purpose + " data must have the type and shape of the training data"});
  }
}

// Returns the streams reduced to the joint samples for which all conditions hold. Reads streams with conditions once.
const std::vector<std::shared_ptr<Source>>& StreamSet::chosen(const std::vector<int>& producers,
                                                              const std::vector<JointMember>& members,
                                                              bool refuse_unequal) {
  for (const Chosen& c : chosen_)
    if (c.producers == producers) return c.sources;
  JointOptions together;
  together.batch = 1;
  together.refuse_unequal = refuse_unequal;
  const JointReader belong(members, together);  // throws if their lengths do not match
  std::vector<ConditionedMember> conditioned;
  for (size_t i = 0; i < producers.size(); ++i)
    if (const auto condition = conditions_.find(producers[i]); condition != conditions_.end())
      conditioned.push_back({members[i], condition->second});
  const auto numbers = std::make_shared<const std::vector<uint64_t>>(numbers_that_hold(conditioned, belong.size()));
  Chosen c{producers, {}};
  for (size_t i = 0; i < producers.size(); ++i)
    c.sources.push_back(pick(sources_.at(producers[i]), numbers, members[i].per_group));
  chosen_.push_back(std::move(c));
  return chosen_.back().sources;
}

std::unique_ptr<JointReader> StreamSet::reader(const Graph& graph, const std::vector<int>& producers, uint64_t batch,
                                               bool shuffle, uint64_t seed, std::optional<Unpaired> unpaired) {
  if (unpaired_) unpaired = parse_unpaired(*unpaired_);
  expect_same_part(graph, producers);
  std::vector<JointMember> members;
  uint64_t bytes = 0;
  bool finite = true;
  for (int n : producers) {
    members.push_back({sources_.at(n).get(), per_group(graph, n)});
    if (const auto edge = edges_.find(n); edge != edges_.end()) members.back().edge = edge->second;
    bytes += sources_.at(n)->sample_bytes() * members.back().per_group;
    finite = finite && sources_.at(n)->info().size > 0;
  }
  JointOptions o;
  o.batch = batch;
  o.seed = seed_.value_or(seed);
  o.skip = skip_.value_or(0);
  o.take = take_.value_or(0);
  o.repeat = repeat_.value_or(1);
  o.shard = shard_.value_or(0);
  o.shards = shards_.value_or(1);
  o.join = join_rules(producers, unpaired);
  o.refuse_unequal = unpaired == Unpaired::refuse || unpaired == Unpaired::stop;
  o.whole_batches = rest_ == "drop";
  for (int n : producers)
    if (const auto augmented = reseed_.find(n); augmented != reseed_.end()) {
      for (const auto& reseed : augmented->second) reseed(o.seed);
      o.passes_differ = true;
    }
  if (std::any_of(producers.begin(), producers.end(), [&](int n) { return conditions_.count(n) != 0; })) {
    const auto& left = chosen(producers, members, o.refuse_unequal);
    for (size_t i = 0; i < members.size(); ++i) members[i].source = left[i].get();
  }
  if (shuffle_)
    o.shuffle = *shuffle_;
  else if (shuffle && finite)
    o.shuffle = std::clamp<uint64_t>(kShuffleBytes / std::max<uint64_t>(bytes, 1), 1,
                                     std::max<uint64_t>(1, members.front().source->info().size));
  return std::make_unique<JointReader>(std::move(members), o);
}

}  // namespace harmonics::engine
