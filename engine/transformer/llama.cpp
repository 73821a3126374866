#include "engine/transformer/llama.hpp"

#include <cmath>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

namespace harmonics::engine {

namespace {

HTensor one(std::string_view name, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  return apply(name, attributes, inputs).at(0);
}

struct Llama {
  int64_t layers, width, heads, shared, head_width, hidden, vocabulary, context, rotary;
  double epsilon, base;
  std::string pairing;
  double position_scale;  // of linear scaling of positions: 1 without
  bool own_head;          // the head has a weight of its own
  bool divided;           // frequencies are divided by the tensor rope_freqs.weight
  DType cache;
  std::map<std::string, DType> types;  // of matrices, by name
};

std::string block(int64_t layer, const char* tensor) { return fmt::format("blk.{}.{}", layer, tensor); }

// Programs compute in f32; a matrix may be of any type that a product takes as its weight.
bool is_taken(DType dtype, const Shape& shape) {
  if (dtype == DType::F32) return true;
  return shape.rank() == 2 && (dtype == DType::F16 || dtype == DType::BF16 || is_stored(dtype));
}

void expect_tensor(const Model& model, const std::string& name, const Shape& shape) {
  const auto& all = model.parameters->all();
  const auto at = all.find(name);
  if (at == all.end()) throw Error(ErrorKind::Weights, fmt::format("'{}' has no tensor '{}'", model.name, name));
  const TensorType wanted{DType::F32, shape};
  if (at->second.type.shape != shape || !is_taken(at->second.type.dtype, shape))
    throw Error(ErrorKind::Weights, fmt::format("'{}': the tensor '{}' is {}, and the model's sizes need {}",
                                                model.name, name, at->second.type.str(), wanted.str()));
}

// A tensor that is not computed with, such as a bias, would silently be left out.
void expect_no_others(const Model& model, const Llama& m) {
  const size_t known = 2 + (m.own_head ? 1 : 0) + (m.divided ? 1 : 0) + 9 * static_cast<size_t>(m.layers);
  if (model.parameters->all().size() == known) return;
  const auto is_known = [&](const std::string& name) {
    constexpr std::string_view kInBlocks[] = {"attn_norm", "attn_q",   "attn_k",   "attn_v", "attn_output",
                                              "ffn_norm",  "ffn_gate", "ffn_down", "ffn_up"};
    for (const char* single : {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"})
      if (name == single) return true;
    for (int64_t layer = 0; layer < m.layers; ++layer)
      for (const std::string_view part : kInBlocks)
        if (name == fmt::format("blk.{}.{}.weight", layer, part)) return true;
    return false;
  };
  for (const auto& [name, tensor] : model.parameters->all())
    if (!is_known(name))
      throw Error(ErrorKind::Weights, fmt::format("'{}' has the tensor '{}', which a model of this family does not "
                                                  "compute with",
                                                  model.name, name));
}

constexpr int64_t kMostSize = int64_t{1} << 31;

// Keys that change what a model of the family computes, in ways that it does not implement.
void refuse_extensions(const Model& model, const std::string& prefix, int64_t head_width) {
  const ModelMetadata& from = model.metadata;
  const std::pair<const char*, int64_t> allowed[] = {{"expert_count", 0},
                                                     {"attention.key_length", head_width},
                                                     {"attention.value_length", head_width},
                                                     {"attention.sliding_window", 0}};
  for (const auto& [key, value] : allowed)
    if (const std::string name = prefix + key; from.has(name) && from.integer(name) != value)
      throw Error(ErrorKind::Weights, fmt::format("'{}': the metadata '{}' is {}, and only {} is implemented",
                                                  model.name, name, from.integer(name), value));
}

// The factor by which linear scaling stretches positions (Chen et al. 2023).
double scale_of(const Model& model, const std::string& prefix) {
  const ModelMetadata& from = model.metadata;
  const std::string kind = from.text(prefix + "rope.scaling.type", std::string("none"));
  if (kind == "none") return 1;
  const double factor = from.number(prefix + "rope.scaling.factor", 1.0);
  if (kind != "linear" || !(factor > 0))
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the metadata '{}rope.scaling.type' is '{}' with the factor {}, and only linear "
                            "scaling by a positive factor is implemented",
                            model.name, prefix, kind, factor));
  return factor;
}

Llama read(const Model& model) {
  const ModelMetadata& from = model.metadata;
  const std::string prefix = from.text("general.architecture", std::string("llama")) + ".";
  const auto count = [&](const char* key) { return from.integer_within(prefix + key, 1, kMostSize); };
  Llama m{};
  m.layers = count("block_count");
  m.width = count("embedding_length");
  m.heads = count("attention.head_count");
  m.shared = from.has(prefix + "attention.head_count_kv") ? count("attention.head_count_kv") : m.heads;
  m.hidden = count("feed_forward_length");
  m.context = count("context_length");
  if (m.width % m.heads != 0 || m.heads % m.shared != 0 || m.width / m.heads % 2 != 0)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': {} heads with {} of keys do not divide a width of {} into even parts", model.name,
                            m.heads, m.shared, m.width));
  m.head_width = m.width / m.heads;
  m.epsilon = from.number(prefix + "attention.layer_norm_rms_epsilon", 1e-5);
  m.base = from.number(prefix + "rope.freq_base", 10000.0);
  m.pairing = from.text(prefix + "rope.pairing", std::string("interleaved"));
  if (m.pairing != "half" && m.pairing != "interleaved")
    throw Error(
        ErrorKind::Weights,
        fmt::format("'{}': the pairing of rotary positions is half or interleaved, not '{}'", model.name, m.pairing));
  refuse_extensions(model, prefix, m.head_width);
  m.rotary = from.has(prefix + "rope.dimension_count")
                 ? from.integer_within(prefix + "rope.dimension_count", 2, m.head_width)
                 : m.head_width;
  m.position_scale = scale_of(model, prefix);
  m.divided = model.parameters->all().count("rope_freqs.weight") != 0;
  const auto table = model.parameters->all().find("token_embd.weight");
  if (table == model.parameters->all().end() || table->second.type.shape.rank() != 2)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has no matrix 'token_embd.weight'", model.name));
  m.vocabulary = table->second.type.shape[0];
  m.own_head = model.parameters->all().count("output.weight") != 0;
  return m;
}

