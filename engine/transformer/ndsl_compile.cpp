#include "engine/transformer/ndsl_compile.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/ndsl_block.hpp"
#include "engine/transformer/ndsl_layer.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

uint64_t CompiledNdsl::parameters() const {
  uint64_t sum = 0;
  for (const NdslTensor& tensor : tensors) sum += static_cast<uint64_t>(tensor.shape.count());
  return sum;
}

const NdslTensor* CompiledNdsl::find(const std::string& name) const {
  const auto at = by_name.find(name);
  return at == by_name.end() ? nullptr : &tensors[at->second];
}

namespace {

constexpr int64_t kMostNdslLayers = 10'000;
constexpr size_t kMostNdslSteps = 100'000;  // all layers together

class Compiler {
 public:
  Compiler(const ndsl::ModelFile& file, const NdslCompileOptions& options, NdslFaults& faults)
      : file_(file),
        faults_(faults),
        set_(ndsl_level_of_texts(options.set)),
        hf_(options.hf ? ndsl_level_of_hf(*options.hf) : NdslLevel()),
        defaults_(options.hf ? ndsl_level_of_defaults(file.hf_defaults, faults_) : NdslLevel()),
        own_(ndsl_level(file.config, false, faults_)),
        settings_({&set_, &hf_, &defaults_, &own_}, faults_, file.name.place),
        builder_(result_, faults_),
        distinct_(options.distinct_layers) {
    result_.file = file;
    if (options.hf) result_.hf_config = options.hf->root;
  }

  CompiledNdsl compile() {
    if (file_.type != "model" && !faults_.doubts("type"))
      faults_.add(file_.name.place, fmt::format("{} is a {}, not a model", shown_name(file_.name.text), file_.type));
    expect_variant();
    if (file_.block.empty() && !faults_.doubts({"extends", "architecture", "block"}))
      faults_.add(file_.name.place, "the architecture has no 'block'",
                  "write block: [RMSNorm, CausalSelfAttention, ...]");
    for (const char* key : {"vocab_size", "hidden_size", "max_position_embeddings"})
      result_.sizes[key] = settings_.size(key);
    result_.sizes["num_layers"] = settings_.whole("num_layers", {}, 1, kMostNdslLayers);
    if (faults_.doubts("num_layers"))  // number of layers unknown: check every block
      for (const auto& [name, block] : file_.blocks) (void)NdslBlock(file_, block, settings_, true, faults_);
    specs::Spec& spec = result_.spec;
    spec.path = file_.path;
    spec.name = file_.name.text;
    spec.dynamics = {"batch", "seq_len", "kv_capacity"};
    spec.globals = {{"vocab_size", result_.sizes["vocab_size"]},
                    {"max_seq_len", result_.sizes["max_position_embeddings"]},
                    {"n_layers", result_.sizes["num_layers"]}};
    const std::string x = embedding();
    const std::string last = layers(x);
    head(last);
    for (const NdslLevel* level : {&set_, &hf_, &defaults_, &own_})
      for (const auto& [key, setting] : *level) result_.settings.emplace(key, setting);
    for (const auto& [key, setting] : defaults_)  // a null would be a value for transformers
      if (setting.value.kind == document::Kind::null && !set_.count(key) && !hf_.count(key))
        result_.settings.erase(key);
    for (const auto& [key, setting] : set_) result_.set.insert(key);
    return std::move(result_);
  }

 private:
  void expect_variant() {
    const std::vector<std::string> known{"dense", "parallel", "moe"};
    const ndsl::Named& variant = file_.variant;
    const std::string all = "variants: " + comma_separated(known);
    if (variant.text.empty() && faults_.doubts({"extends", "architecture", "variant"})) return;
    if (variant.text.empty()) return faults_.add(file_.name.place, "the architecture has no 'variant'", all);
    if (std::find(known.begin(), known.end(), variant.text) != known.end()) return;
    const std::string meant = did_you_mean(variant.text, known);
    faults_.add(variant.place, fmt::format("there is no variant {}", shown_name(variant.text)),
                meant.empty() ? all : meant);
  }
  // Returns the settings of a part of the architecture, which override those of the model.
  NdslSettings with(const NdslLevel& level, const ndsl::Place& place) { return settings_.over(level, place, true); }
  static ndsl::Place place_of(const ndsl::Settings& part, const ndsl::Place& otherwise) {
    return part.empty() ? otherwise : part.begin()->second.place;
  }

  // Evaluates a number, or an expression of settings: "sqrt(hidden_size)".
  double expression(const NdslSettings& settings, const std::string& key) {
    const ndsl::Setting* found = settings.find(key);
    try {
      const specs::Expression read(found->value.text, found->place.text());
      return read.real([&](const std::string& variable) -> specs::Number { return settings.real(variable, {}); });
    } catch (const Error& e) {
      faults_.add(found->place, fmt::format("'{}' is not a number: {}", key, e.what()), "", ErrorKind::Syntax);
      return 1;
    }
  }

