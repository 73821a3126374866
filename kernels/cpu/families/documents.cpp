// Attention restricted to the documents of packed sequences. Each document is computed as a separate attention: blocks
// of other documents are never visited, and a packed document gives the same bits as the document alone.
#include "../family.hpp"

#include <cstdint>

#include "../cached_attention.hpp"

namespace harmonics::cpu {
namespace {

// q, k, v and the optional inputs -> out, lse; or q, k, v, out, lse, dout and the optional inputs -> dq, dk, dv,
// dsinks?.
struct DocumentsContext {
  AttentionContext plain;            // of a document, except for its length
  CachedAttentionContext sequence;   // with a window, soft cap or sinks
  SequenceGradientContext gradient;  // gradient with a window, soft cap or sinks
  int64_t batch, shared, positions;  // of the call
  bool is_plain;                     // no window, soft cap or sinks
  uint32_t documents, sinks;         // buffers
  uint32_t results, workspace;       // buffers; results: the first result
  uint32_t parts, sink_parts;        // sink_parts: of phase 1, the gradient of the sinks
  int64_t part_workspace;            // floats
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "softmax_power.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Calls f(first position, length) for each document: a run of equal numbers.
template <typename F>
void each_document(const DocumentsContext& c, void* const* buffers, int64_t batch, F f) {
  const int32_t* numbers = static_cast<const int32_t*>(buffers[c.documents]) + batch * c.positions;
  for (int64_t begin = 0; begin < c.positions;) {
    int64_t end = begin + 1;
    while (end < c.positions && numbers[end] == numbers[begin]) ++end;
    f(begin, end - begin);
    begin = end;
  }
}

float* rows_at(void* const* buffers, uint32_t i, const HeadRows& at, int64_t batch, int64_t head, int64_t position) {
  return static_cast<float*>(buffers[i]) + batch * at.batch + head * at.head + position * at.row;
}

// Returns the sinks from a head; null if there are none.
float* sinks_at(const DocumentsContext& c, void* const* buffers, int64_t head) {
  return c.sinks == kNoBuffer ? nullptr : static_cast<float*>(buffers[c.sinks]) + head;
}

// Computes the gradient of the sinks. A sink has the probability exp(sink - lse) for each query, and the value 0.
void gradient_of_sinks(const DocumentsContext& c, void* const* buffers, uint32_t part) {
  const int64_t heads = c.shared * c.plain.group;
  const Range own = share(heads, c.sink_parts, part);
  for (int64_t head = own.begin; head < own.end; ++head) {
    const float sink = *sinks_at(c, buffers, head);
    double sum = 0;
    for (int64_t batch = 0; batch < c.batch; ++batch)
      for (int64_t t = 0; t < c.positions; ++t) {
        const float lse = static_cast<const float*>(buffers[4])[(batch * heads + head) * c.positions + t];
        const float *out = rows_at(buffers, 3, c.plain.out, batch, head, t),
                    *dout = rows_at(buffers, 5, c.plain.out, batch, head, t);
        vf inner{};
        for (int64_t i = 0; i < c.plain.value_width; i += kWidth) {
          const int64_t some = lanes_at(i, c.plain.value_width);
          inner = fma(load_some(out + i, some), load_some(dout + i, some), inner);
        }
        const float probability = power(splat(sink * kLog2E), splat(1), splat(lse * kLog2E))[0];
        sum -= static_cast<double>(probability * sum_of(inner));
      }
    static_cast<float*>(buffers[c.results + 3])[head] = static_cast<float>(sum);
  }
}

}  // namespace

// An item is a head.
void document_attention(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const DocumentsContext*>(context);
  const int64_t group = c.plain.group, heads = c.shared * group;
  float* const room = static_cast<float*>(buffers[c.workspace]) + part * c.part_workspace;
  AttentionContext plain = c.plain;
  CachedAttentionContext sequence = c.sequence;
  plain.group = sequence.group = 1;
  const Range items = share(c.batch * heads, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t batch = item / heads, head = item % heads;
    each_document(c, buffers, batch, [&](int64_t first, int64_t length) {
      void* own[] = {rows_at(buffers, 0, plain.q, batch, head, first),
                     rows_at(buffers, 1, plain.k, batch, head / group, first),
                     rows_at(buffers, 2, plain.v, batch, head / group, first),
                     rows_at(buffers, c.results, plain.out, batch, head, first),
                     static_cast<float*>(buffers[c.results + 1]) + item * c.positions + first,
                     room,
                     sinks_at(c, buffers, head)};
      if (c.is_plain) {
        plain.queries = plain.keys = length;
        return attention(&plain, own, 0, 0);
      }
      sequence.queries = sequence.keys = length;
      sequence.tile = c.sequence.tile < length ? c.sequence.tile : length;
      sequence.tiles = (length + sequence.tile - 1) / sequence.tile;
      sequence.splits = (length + kCacheSplit - 1) / kCacheSplit;
      cached_attention(&sequence, own, 0, 0);
    });
  }
}

// An item is a key and value head with all query heads that share it.
void document_attention_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const DocumentsContext*>(context);
  if (phase == 1) return gradient_of_sinks(c, buffers, part);
  const int64_t group = c.plain.group;
  float* const lse = static_cast<float*>(buffers[c.workspace]) + part * c.part_workspace;
  float* const room = lse + ((group * c.positions + 15) & ~int64_t{15});
  AttentionContext plain = c.plain;
  SequenceGradientContext sequence = c.gradient;
  const Range items = share(c.batch * c.shared, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t batch = item / c.shared, head = item % c.shared, query_head = head * group;
    each_document(c, buffers, batch, [&](int64_t first, int64_t length) {
      for (int64_t g = 0; g < group; ++g)
        for (int64_t t = 0; t < length; ++t)
          lse[g * length + t] = static_cast<const float*>(buffers[4])[(item * group + g) * c.positions + first + t];
      void* own[] = {rows_at(buffers, 0, plain.q, batch, query_head, first),
                     rows_at(buffers, 1, plain.k, batch, head, first),
                     rows_at(buffers, 2, plain.v, batch, head, first),
                     rows_at(buffers, 3, plain.out, batch, query_head, first),
                     lse,
                     rows_at(buffers, 5, plain.out, batch, query_head, first),
                     rows_at(buffers, c.results, plain.q, batch, query_head, first),
                     rows_at(buffers, c.results + 1, plain.k, batch, head, first),
                     rows_at(buffers, c.results + 2, plain.v, batch, head, first),
                     room,
                     sinks_at(c, buffers, query_head)};
      plain.queries = plain.keys = sequence.queries = sequence.keys = length;
      if (c.is_plain)
        attention_grad(&plain, own, 0, 0);
      else
        sequence_gradient(&sequence, own, 0, 0);
    });
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <cmath>

#include "../documents.hpp"

HM_VECTOR_CODE(document_attention)
HM_VECTOR_CODE(document_attention_grad)

namespace harmonics::cpu {

namespace {

HeadRows rows_of_documents(const hx_type& x, bool positions_first) {
  const int64_t inner = x.dims[2] * x.dims[3], width = x.dims[3];
  return positions_first ? HeadRows{x.dims[1] * inner, width, inner} : HeadRows{x.dims[1] * inner, inner, width};
}

int64_t whole_lines(int64_t floats) { return (floats + 15) & ~int64_t{15}; }

}  // namespace

bool plan_documents(const Site& site, hx_kernel& out) {
  const bool gradient = site.op() == "attention_grad", first = site.flag("positions_first");
  const uint32_t fixed = gradient ? 6 : 3, head_axis = first ? 2 : 1, position_axis = first ? 1 : 2;
  const std::string operands = site.text("operands");
  const bool has_sinks = operands != "documents", sinks_first = operands == "sinks,documents";
  if (site.inputs() != fixed + (has_sinks ? 2 : 1)) return false;
  const uint32_t documents_at = fixed + (sinks_first ? 1 : 0), sinks_at = fixed + (sinks_first ? 0 : 1);
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2), &documents = site.in(documents_at);
  if (has_sinks && !is_f32(site.in(sinks_at))) return false;
  for (uint32_t i = 0; i < fixed; ++i)
    if (!is_f32(site.in(i))) return false;
  if (q.rank != 4 || k.rank != 4 || v.rank != 4 || documents.dtype != HX_I32 || documents.rank != 2) return false;
  if (k.dims[head_axis] == 0 || q.dims[head_axis] % k.dims[head_axis]) return false;
  if (q.dims[position_axis] != k.dims[position_axis] || documents.dims[1] != q.dims[position_axis]) return false;
  auto c = std::make_unique<DocumentsContext>();
  c->batch = q.dims[0];
  c->shared = k.dims[head_axis];
  c->positions = q.dims[position_axis];
  c->documents = documents_at;
  c->sinks = has_sinks ? sinks_at : kNoBuffer;
  c->results = site.inputs();
  c->workspace = site.workspace();
  AttentionContext& a = c->plain;
  a.batch = a.shared = 1;
  a.group = q.dims[head_axis] / c->shared;
  a.queries = a.keys = c->positions;
  a.width = q.dims[3];
  a.value_width = v.dims[3];
  a.q = rows_of_documents(q, first);
  a.k = rows_of_documents(k, first);
  a.v = rows_of_documents(v, first);
  hx_type out_type = q;
  out_type.dims[3] = a.value_width;
  a.out = rows_of_documents(out_type, first);
  a.copies = first;
  a.causal = site.flag("causal");
  a.scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(a.width))));
  a.parts = 1;
  a.query_chunks = 1;
  SequenceAttention s{};
  s.batch = s.shared = 1;
  s.group = a.group;
  s.width = a.width;
  s.value_width = a.value_width;
  s.q = a.q, s.k = a.k, s.v = a.v, s.out = a.out;
  s.causal = a.causal;
  s.window = static_cast<int64_t>(site.number("window"));
  s.scale = a.scale;
  s.softcap = static_cast<float>(site.number("softcap"));
  s.lengths = s.sinks = s.mask.buffer = s.bias.buffer = s.pages.buffer = kNoBuffer;
  if (a.scale < 0 || s.window < 0 || s.softcap < 0) return false;
  if (has_sinks) s.sinks = gradient ? 10 : 6;  // in the buffers of a document
  c->is_plain = s.window == 0 && s.softcap == 0 && !has_sinks;
  const double pairs = static_cast<double>(c->batch * c->shared * a.group) *
                       static_cast<double>(c->positions * c->positions) * (a.causal ? 0.55 : 1);
  const int64_t widths = a.width + a.value_width, rows = a.group * whole_blocks(c->positions);
  if (gradient) {
    static_cast<SequenceAttention&>(c->gradient) = s;
    c->gradient.dq = 6;
    c->gradient.dbias = c->gradient.dsinks = kNoBuffer;
    c->gradient.workspace = 9;
    c->gradient.bias_tables = 1;
    c->gradient.parts = c->gradient.bias_parts = 1;
    c->gradient.part_workspace = 2 * kQueryBlock * kKeyBlock;
    // As in plan_attention, for the longest possible document.
    constexpr int64_t kMostDense = 384 * 1024;
    const auto collide = [](const HeadRows& at) { return at.row % 256 == 0; };
    const int64_t dense = a.group * c->positions * (2 * a.width + a.value_width);
    a.dense_rows = first && (collide(a.q) || collide(a.k) || collide(a.out)) && dense <= kMostDense;
    const int64_t of_plain = ((1 + a.copies) * widths + 2 * kGradientBlock) * kGradientBlock + 4 * rows +
                             (a.dense_rows ? dense + kGradientBlock * a.width : 0);
    const int64_t of_sequence = 4 * a.group * c->positions + c->gradient.part_workspace;
    a.part_workspace = whole_lines(of_plain);
    c->part_workspace = whole_lines(a.group * c->positions) + whole_lines(c->is_plain ? of_plain : of_sequence);
    c->parts = parts_for(pairs * (2.0 + 0.1 * static_cast<double>(widths + a.width)), c->batch * c->shared);
  } else {
    CachedAttentionContext& forward = c->sequence;
    static_cast<SequenceAttention&>(forward) = s;
    forward.tile = std::min<int64_t>(kMostTile, c->positions);
    forward.k_type = forward.v_type = CacheType::f32;
    forward.apart = false;
    forward.few = forward.tile <= kFewRows;
    forward.copy_k = !forward.few && a.k.row != a.width;
    forward.copy_v = !forward.few && a.v.row != a.value_width;
    forward.out_buffer = 3;
    forward.lse = 4;
    forward.workspace = 5;
    forward.parts = forward.merge_parts = 1;
    int64_t of_sequence = whole_lines(forward.tile * a.width) + whole_lines(forward.tile * kCacheBlock) +
                          whole_lines(forward.tile * a.value_width) + 4 * whole_lines(forward.tile);
    if (forward.copy_k) of_sequence += whole_lines(kCacheBlock * a.width);
    if (forward.copy_v) of_sequence += whole_lines(kCacheBlock * a.value_width);
    forward.part_workspace = of_sequence;
    a.part_workspace =
        whole_lines((a.width + kKeyBlock) * kQueryBlock + 2 * whole_blocks(c->positions) + kKeyBlock * a.value_width);
    c->part_workspace = c->is_plain ? a.part_workspace : of_sequence;
    c->parts = parts_for(pairs * (1.0 + 0.05 * static_cast<double>(widths)), c->batch * c->shared * a.group);
  }
  const uint64_t workspace = static_cast<uint64_t>(c->part_workspace) * c->parts * sizeof(float);
  std::vector<uint32_t> parts{c->parts};
  if (gradient && has_sinks) {
    const int64_t heads = c->shared * a.group, products = c->batch * heads * c->positions * a.value_width;
    parts.push_back(c->sink_parts = parts_for(0.2 * static_cast<double>(products), heads));
  }
  answer(out, std::move(c), gradient ? chosen::document_attention_grad() : chosen::document_attention(),
         "attention of documents", parts)
      .workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu

#endif