// Traces one run: `tokens` positions behind `start`, which reads and fills the caches; or, without caches, whole
// sequences from their first token.
class Tracing {
 public:
  Tracing(const Llama& m, Tracer& tracer, const EntrySizes& sizes, bool cached)
      : m_(m),
        tracer_(tracer),
        sizes_(sizes),
        start_(cached ? tracer.input("start", {DType::I32, Shape{sizes.batch}}) : HTensor()),
        tokens_(tracer.input("tokens", {DType::I32, Shape{sizes.batch, sizes.tokens}})) {
    const HTensor places = iota(DType::I32, Shape{sizes.batch, sizes.tokens}, 1);
    if (cached) lengths_ = start_ + static_cast<double>(sizes.tokens);
    positions_ = cached ? reshape(start_, Shape{sizes.batch, 1}) + places : places;
  }

  // The scores of the token after the last one; without `scores` the caches only.
  void run(bool scores) {
    const HTensor x = blocks(scores);
    if (!scores) return;
    const HTensor last = reshape(slice_axis(x, 1, sizes_.tokens - 1, sizes_.tokens), Shape{sizes_.batch, m_.width});
    tracer_.output("scores", scores_of(last));
  }

  // The mean cross entropy of the scores after every token and the tokens that follow.
  void run_loss() {
    const HTensor following = tracer_.input("targets", {DType::I32, Shape{sizes_.batch, sizes_.tokens}});
    const HTensor each = one("softmax_cross_entropy", {}, {scores_of(blocks(true)), following});
    tracer_.output("loss", reduce_mean(each, {0, 1}));
  }