  std::string table(const char* name, const char* alias, int64_t rows) {
    const std::string tensor = builder_.tensor({name,
                                                Shape{rows, result_.sizes["hidden_size"]},
                                                {HX_INIT_NORMAL, 0, settings_.real("initializer_range", 0.02)},
                                                0,
                                                0,
                                                settings_.where()});
    builder_.alias(alias, {tensor});
    return tensor;
  }
  std::string looked_up(const char* ids, const std::string& weight) {
    const std::string out = builder_.fresh("x");
    builder_.step("Embedding", settings_.where()).fields = {
        {"ids", std::string(ids)}, {"weight", weight}, {"out", out}};
    return out;
  }
  std::string added(const std::string& a, const std::string& b) {
    const std::string out = builder_.fresh("x");
    builder_.step("Add", settings_.where()).fields = {{"a", a}, {"b", b}, {"out", out}};
    return out;
  }

  std::string embedding() {
    builder_.write_to(result_.spec.forward);
    const NdslLevel level = ndsl_level(file_.embedding, false, faults_);
    const NdslSettings own = with(level, place_of(file_.embedding, file_.name.place));
    builder_.set_operation("embedding");
    std::string x = looked_up("tokens", table("token_embd.weight", "embedding.weight", result_.sizes["vocab_size"]));
    if (own.has("scale")) builder_.compiled().spec.forward.back().fields["scale"] = expression(own, "scale");
    const std::string positions = own.text("positions", "none");
    if (positions == "learned") {
      const std::string rows =
          table("position_embd.weight", "position_embedding.weight", result_.sizes["max_position_embeddings"]);
      x = added(x, looked_up("positions", rows));
    } else if (positions != "none") {
      faults_.add(own.place_of("positions"), fmt::format("there are no positions {}", shown_name(positions)),
                  "positions: learned, none");
    }
    if (own.truth("token_types", false))
      x = added(x, looked_up("zeros", table("token_types.weight", "token_type_embedding.weight",
                                            own.size("type_vocab_size", 2))));
    if (own.has("norm")) x = lower_norm(builder_, own, norm_named(own, "norm"), "token_embd_norm", "embedding_norm", x);
    x = with_dropout(builder_, own, "embedding_dropout", x);
    builder_.observe("embedding", x);
    builder_.set_operation("");
    return x;
  }

  std::string norm_named(const NdslSettings& settings, const char* key) {
    const std::string name = settings.text(key, "RMSNorm");
    if (name != "RMSNorm" && name != "LayerNorm")
      faults_.add(settings.place_of(key), fmt::format("there is no norm {}", shown_name(name)),
                  "norms: RMSNorm, LayerNorm");
    return name;
  }

  // Returns whether the attention of a layer has a sliding window, unless its own settings decide that.
  bool has_window(int64_t layer) {
    if (const ndsl::Setting* types = settings_.find("layer_types")) {
      const auto& items = types->value.items;
      if (static_cast<int64_t>(items.size()) < result_.sizes["num_layers"]) {
        if (faults_.doubts("num_layers")) return false;
        faults_.add(types->place,
                    fmt::format("'layer_types' has {} for {}", quantity(items.size(), "item"),
                                quantity(result_.sizes["num_layers"], "layer")),
                    "", ErrorKind::Shape);
        return false;
      }
      const document::Node& type = items[static_cast<size_t>(layer)];
      if (type.text == "sliding_attention") return true;
      if (type.text != "full_attention")
        faults_.add({types->place.source, type.span}, fmt::format("there is no attention {}", shown_name(type.text)),
                    "types of layers: full_attention, sliding_attention");
      return false;
    }
    if (settings_.has("sliding_window_pattern"))
      return (layer + 1) % settings_.whole("sliding_window_pattern", {}, 1, kMostNdslLayers) != 0;
    if (!settings_.truth("use_sliding_window", true)) return false;
    if (settings_.has("max_window_layers") && settings_.has("use_sliding_window"))
      return layer >= settings_.whole("max_window_layers", {}, 0, kMostNdslLayers);
    return settings_.has("sliding_window");
  }

  // Returns whether a layer of a model with experts has experts: decoder_sparse_step and mlp_only_layers as in Qwen
  // models, first_k_dense_replace as in DeepSeek models.
  bool has_experts(int64_t layer) {
    if (const ndsl::Setting* dense = settings_.find("mlp_only_layers"))
      for (const document::Node& item : dense->value.items)
        if (document::whole_of(item) == layer) return false;
    if (layer < settings_.whole("first_k_dense_replace", 0, 0, kMostNdslLayers)) return false;
    return (layer + 1) % settings_.whole("decoder_sparse_step", 1, 1, kMostNdslLayers) == 0;
  }

