// Options of an address that follow from the graph, the spool or the weights.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/announced.hpp>

#include "engine/spool/spool.hpp"
#include "engine/streams/streams.hpp"

namespace harmonics::engine {

namespace {

// Returns the number of classes that a loss compares with this producer, or 0: the width of the narrowest layer that
// declares one. A loss with ignore_index takes other numbers too.
int64_t compared_classes(const Graph& graph, int producer) {
  int64_t least = 0;
  for (const GraphTap& tap : graph.taps) {
    if (tap.target != producer) continue;
    for (const BoundCall& loss : tap.losses)
      if (!(loss.item->flags & HX_TAKES_CLASSES) || loss.arguments.has("ignore_index")) return 0;
    const GraphNode& layer = graph.nodes[static_cast<size_t>(tap.layer)];
    const GraphNode& node = layer.has_shape ? layer : graph.nodes[static_cast<size_t>(producer)];
    if (!node.has_shape || node.shape.size() != 1 || node.shape[0] < 2) continue;
    if (least == 0 || node.shape[0] < least) least = node.shape[0];
  }
  return least;
}

// Returns the sample type that the flow declares: f32 of the declared shape, or class numbers. Returns "" if it
// declares no shape, or a one-dimensional shape for a lookup, which may be its number of classes.
std::string declared_type(const Graph& graph, int producer, const StreamUse& use) {
  const GraphNode& node = graph.nodes[static_cast<size_t>(producer)];
  const bool lookup = (use.looked_up || use.tokens) && !use.computed,
             classes = use.compared && !use.computed && !lookup;
  const int64_t limit = classes ? compared_classes(graph, producer) : 0;
  if (!node.has_shape) return limit > 0 ? fmt::format("i64<{}", limit) : classes ? "i64:" : "";
  if (node.shape.front() < 0 || node.shape.size() > HX_MAX_RANK) return "";
  if (node.shape.size() == 1 && classes) return limit > 0 ? fmt::format("i64<{}", limit) : "i64:";
  if (node.shape.size() == 1 && lookup) return "";
  StreamInfo info;
  info.dtype = classes || lookup ? DType::I64 : DType::F32;
  info.sample = Shape(node.shape);
  return announced_text(info);
}

bool has_option(const Item& item, std::string_view option) {
  return std::any_of(item.arguments.begin(), item.arguments.end(),
                     [&](const ArgumentSpec& a) { return a.name == option; });
}

}  // namespace

// Adds the options that the address's scheme accepts: use (classes, lookup or numbers), the declared type, the files
// for refused samples, and the sample type from the spool or the checkpoint, with which no sender is needed.
Address StreamSet::expecting(const Graph& graph, int producer, const Item& item, Address address) const {
  const GraphNode& node = graph.nodes[static_cast<size_t>(producer)];
  const StreamUse use = use_of(graph, producer);
  const std::string& name = node.name;
  const auto takes = [&](const char* option) { return has_option(item, option); };
  const bool plain = takes("use");
  if (plain && !address.find("use")) {
    const bool classes = use.compared && !use.computed, lookup = (use.looked_up || use.tokens) && !use.computed;
    address.options.push_back({"use", lookup ? "lookup" : classes ? "classes" : "numbers"});
  }
  if (const std::string declared = declared_type(graph, producer, use);
      takes("declared") && !declared.empty() && !address.find("declared"))
    address.options.push_back({"declared", declared});
  if (letters_ && takes("dead-letters") && !address.find("dead-letters")) {
    address.options.push_back({"dead-letters", letters_->refused_of(name)});
    address.options.push_back(
        {"dead-letters-limit", std::to_string(std::min<uint64_t>(letters_->most_bytes(), INT64_MAX))});
  }
  if (!takes("type") || address.find("type")) return address;
  const std::optional<StreamInfo> spooled = spool_ ? spool_->type_of(name) : std::nullopt;
  std::string type = spooled ? announced_text(*spooled) : "";
  if (const auto known = expected_.find(name); type.empty() && known != expected_.end()) type = known->second;
  // "f32:" is a scalar; "f32" takes the shape from the first sample.
  if (plain && !type.empty() && type.find_first_of(":<") == std::string::npos) type += ':';
  if (!type.empty()) address.options.push_back({"type", type});
  return address;
}

Address StreamSet::with_words(const std::string& name, const Item& item, Address address) const {
  const auto words = words_.find(name);
  if (words == words_.end() || !has_option(item, "learned")) return address;
  for (const char* own : {"symbols", "vocabulary", "learned"})
    if (address.find(own)) return address;
  address.options.push_back({"learned", boost::json::serialize(boost::json::value_from(words->second))});
  return address;
}

}  // namespace harmonics::engine
