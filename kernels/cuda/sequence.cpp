// Plans attention with optional inputs, rotary position embedding, and rows appended to a key-value cache.
#include <cmath>
#include <limits>

#include "families.hpp"

namespace harmonics::cuda {
namespace {

struct Named {
  std::string name;
  uint32_t input;
};
// Reads the optional inputs, which follow the first `fixed` inputs. False: their number differs from the call's inputs.
bool optional_inputs(const Site& site, uint32_t fixed, std::vector<Named>& found) {
  const std::string names = site.text("operands");
  for (size_t at = 0; at < names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    found.push_back({names.substr(at, comma - at), fixed + static_cast<uint32_t>(found.size())});
    at = comma + 1;
  }
  return fixed + found.size() == site.inputs();
}

// Strides of heads and of positions.
struct Rows {
  uint32_t head, row;
  Rows(const hx_type& x, bool positions_first) {
    const auto width = static_cast<uint32_t>(x.dims[3]), second = static_cast<uint32_t>(x.dims[2]);
    head = positions_first ? width : second * width;
    row = positions_first ? second * width : width;
  }
};

// Reads the type of keys or values: a float of 32 or 16 bits, or q8_0 in whole blocks. False: another type.
bool cache_type(const hx_type& x, CacheType& type) {
  type = is_f32(x)            ? CacheType::f32
         : x.dtype == HX_F16  ? CacheType::f16
         : x.dtype == HX_BF16 ? CacheType::bf16
                              : CacheType::q8_0;
  return type != CacheType::q8_0 || (x.dtype == HX_Q8_0 && x.dims[3] % kCacheBlock == 0);
}

// Parameters of a call and its optional inputs. The buffers of absent inputs are valid but unused.
struct Sequence {
  AttendParameters p{};
  std::vector<Named> more;
  uint32_t lengths = 0, mask = 0, bias = 0, sinks = 0, pages = 0;

  // `fixed`: number of inputs before the optional ones.
  bool read(const Site& site, uint32_t fixed) {
    const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
    const bool first = site.flag("positions_first");
    const uint32_t heads = first ? 2 : 1, positions = 3 - heads;
    const auto size = [](const hx_type& x, uint32_t axis) { return static_cast<uint32_t>(x.dims[axis]); };
    p.batch = size(q, 0), p.heads = size(q, heads), p.shared = size(k, heads), p.queries = size(q, positions);
    p.keys = size(k, positions), p.width = size(q, 3), p.values = size(v, 3);
    if (std::max(p.width, p.values) > kWidestHead) return declined("keeps heads of 256 numbers at most");
    const Rows of_q(q, first), of_k(k, first), of_v(v, first);
    p.q_head = of_q.head, p.q_row = of_q.row, p.k_head = of_k.head, p.k_row = of_k.row;
    p.v_head = of_v.head, p.v_row = of_v.row;
    // The result has the layout of q with the width of v.
    p.out_head = p.q_head / p.width * p.values, p.out_row = p.q_row / p.width * p.values;
    p.causal = site.flag("causal");
    p.window = static_cast<uint32_t>(site.number("window"));
    p.scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(p.width))));
    p.cap = static_cast<float>(site.number("softcap"));
    if (!optional_inputs(site, fixed, more)) return declined("takes optional inputs by name");
    if (!read_pages(site)) return false;
    for (const Named& m : more) {
      const hx_type& type = site.in(m.input);
      const uint32_t table = p.queries * p.keys, tables = type.rank == 4 ? size(type, 1) : 0;
      const uint32_t of_item = tables * table, of_head = tables > 1 ? table : 0;
      if (m.name == "lengths" && type.dtype == HX_I32)
        lengths = m.input, p.has_lengths = 1;
      else if (m.name == "sinks" && is_f32(type))
        sinks = m.input, p.has_sinks = 1;
      else if (m.name == "pages" && type.dtype == HX_I32)
        pages = m.input;
      else if (m.name == "mask" && type.dtype == HX_BOOL)
        mask = m.input, p.has_mask = 1, p.mask_item = of_item, p.mask_head = of_head;
      else if (m.name == "bias" && is_f32(type))
        bias = m.input, p.has_bias = 1, p.bias_item = of_item, p.bias_head = of_head;
      else
        return declined("takes lengths and pages i32, a mask of bool, a bias and sinks of f32");
    }
    return true;
  }

 private:
  // With pages, keys and values are pools of pages, and the keys of a batch item are those of its table.
  bool read_pages(const Site& site) {
    for (const Named& m : more) {
      if (m.name != "pages") continue;
      p.entries = static_cast<uint32_t>(site.in(m.input).dims[1]);
      p.page = p.keys;
      p.pool = static_cast<uint32_t>(site.in(1).dims[0]);
      if (uint64_t{p.entries} * p.page > std::numeric_limits<uint32_t>::max())
        return declined("attends over fewer than 2^32 keys");
      p.keys = p.entries * p.page;
    }
    return true;
  }
};

