#include "reduce.hpp"

#include <utility>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

bool is_number(uint32_t dtype) { return dtype == HX_F32 || dtype == HX_F64 || dtype == HX_I32 || dtype == HX_I64; }

struct Group {
  int64_t size;
  bool reduced;
};
// Merges axes into alternating groups of kept and reduced ones.
std::vector<Group> groups_of(const hx_type& x, const std::vector<int64_t>& axes) {
  std::vector<Group> groups;
  for (uint32_t i = 0; i < x.rank; ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (x.dims[i] == 1) continue;
    if (groups.empty() || groups.back().reduced != reduced) groups.push_back({1, reduced});
    groups.back().size *= x.dims[i];
  }
  return groups;
}

constexpr int64_t kColumnBlock = 64;
constexpr double kNanoseconds = 0.1;  // per element

// Divides rows into chunks if there are too few results to keep the parts busy.
int64_t chunks_for(int64_t outer, int64_t rows, int64_t inner) {
  const int64_t items = outer * ((inner + kColumnBlock - 1) / kColumnBlock);
  const uint32_t wanted = sums_for(kNanoseconds * static_cast<double>(outer * rows * inner), INT32_MAX);
  if (items * 2 >= wanted) return 1;
  return std::clamp<int64_t>(wanted / items, 1, std::max<int64_t>(1, rows / 64));
}

ReduceStage stage_of(int64_t outer, int64_t rows, int64_t inner, int64_t chunks) {
  ReduceStage s{};
  s.outer = outer;
  s.rows = rows;
  s.inner = inner;
  s.chunks = chunks;
  s.parts = parts_for(kNanoseconds * static_cast<double>(outer * rows * inner),
                      outer * chunks * ((inner + kColumnBlock - 1) / kColumnBlock));
  return s;
}

}  // namespace

// A stage with several chunks is followed by a stage that combines them.
bool plan_stages(const hx_type& x, const std::vector<int64_t>& axes, ReduceContext& c) {
  std::vector<Group> groups = groups_of(x, axes);
  const auto last_reduced = [&] {
    return std::find_if(groups.rbegin(), groups.rend(), [](const Group& g) { return g.reduced; });
  };
  if (last_reduced() == groups.rend()) groups.push_back({1, true});
  for (auto it = last_reduced(); it != groups.rend(); it = last_reduced()) {
    int64_t outer = 1, inner = 1;
    for (auto g = groups.begin(); g != it.base() - 1; ++g) outer *= g->size;
    for (auto g = it.base(); g != groups.end(); ++g) inner *= g->size;
    const int64_t chunks = c.dtype == HX_F32 ? chunks_for(outer, it->size, inner) : 1;
    if (c.stages + (chunks > 1 ? 2 : 1) > HX_MAX_PHASES) return false;
    c.stage[c.stages++] = stage_of(outer, it->size, inner, chunks);
    if (chunks > 1) c.stage[c.stages++] = stage_of(outer, chunks, inner, 1);
    it->size = 1;
    it->reduced = false;
  }
  return true;
}

int64_t place_stages(ReduceContext& c, uint32_t from, uint32_t to, uint32_t workspace) {
  int64_t floats = 0;
  for (uint32_t i = 0; i < c.stages; ++i) {
    ReduceStage& s = c.stage[i];
    s.from = i == 0 ? from : workspace;
    s.from_offset = i == 0 ? 0 : c.stage[i - 1].to_offset;
    s.to = i + 1 == c.stages ? to : workspace;
    if (s.to == to) continue;
    s.to_offset = floats;
    floats += (s.outer * s.chunks * s.inner + 15) & ~int64_t{15};
  }
  return floats;
}

std::optional<Reduction> reduction_of(std::string_view name) {
  constexpr std::pair<std::string_view, Reduction> rows[] = {{"reduce_sum", Reduction::sum},
                                                             {"reduce_max", Reduction::maximum},
                                                             {"reduce_min", Reduction::minimum},
                                                             {"reduce_prod", Reduction::product}};
  for (const auto& [text, reduction] : rows)
    if (text == name) return reduction;
  return std::nullopt;
}

bool plan_reduce(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_number(x.dtype) || x.dtype != site.out().dtype) return false;
  auto c = std::make_unique<ReduceContext>();
  c->dtype = x.dtype;
  c->reduction = *reduction_of(site.op());
  if (!plan_stages(x, site.integers("axes"), *c)) return false;
  if (c->dtype != HX_F32 && c->stages > 1) return false;

  const int64_t workspace = place_stages(*c, 0, 1, 2);
  std::vector<uint32_t> parts;
  for (uint32_t i = 0; i < c->stages; ++i) parts.push_back(c->stage[i].parts);
  answer(out, std::move(c), isa().reduce, "reduce", parts).workspace = static_cast<uint64_t>(workspace) * 4;
  return true;
}

namespace {
std::unique_ptr<AxisContext> axis_context(const Site& site, double nanoseconds) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  auto c = std::make_unique<AxisContext>();
  c->dtype = x.dtype;
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->parts = parts_for(nanoseconds * static_cast<double>(count(x)), c->outer * c->inner);
  return c;
}
}  // namespace

bool plan_arg_extreme(const Site& site, hx_kernel& out) {
  if (!is_number(site.in(0).dtype) || site.out().dtype != HX_I64) return false;
  auto c = axis_context(site, 1.0);
  c->largest = site.op() == "argmax";
  answer(out, std::move(c), isa().arg_extreme, site.op() == "argmax" ? "argmax" : "argmin");
  return true;
}

bool plan_cumsum(const Site& site, hx_kernel& out) {
  if (!is_number(site.in(0).dtype)) return false;
  auto c = axis_context(site, 1.0);
  answer(out, std::move(c), isa().cumsum, "cumsum");
  return true;
}

HM_PLANS(reduce, {"reduce_sum", plan_reduce}, {"reduce_max", plan_reduce}, {"reduce_min", plan_reduce},
         {"reduce_prod", plan_reduce}, {"argmax", plan_arg_extreme}, {"argmin", plan_arg_extreme},
         {"cumsum", plan_cumsum})

}  // namespace harmonics::cpu