 private:
  HTensor blocks(bool scores) {
    HTensor x =
        cast(one("embedding", {}, {weight("token_embd.weight", {m_.vocabulary, m_.width}), tokens_}), DType::F32);
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      const TraceScope scope(fmt::format("blk.{}", layer));
      // The last block of a prefill is needed for its caches only.
      x = attend(x, layer, scores || layer + 1 < m_.layers);
      if (!x) break;
      x = feed_forward(x, layer);
      tracer_.output(fmt::format("value:blk.{}", layer), x);
    }
    return x;
  }
  HTensor scores_of(const HTensor& x) {
    return map(norm(x, "output_norm.weight"), m_.own_head ? "output.weight" : "token_embd.weight", m_.vocabulary);
  }
  HTensor weight(const std::string& name, const std::vector<int64_t>& shape) {
    const auto type = m_.types.find(name);
    return tracer_.parameter(name, {type == m_.types.end() ? DType::F32 : type->second, Shape(shape)});
  }
  HTensor norm(const HTensor& x, const std::string& name) {
    return one("rms_norm", AttributeMap().set("epsilon", m_.epsilon), {x, weight(name, {m_.width})});
  }
  // An affine map without bias, of a row at a time: equal bits for one token and for many.
  HTensor map(const HTensor& x, const std::string& name, int64_t outputs) {
    return one("linear", AttributeMap().set("batch_invariant", true), {x, weight(name, {outputs, x.shape().back()})});
  }
  HTensor heads(const HTensor& x, int64_t count) {
    return reshape(x, Shape{sizes_.batch, sizes_.tokens, count, m_.head_width});
  }
  HTensor turned(const HTensor& x) {
    AttributeMap how =
        AttributeMap()
            .set("operands", m_.divided || m_.position_scale != 1 ? "positions,frequencies" : "positions")
            .set("positions_first", true)
            .set("pairing", m_.pairing)
            .set("rotary_dims", m_.rotary)
            .set("base", m_.base);
    if (!m_.divided && m_.position_scale == 1) return one("rope", how, {x, positions_});
    return one("rope", how, {x, positions_, frequencies()});
  }
  // Of each pair of dimensions: base^(-2i/d), stretched.
  HTensor frequencies() {
    const int64_t pairs = m_.rotary / 2;
    const HTensor exponents =
        cast(iota(DType::I32, Shape{pairs}, 0), DType::F32) * (-2.0 / static_cast<double>(m_.rotary));
    HTensor all = exp(exponents * std::log(m_.base)) / m_.position_scale;
    if (m_.divided) all = all / weight("rope_freqs.weight", {pairs});
    return all;
  }
  HTensor cached(const std::string& name, const HTensor& rows) {
    if (!start_) return rows;
    const HTensor old = tracer_.state(name, {m_.cache, Shape{sizes_.batch, sizes_.capacity, m_.shared, m_.head_width}});
    const HTensor all = one("cache_append", {}, {old, rows, start_});
    tracer_.update(name, all);
    return all;
  }
  // Adds the block's attention; without `reads` fills its caches only, and returns nothing.
  HTensor attend(const HTensor& x, int64_t layer, bool reads) {
    const HTensor h = norm(x, block(layer, "attn_norm.weight"));
    const int64_t narrow = m_.shared * m_.head_width;
    const HTensor keys = cached(fmt::format("cache.{}.k", layer),
                                turned(heads(map(h, block(layer, "attn_k.weight"), narrow), m_.shared)));
    const HTensor values =
        cached(fmt::format("cache.{}.v", layer), heads(map(h, block(layer, "attn_v.weight"), narrow), m_.shared));
    if (!reads) return {};
    const HTensor queries = turned(heads(map(h, block(layer, "attn_q.weight"), m_.width), m_.heads));
    AttributeMap causal = AttributeMap().set("positions_first", true).set("causal", true);
    const HTensor seen = start_ ? one("attention", causal.set("operands", "lengths"), {queries, keys, values, lengths_})
                                : one("attention", causal, {queries, keys, values});
    const HTensor joined = reshape(seen, Shape{sizes_.batch, sizes_.tokens, m_.width});
    return x + map(joined, block(layer, "attn_output.weight"), m_.width);
  }
  HTensor feed_forward(const HTensor& x, int64_t layer) {
    const HTensor h = norm(x, block(layer, "ffn_norm.weight"));
    const HTensor gate = one("silu", {}, {map(h, block(layer, "ffn_gate.weight"), m_.hidden)});
    return x + map(gate * map(h, block(layer, "ffn_up.weight"), m_.hidden), block(layer, "ffn_down.weight"), m_.width);
  }

  const Llama& m_;
  Tracer& tracer_;
  const EntrySizes& sizes_;
  HTensor start_, tokens_, lengths_, positions_;
};

}  // namespace

void add_llama_entries(Model& model, DType cache) {
  const auto owned = std::make_shared<Llama>(read(model));
  Llama& m = *owned;
  m.cache = cache;
  if (const ElementType& type = element_type(cache); m.head_width % type.block != 0)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}': its heads are {} wide, and a cache of {} needs whole blocks of {}", model.name,
                            m.head_width, type.name, type.block),
                {}, {"take another type of the cache: f16"});
  for (const auto& [name, tensor] : model.parameters->all())
    if (tensor.type.shape.rank() == 2) m.types[name] = tensor.type.dtype;
  expect_tensor(model, "token_embd.weight", {m.vocabulary, m.width});
  expect_tensor(model, "output_norm.weight", {m.width});
  if (m.own_head) expect_tensor(model, "output.weight", {m.vocabulary, m.width});
  if (m.divided) expect_tensor(model, "rope_freqs.weight", {m.rotary / 2});
  const int64_t narrow = m.shared * m.head_width;
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    expect_tensor(model, block(layer, "attn_norm.weight"), {m.width});
    expect_tensor(model, block(layer, "attn_q.weight"), {m.width, m.width});
    expect_tensor(model, block(layer, "attn_k.weight"), {narrow, m.width});
    expect_tensor(model, block(layer, "attn_v.weight"), {narrow, m.width});
    expect_tensor(model, block(layer, "attn_output.weight"), {m.width, m.width});
    expect_tensor(model, block(layer, "ffn_norm.weight"), {m.width});
    expect_tensor(model, block(layer, "ffn_gate.weight"), {m.hidden, m.width});
    expect_tensor(model, block(layer, "ffn_up.weight"), {m.hidden, m.width});
    expect_tensor(model, block(layer, "ffn_down.weight"), {m.width, m.hidden});
    for (const char* part : {"k", "v"})
      model.states.push_back(
          {fmt::format("cache.{}.{}", layer, part), [owned](const EntrySizes& sizes) {
             return TensorType{owned->cache, Shape{sizes.batch, sizes.capacity, owned->shared, owned->head_width}};
           }});
  }
  expect_no_others(model, m);
  model.context = m.context;
  model.vocabulary = m.vocabulary;
  for (const bool scores : {false, true})
    model.entries.push_back({scores ? "decode" : "prefill", [owned, scores](Tracer& tracer, const EntrySizes& sizes) {
                               Tracing(*owned, tracer, sizes, true).run(scores);
                             }});
  model.entries.push_back(
      {"loss", [owned](Tracer& tracer, const EntrySizes& sizes) { Tracing(*owned, tracer, sizes, false).run_loss(); }});
}

}  // namespace harmonics::engine