uint32_t tiles(uint32_t n, uint32_t tile) { return (n + tile - 1) / tile; }

// Launches n warps.
void launch_warps(Work& work, uint32_t n, Function function, std::vector<Operand> buffers, const AttendParameters& p) {
  constexpr uint32_t kOfBlock = kThreads / 32;
  work.launch(function, {(n + kOfBlock - 1) / kOfBlock, 1, 1, kThreads}, std::move(buffers), p);
}

}  // namespace

bool plan_sequence(const Site& site, hx_kernel& out) {
  Sequence s;
  if (!is_f32(site.in(0)) || !is_f32(site.out()) || !is_f32(site.out(1)) || !cache_type(site.in(1), s.p.key_type) ||
      !cache_type(site.in(2), s.p.value_type))
    return declined("attends with optional inputs in f32, over keys and values of f32, f16 or q8_0 in whole blocks");
  if (!s.read(site, 3)) return false;
  const uint32_t out_at = site.inputs();
  Work work(site.machine());
  launch_warps(work, s.p.batch * s.p.heads * s.p.queries, attend_function(),
               {{0}, {1}, {2}, {s.lengths}, {s.mask}, {s.bias}, {s.sinks}, {s.pages}, {out_at}, {out_at + 1}}, s.p);
  answer(out, std::move(work), "attention");
  return true;
}

bool plan_tiled_attention(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return declined("attends in tiles of f32");
  Sequence s;
  if (!s.read(site, 3)) return false;
  const AttendParameters& p = s.p;
  const uint32_t width = std::max(p.width, p.values);
  if (width > kWidestTiledHead) return declined("keeps tiles of heads of 64 numbers at most");
  Work work(site.machine());
  work.launch(attend_tiles_function(width), {tiles(p.queries, kAttentionQueries) * p.heads * p.batch, 1, 1, kThreads},
              {{0}, {1}, {2}, {3}, {4}}, p);
  answer(out, std::move(work), "attention in tiles");
  return true;
}

bool plan_tiled_attention_grad(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return declined("has gradients of f32 only");
  Sequence s;
  if (!s.read(site, 6)) return false;
  const AttendParameters& p = s.p;
  const uint32_t width = std::max(p.width, p.values), dq = site.inputs();
  if (width > kWidestTiledHead) return declined("leaves plain attention of wider heads to products");
  Work work(site.machine());
  const Operand statistics = work.take_workspace(site, uint64_t{p.batch} * p.heads * p.queries * 3 * sizeof(float));
  work.launch(attend_tiles_queries_function(width),
              {tiles(p.queries, kAttentionKeys) * p.heads * p.batch, 1, 1, kThreads},
              {{0}, {1}, {2}, {3}, {5}, {dq}, statistics}, p);
  work.launch(attend_tiles_keys_function(width), {tiles(p.keys, kAttentionKeys) * p.shared * p.batch, 1, 1, kThreads},
              {{0}, {1}, {2}, {5}, statistics, {dq + 1}, {dq + 2}}, p);
  answer(out, std::move(work), "attention in tiles");
  return true;
}

bool plan_sequence_grad(const Site& site, hx_kernel& out) {
  if (!kernels::has_more_than_attention(site)) return plan_tiled_attention_grad(site, out);
  for (const uint32_t i : {0u, 1u, 2u, 5u})
    if (!is_f32(site.in(i))) return declined("has gradients of f32 only");
  Sequence s;
  if (!s.read(site, 6)) return false;
  if (s.p.entries) return declined("has no gradient over pages");
  const AttendParameters& p = s.p;
  const uint32_t rows = p.batch * p.heads * p.queries, dq = site.inputs();
  Work work(site.machine());
  const Operand statistics = work.take_workspace(site, uint64_t{rows} * 4 * sizeof(float));
  const std::vector<Operand> common{{0}, {1}, {2}, {5}, {s.lengths}, {s.mask}, {s.bias}};
  const auto with = [&](std::initializer_list<Operand> others) {
    std::vector<Operand> all = common;
    all.insert(all.end(), others);
    return all;
  };
  launch_warps(work, rows, attend_queries_function(), with({{s.sinks}, {dq}, statistics}), p);
  launch_warps(work, p.batch * p.shared * p.keys, attend_keys_function(), with({statistics, {dq + 1}, {dq + 2}}), p);
  uint32_t next = dq + 3;
  for (const Named& m : s.more) {
    if (m.name == "sinks") {
      work.over(p.heads, attend_sinks_function(), {{s.sinks}, statistics, {next}}, p);
      ++next;
    }
    if (m.name == "bias") {
      const auto n = static_cast<uint32_t>(count(site.buffer(next)));
      launch_warps(work, n, attend_bias_function(), with({statistics, {next}}), p);
      ++next;
    }
  }
  answer(out, std::move(work), "attention");
  return true;
}

