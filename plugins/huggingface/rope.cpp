// The scaling of rotary positions.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <harmonics/quantity.hpp>

#include "config.hpp"
#include "formats/utf8.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

constexpr const char* kPrefix = "rope.scaling.";

// The rule of Llama 3.1: divides the frequency of pairs with fewer than `low` turns in the context by `factor`, keeps
// pairs with more than `high` turns, and interpolates between.
struct Llama3 {
  double factor = 0, low = 1, high = 4, context = 8192;

  std::vector<float> factors(int64_t width, double base) const {
    std::vector<float> all;
    for (int64_t pair = 0; pair < width / 2; ++pair) {
      const double wave =
          2 * std::numbers::pi * std::pow(base, 2 * static_cast<double>(pair) / static_cast<double>(width));
      double divisor = 1;
      if (wave > context / low) {
        divisor = factor;
      } else if (wave >= context / high) {
        const double smooth = (context / wave - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      all.push_back(static_cast<float>(divisor));
    }
    return all;
  }
};

double positive(const Node& node) {
  const double value = node.number();
  if (!(value > 0) || !std::isfinite(value)) node.fail("is " + node.shown() + "; it must be above 0");
  return value;
}

Node scaling_of(const Node& config) {
  const Node plain = config["rope_scaling"];
  if (plain.has()) return plain;
  const Node newer = config["rope_parameters"];
  if (!newer["full_attention"].has()) return newer;
  const std::string_view window = newer["sliding_attention"]["rope_type"].text("default");
  if (window != "default") newer["sliding_attention"]["rope_type"].lack("is not default");
  return newer["full_attention"];
}

void read_yarn(const Node& scaling, double factor, const Node& config, Config& to) {
  const Architecture& a = *to.architecture;
  for (const char* unknown : {"mscale", "mscale_all_dim"})
    if (scaling[unknown].has()) scaling[unknown].lack("is given, and models of " + a.name + " cannot have it");
  if (const bool truncate = scaling["truncate"].truth(true); truncate != a.truncates)
    scaling["truncate"].lack(std::string("is ") + (truncate ? "true" : "false") + "; models of " + a.name + " need " +
                             (a.truncates ? "true" : "false"));
  const Node context = scaling["original_max_position_embeddings"];
  to.metadata[a.key("rope.scaling.original_context_length")] =
      context.has() ? context.integer() : config["max_position_embeddings"].integer();
  for (const auto& [name, key] :
       {std::pair("beta_fast", "rope.scaling.yarn_beta_fast"), std::pair("beta_slow", "rope.scaling.yarn_beta_slow")})
    if (scaling[name].has()) to.metadata[a.key(key)] = in_32_bits(positive(scaling[name]));
  if (scaling["attention_factor"].has())  // GGUF multiplies its factor with the default one
    to.metadata[a.key("rope.scaling.attn_factor")] =
        in_32_bits(positive(scaling["attention_factor"]) / (1 + 0.1 * std::log(factor)));
}

std::vector<float> factors_of(const Node& list, int64_t dims) {
  std::vector<float> all;
  for (size_t i = 0; i < list.size(); ++i) all.push_back(static_cast<float>(positive(list[i])));
  if (static_cast<int64_t>(all.size()) * 2 != dims)
    list.fail("has " + quantity(all.size(), "factor") + " for " + quantity(dims, "dimension"));
  return all;
}

// Reads one set of factors for sequences within the original context and one for longer sequences (Ding et al. 2024).
void read_longrope(const Node& scaling, const Node& config, int64_t dims, Config& to) {
  const Architecture& a = *to.architecture;
  const Node own = scaling["original_max_position_embeddings"];
  const Node context = own.has() ? own : config["original_max_position_embeddings"];
  const double original = positive(context), longest = positive(config["max_position_embeddings"]);
  const double factor = scaling["factor"].has() ? positive(scaling["factor"]) : longest / original;
  const double usual = factor > 1 && original > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1;
  to.metadata[a.key("rope.scaling.original_context_length")] = context.integer();
  to.metadata[a.key("rope.scaling.attn_factor")] =
      in_32_bits(scaling["attention_factor"].has() ? positive(scaling["attention_factor"]) : usual);
  to.rope_factors[kShortFactors] = factors_of(scaling["short_factor"], dims);
  to.rope_factors[kLongFactors] = factors_of(scaling["long_factor"], dims);
}

// Returns the number of rotated dimensions of a head: a setting of that number, or a part of the head, by the name of
// current transformers or that of older models.
int64_t rotated(const Node& config, const Node& scaling, const Architecture& a, int64_t head) {
  if (const Node dims = config["rotary_dim"]; dims.has()) {
    if (dims.integer() < 1 || dims.integer() > head)
      dims.fail("is " + dims.shown() + "; a head has " + quantity(head, "dimension"));
    return dims.integer();
  }
  Node part = scaling["partial_rotary_factor"];
  if (!part.has()) part = config["rope_parameters"]["partial_rotary_factor"];
  for (const char* name : {"partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent", "rotary_emb_fraction"})
    if (!part.has()) part = config[name];
  const double share = part.number(a.rotary_part);
  if (!(share > 0 && share <= 1)) part.fail("is " + part.shown() + "; it must be above 0 and at most 1");
  return static_cast<int64_t>(static_cast<double>(head) * share);
}

}  // namespace

void read_rope(const Node& config, Config& to) {
  const Architecture& a = *to.architecture;
  if (!a.find_row("rope_theta")) return;
  if (const Node base = config["rope_parameters"]["sliding_attention"]["rope_theta"];
      base.has() && !a.find_row("rope_local_base_freq"))
    if (const Node full = config["rope_parameters"]["full_attention"]["rope_theta"]; base.number() != full.number())
      base.lack("is " + base.shown() + ", and only that of full_attention, " + full.shown() + ", is implemented for " +
                a.name);
  const int64_t head = to.count("attention.key_length", 0);
  const Node scaling = scaling_of(config);
  const int64_t dims = rotated(config, scaling, a, head);
  to.metadata[a.key("rope.dimension_count")] = dims;
  if (!scaling.has()) return;
  const std::string type(scaling[scaling["rope_type"].has() ? "rope_type" : "type"].text("default"));
  if (type == "default") return;
  if (type == "llama3" && a.divides_frequencies) {
    const Llama3 rule{positive(scaling["factor"]), positive(scaling["low_freq_factor"]),
                      positive(scaling["high_freq_factor"]), positive(scaling["original_max_position_embeddings"])};
    if (head < 2 || head > 1 << 16) config["head_dim"].fail("is " + std::to_string(head));
    to.rope_factors[kRopeFactors] = rule.factors(head, number_of(to.metadata, a.key("rope.freq_base"), 10000));
    to.metadata[kScaling] = json::serialize(scaling.value());
    return;
  }
  if (const Node alpha = scaling["alpha"]; a.name == "hunyuan-dense" && type == "dynamic" && alpha.has()) {
    // One base for all lengths.
    const auto width = static_cast<double>(dims);
    if (dims < 3) alpha.fail("is given for heads of " + quantity(dims, "rotated dimension"));
    to.metadata[a.key("rope.freq_base")] = in_32_bits(number_of(to.metadata, a.key("rope.freq_base"), 10000) *
                                                      std::pow(positive(alpha), width / (width - 2)));
    return;
  }
  if ((type == "longrope" || type == "su") && a.name == "phi3") return read_longrope(scaling, config, dims, to);
  if (type != "linear" && type != "yarn" && type != "dynamic")
    scaling.lack("scales rotary positions by '" + printable(type, 40) + "', a kind that models of " + a.name +
                 " cannot have");
  const double factor = positive(scaling["factor"]);
  to.metadata[a.key("rope.scaling.type")] = type;
  to.metadata[a.key("rope.scaling.factor")] = in_32_bits(factor);
  if (type == "yarn") read_yarn(scaling, factor, config, to);
  if (type == "dynamic")
    to.metadata[a.key("rope.scaling.original_context_length")] = config["max_position_embeddings"].integer();
}

json::value rope_scaling(const MetadataMap& metadata, const Architecture& a,
                         const std::map<std::string, std::vector<float>>& given) {
  const auto list = [&](const char* tensor) {
    const auto at = given.find(tensor);
    return at == given.end() ? std::vector<float>() : at->second;
  };
  const std::vector<float> factors = list(kRopeFactors);
  const auto number = [&](const char* key, double otherwise) {
    return number_of(metadata, a.key(kPrefix + std::string(key)), otherwise);
  };
  if (!factors.empty()) {
    const double base = number_of(metadata, a.key("rope.freq_base"), 10000);
    const auto width = static_cast<int64_t>(factors.size()) * 2;
    if (const auto kept = metadata.find(kScaling); kept != metadata.end()) {
      const Node scaling = Node::parse(std::get<std::string>(kept->second), kScaling, kLongestConfig);
      const Llama3 rule{scaling["factor"].number(), scaling["low_freq_factor"].number(),
                        scaling["high_freq_factor"].number(), scaling["original_max_position_embeddings"].number()};
      if (rule.factors(width, base) == factors) return scaling.value();
    }
    // From another program's file: try the default rule with usual context lengths.
    Llama3 rule;
    rule.factor = std::round(static_cast<double>(*std::max_element(factors.begin(), factors.end())));
    const auto fits = [&] {
      const std::vector<float> usual = rule.factors(width, base);
      return std::equal(usual.begin(), usual.end(), factors.begin(),
                        [](float a, float b) { return std::abs(a - b) <= 1e-5F * a; });
    };
    for (rule.context = 16; !fits(); rule.context *= 2)
      if (rule.context > 1e7)
        throw Error(ErrorKind::Weights, "the tensor 'rope_freqs.weight' has factors that no rule of config.json gives");
    return json::object{{"rope_type", "llama3"},
                        {"factor", rule.factor},
                        {"low_freq_factor", rule.low},
                        {"high_freq_factor", rule.high},
                        {"original_max_position_embeddings", static_cast<int64_t>(rule.context)}};
  }
  if (given.count(kLongFactors) || given.count(kShortFactors))
    return json::object{
        {"rope_type", "longrope"},
        {"short_factor", json::value_from(list(kShortFactors))},
        {"long_factor", json::value_from(list(kLongFactors))},
        {"original_max_position_embeddings", static_cast<int64_t>(number("original_context_length", 0))},
        {"attention_factor", number("attn_factor", 1)}};
  const auto type = metadata.find(a.key("rope.scaling.type"));
  const auto* text = type == metadata.end() ? nullptr : std::get_if<std::string>(&type->second);
  const std::string name = text ? *text : "linear";  // the defaults of GGUF
  const double factor = number("factor", number_of(metadata, a.key("rope.scale_linear"), 1));
  if (name == "none" || (name == "linear" && (factor == 0 || factor == 1))) return nullptr;
  json::object scaling{{"rope_type", name}, {"factor", factor}};
  if (name == "yarn") {
    const double longest = number_of(metadata, a.key("context_length"), 0);
    scaling["original_max_position_embeddings"] = static_cast<int64_t>(number("original_context_length", longest));
    scaling["beta_fast"] = number("yarn_beta_fast", 32);
    scaling["beta_slow"] = number("yarn_beta_slow", 1);
    if (!a.truncates) scaling["truncate"] = false;
    scaling["attention_factor"] = number("attn_factor", 1) * (1 + 0.1 * std::log(factor));
  } else if (name != "linear" && name != "dynamic") {
    throw Error(ErrorKind::Weights, "rotary positions are scaled by '" + printable(name, 40) +
                                        "', which config.json cannot be written with");
  }
  return scaling;
}

}  // namespace huggingface