  struct LayerPlan {
    const ndsl::Block* block;
    NdslLevel config;
  };

  void expect_rules() {
    const int64_t count = result_.sizes["num_layers"];
    for (const ndsl::LayerRule& rule : file_.layers) {
      for (const auto& [first, last] : rule.at)
        if (last >= count && !faults_.doubts("num_layers"))
          faults_.add(rule.place, fmt::format("there is no layer {}; the model has {}, from 0", last, count), "",
                      ErrorKind::Shape);
      for (const ndsl::Variation& variation : rule.pattern) {
        (void)ndsl_level(variation.config, true, faults_);
        if (variation.block.empty() || variation.block == "block" || file_.blocks.count(variation.block)) continue;
        if (faults_.doubts({"extends", "import", "blocks"})) continue;
        std::vector<std::string> known{"block"};
        for (const auto& [name, block] : file_.blocks) known.push_back(name);
        const std::string meant = did_you_mean(variation.block, known);
        faults_.add(rule.place, fmt::format("there is no block {}", shown_name(variation.block)),
                    meant.empty() ? "blocks: " + comma_separated(known) : meant);
      }
    }
  }

  LayerPlan plan_of(int64_t layer) {
    LayerPlan plan{&file_.block, {}};
    for (const ndsl::LayerRule& rule : file_.layers) {
      const bool everywhere = rule.at.empty() && rule.every == 0;
      const bool in_range = std::any_of(rule.at.begin(), rule.at.end(), [&](const auto& range) {
        return range.first <= layer && layer <= range.second;
      });
      const bool in_step = rule.every > 0 && layer >= rule.from && (layer - rule.from) % rule.every == 0;
      if (!everywhere && !in_range && !in_step) continue;
      const ndsl::Variation& own = rule.pattern[static_cast<size_t>(layer % static_cast<int64_t>(rule.pattern.size()))];
      if (const auto at = file_.blocks.find(own.block); at != file_.blocks.end()) plan.block = &at->second;
      for (auto& [key, setting] : ndsl_level(own.config, true, faults_)) plan.config[key] = setting;
    }
    return plan;
  }

  void add_steps(size_t count) {
    steps_ += count;
    if (steps_ > kMostNdslSteps)
      throw Error(ErrorKind::Shape,
                  fmt::format("'{}': the layers have more than {} steps", file_.path, kMostNdslSteps));
  }

  // Returns a text that is equal for identical layers: block, positions of its own settings, window, experts.
  static std::string identity(const LayerPlan& plan, bool window, bool experts) {
    std::string text = fmt::format("{} {} {}", static_cast<const void*>(plan.block), window, experts);
    for (const auto& [key, setting] : plan.config)
      text += fmt::format(" {}:{}:{}", key, setting.place.span.line, setting.place.span.column);
    return text;
  }

  std::string layers(std::string x) {
    expect_rules();
    std::map<std::string, size_t> known;  // number of steps, by identity of the layer
    for (int64_t i = 0; i < result_.sizes["num_layers"]; ++i) {
      const LayerPlan plan = plan_of(i);
      const bool window = plan.config.count("sliding_window") || has_window(i);
      const bool distinct = distinct_ || faults_.any();  // reports errors of identical layers once
      const std::string like = distinct ? identity(plan, window, has_experts(i)) : std::string();
      if (const auto at = known.find(like); distinct && at != known.end()) {
        add_steps(at->second);
        continue;
      }
      const NdslSettings settings = settings_.over(plan.config, settings_.where(), true);
      const NdslBlock block(file_, *plan.block, settings, has_experts(i), faults_);
      result_.layers.push_back(block.spec());
      specs::Step& scope = result_.spec.forward.emplace_back();
      scope.op = "Repeat";
      scope.place = file_.name.place.text();
      scope.fields = {{"count", int64_t{1}}, {"var", std::string("turn")}, {"scope", fmt::format("blk.{}", i)}};
      std::vector<specs::Step> steps;
      builder_.write_to(steps);
      NdslLayer layer(builder_, i, settings);
      layer.set_window(window);
      x = block.lower(layer, x);
      builder_.step("Observe", file_.name.place).fields = {{"in", x}, {"name", fmt::format("blk.{}", i)}};
      add_steps(steps.size());
      known[like] = steps.size();
      result_.spec.forward.back().steps = std::move(steps);
      builder_.write_to(result_.spec.forward);
    }
    return x;
  }