bool plan_rope(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const uint32_t skipped = site.flag("positions_first") ? 1 : 0;
  if (!is_f32(x) || x.rank < 2 + skipped) return declined("rotates f32 only");
  TurnParameters p{};
  p.width = static_cast<uint32_t>(last(x));
  const auto given = static_cast<uint32_t>(site.number("rotary_dims"));
  p.half = (given ? given : p.width) / 2;
  p.positions = static_cast<uint32_t>(x.dims[x.rank - 2 - skipped]);
  p.repeats = skipped ? static_cast<uint32_t>(x.dims[x.rank - 2]) : 1;
  const auto rows = static_cast<uint32_t>(count(x) / last(x));
  p.item = rows / static_cast<uint32_t>(x.dims[0]);
  p.count = rows * (p.width - p.half);
  p.interleaved = site.text("pairing") == "interleaved";
  p.offset = static_cast<int32_t>(site.integer("offset"));
  p.decay = -std::log(site.number("base", 10000)) / p.half;
  p.sign = site.flag("inverse") ? -1 : 1;
  std::vector<Named> more;
  if (!optional_inputs(site, 1, more)) return declined("takes optional inputs by name");
  uint32_t positions = 0, frequencies = 0;
  for (const Named& m : more) {
    const hx_type& type = site.in(m.input);
    if (m.name == "positions" && type.dtype == HX_I32)
      positions = m.input, p.has_positions = 1, p.own_positions = type.rank == 2;
    else if (m.name == "frequencies" && is_f32(type))
      frequencies = m.input, p.has_frequencies = 1;
    else
      return declined("takes positions i32 and frequencies f32");
  }
  Work work(site.machine());
  work.over(p.count, turn_function(), {{0}, {positions}, {frequencies}, {site.inputs()}}, p);
  answer(out, std::move(work), "rope").in_place = 1;
  return true;
}

bool plan_cache_append(const Site& site, hx_kernel& out) {
  const bool paged = site.inputs() == 4;
  if (paged != (site.text("operands") == "pages") || (paged && site.in(3).dtype != HX_I32))
    return declined("takes pages i32 by name");
  const hx_type &cache = site.in(0), &rows = site.in(1);
  const bool narrows = kernels::is_half(cache.dtype) && is_f32(rows), blocks = cache.dtype == HX_Q8_0 && is_f32(rows);
  if (site.in(2).dtype != HX_I32 || (!narrows && !blocks && (cache.dtype != rows.dtype || site.has_stored())))
    return declined("appends rows of the cache's type, or f32 to f16, bf16 and q8_0, from i32 rows on");
  const auto n = static_cast<uint32_t>(count(rows) / (blocks ? kCacheBlock : 1));
  const auto size = [](int64_t of) { return static_cast<uint32_t>(of); };
  AppendParameters p{n, size(cache.dims[1]), size(rows.dims[1]), size(n / (rows.dims[0] * rows.dims[1])), 0, 0, 0};
  if (paged)
    p.all = size(rows.dims[0] * rows.dims[1]), p.entries = size(site.in(3).dims[1]), p.pool = size(cache.dims[0]);
  const uint32_t result = site.inputs();
  Work work(site.machine());
  work.copy({result}, {0}, run_bytes(static_cast<DType>(cache.dtype), count(cache)));
  const Function append = blocks    ? append_blocks_function()
                          : narrows ? append_half_function(cache.dtype)
                                    : append_function(width(cache.dtype));
  work.over(n, append, {{1}, {2}, {paged ? 3u : 2u}, {result}}, p);
  answer(out, std::move(work), paged ? "paged cache append" : "cache append").in_place = 1;
  return true;
}

HM_PLANS(sequence, {"attention_grad", plan_sequence_grad}, {"rope", plan_rope}, {"cache_append", plan_cache_append})

}  // namespace harmonics::cuda