  // Adds BERT's pooler: a linear map of the first token's vector, then tanh.
  void pooler(const NdslSettings& settings, const std::string& x, bool scores) {
    if (scores)
      faults_.add(settings.place_of("use_pooler"), "a pooler is for encoders", "head: {none: true}", ErrorKind::Shape);
    const int64_t width = result_.sizes["hidden_size"];
    const std::string bias =
        builder_.tensor({"pooler.bias", Shape{width}, {HX_INIT_CONSTANT, 0, 0}, 0, 0, settings.where()});
    const std::string weight = builder_.tensor({"pooler.weight",
                                                Shape{width, width},
                                                {HX_INIT_NORMAL, 0, settings_.real("initializer_range", 0.02)},
                                                0,
                                                0,
                                                settings.where()});
    builder_.alias("pooler.weight", {weight});
    builder_.alias("pooler.bias", {bias});
    builder_.set_operation("pooler");
    const std::string first = builder_.fresh("first"), mapped = builder_.fresh("x"), pooled = builder_.fresh("pooled");
    builder_.step("Pool", settings.where()).fields = {{"in", x}, {"how", std::string("first")}, {"out", first}};
    builder_.step("Linear", settings.where()).fields = {
        {"in", first}, {"weight", weight}, {"bias", bias}, {"out", mapped}};
    builder_.step("Tanh", settings.where()).fields = {{"in", mapped}, {"out", pooled}};
    result_.spec.outputs["pooled"] = pooled;
  }

  void head(std::string x) {
    const NdslLevel level = ndsl_level(file_.head, false, faults_);
    const NdslSettings own = with(level, place_of(file_.head, file_.name.place));
    const bool scores = !own.truth("none", false);
    if (scores) {
      builder_.set_operation("last_token");
      const std::string last = builder_.fresh("x");
      builder_.step("LastToken", own.where()).fields = {{"in", x}, {"out", last}};
      x = last;
    }
    if (file_.has_final_norm) {
      const NdslLevel norm = ndsl_level(file_.final_norm, false, faults_);
      NdslSettings of_norm = with(norm, place_of(file_.final_norm, file_.name.place));
      NdslLevel like;  // settings of the block's first norm, the default
      std::string name = norm.count("op") ? norm_named(of_norm, "op") : "";
      if (name.empty()) {
        const auto first = std::find_if(file_.block.begin(), file_.block.end(), [](const ndsl::Operation& step) {
          return step.op.text == "RMSNorm" || step.op.text == "LayerNorm";
        });
        name = first == file_.block.end() ? "RMSNorm" : first->op.text;
        if (first != file_.block.end()) like = ndsl_level(first->config, true, faults_);
      }
      const NdslSettings all = of_norm.over(like, of_norm.where(), true);
      builder_.set_operation("final_norm");
      x = lower_norm(builder_, all, name, "output_norm", "final_norm", x);
      builder_.observe("final_norm", x);
    }
    result_.spec.outputs["hidden"] = x;
    if (own.truth("use_pooler", false)) pooler(own, x, scores);
    if (!scores) return;
    const bool ties = std::any_of(file_.hf_mapping.begin(), file_.hf_mapping.end(), [](const ndsl::Mapping& m) {
      return m.tensor.text == "lm_head.weight" && m.source.verb == ndsl::Source::Verb::tie;
    });
    result_.tied = own.truth("tie_word_embeddings", ties);
    std::string weight = "token_embd.weight";
    if (result_.tied)
      builder_.alias("lm_head.weight", {weight});
    else
      weight = table("output.weight", "lm_head.weight", result_.sizes["vocab_size"]);
    std::string logits = builder_.fresh("logits");
    builder_.set_operation("lm_head");
    auto& fields = builder_.step("Linear", own.where()).fields;
    fields = {{"in", x}, {"weight", weight}, {"out", logits}};
    if (own.truth("bias", false)) {
      const std::string bias = builder_.tensor(
          {"output.bias", Shape{result_.sizes["vocab_size"]}, {HX_INIT_CONSTANT, 0, 0}, 0, 0, own.where()});
      builder_.alias("lm_head.bias", {bias});
      result_.spec.forward.back().fields["bias"] = bias;
    }
    if (const double cap = own.real("final_logit_softcapping", 0); cap != 0) {
      const std::string capped = builder_.fresh("logits");
      builder_.step("Softcap", own.where()).fields = {{"in", logits}, {"cap", cap}, {"out", capped}};
      logits = capped;
    }
    result_.spec.outputs["scores"] = logits;
  }

  const ndsl::ModelFile& file_;
  NdslFaults& faults_;
  NdslLevel set_, hf_, defaults_, own_;
  NdslSettings settings_;
  CompiledNdsl result_;
  NdslBuilder builder_;
  bool distinct_;
  size_t steps_ = 0;
};

}  // namespace

CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options, NdslFaults& faults) {
  return Compiler(file, options, faults).compile();
}

CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options) {
  NdslFaults faults;
  CompiledNdsl compiled = compile_ndsl(file, options, faults);
  faults.throw_any();
  return compiled;
}

}  // namespace harmonics::engine
