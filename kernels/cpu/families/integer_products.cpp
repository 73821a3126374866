// linear with a block-quantised integer weight and x quantised to q8_0, and the choice of the kernel of linear.
#include "integer_products.hpp"

#include "../family.hpp"

#ifdef HM_ISA

#include "integer_kernels.hpp"

#else

#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/element_type.hpp>
#include <harmonics/error.hpp>

namespace harmonics::cpu {
using PackedChunkBytes = int64_t(uint32_t dtype);
}
HM_VECTOR_CODE(integer_linear)
HM_VECTOR_FUNCTION(Packing, pack_integers)
HM_VECTOR_FUNCTION(PackedChunkBytes, packed_integer_chunk)

namespace harmonics::cpu {
namespace {

struct IntegerName {
  DType dtype;
  const char* kernel;
  int packing = 1;  // version of the packed layout
};
constexpr IntegerName kIntegerNames[] = {
    {DType::Q8_0, "q8_0 times q8_0"},     {DType::Q4_0, "q4_0 times q8_0"},   {DType::Q4_1, "q4_1 times q8_0"},
    {DType::Q5_0, "q5_0 times q8_0"},     {DType::Q5_1, "q5_1 times q8_0"},   {DType::Q2_K, "q2_k times q8_0"},
    {DType::Q3_K, "q3_k times q8_0"},     {DType::Q4_K, "q4_k times q8_0"},   {DType::Q5_K, "q5_k times q8_0"},
    {DType::Q6_K, "q6_k times q8_0", 2},  {DType::MXFP4, "mxfp4 times q8_0"}, {DType::IQ4_NL, "iq4_nl times q8_0"},
    {DType::IQ4_XS, "iq4_xs times q8_0"},
};

const IntegerName* integer_name(uint32_t dtype) {
  for (const IntegerName& name : kIntegerNames)
    if (static_cast<uint32_t>(name.dtype) == dtype) return &name;
  return nullptr;
}

// Returns the name of the packed layout: type, instruction set and version.
const char* packing_of(const IntegerName& row) {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const IntegerName& name : kIntegerNames)
      all.push_back(std::string(element_type(name.dtype).name) + " lanes/" + isa().name + "/" +
                    std::to_string(name.packing));
    return all;
  }();
  return names[static_cast<size_t>(&row - kIntegerNames)].c_str();
}

// CPUID directly, because g++ 12 and clang 14 name these features differently.
bool has_vnni() {
  const char* wanted = std::getenv("HARMONICS_VNNI");
  const std::string name = wanted ? wanted : "";
  if (name == "off") return false;
  if (!name.empty()) throw Error(ErrorKind::Device, "HARMONICS_VNNI=" + name + " is not known; use off");
  const std::string_view set = isa().name;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (set == "avx512") return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
  return set == "avx2" && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

// Slices columns of C first: each part unpacks its own rows of the weight. Slices rows only if there are few columns.
void cut_integers(IntegerContext& c, uint32_t wanted) {
  const Product& p = c.product;
  c.row_parts = c.column_parts = 1;
  while (c.row_parts * c.column_parts < wanted) {
    if (p.n >= 2 * c.column_parts * kIntegerColumnGranule)
      c.column_parts *= 2;
    else if (p.m >= 2 * c.row_parts * kIntegerRows)
      c.row_parts *= 2;
    else
      break;
  }
}

}  // namespace

bool plan_integer_linear(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &weight = site.in(1);
  const IntegerName* row = integer_name(weight.dtype);
  if (!row) return declined("multiplies by weights in blocks of whole numbers");
  static const bool vnni = has_vnni();
  auto c = std::make_unique<IntegerContext>();
  if (!product_of_typed(site, c->product)) return false;
  const Product& p = c->product;
  c->dtype = weight.dtype;
  c->row_bytes = static_cast<int64_t>(run_bytes(row->dtype, p.k));
  c->vnni = vnni;
  c->fetches = fetch_distances();
  c->x_rows = few_integer_rows(p.m);
  const int64_t chunks = (p.k + kIntegerDepth - 1) / kIntegerDepth;
  const double bytes = static_cast<double>(c->row_bytes) * static_cast<double>(p.n),
               elements = static_cast<double>(p.k) * static_cast<double>(p.n);
  c->quantise_parts = parts_for(static_cast<double>(count(x)), chunks * c->x_rows);
  cut_integers(*c, parts_for(bytes / 10 + elements * static_cast<double>(p.m) / 150, INT32_MAX));
  const uint32_t quantise = c->quantise_parts, multiply = c->row_parts * c->column_parts;
  const uint64_t workspace = static_cast<uint64_t>(chunks * c->x_rows) * sizeof(IntegerChunk);
  uint64_t packed = 0, piece = 0;
  if (site.is_constant(1)) {
    c->packed_chunk = chosen::packed_integer_chunk()(weight.dtype);
    const auto group = static_cast<uint64_t>(chunks * c->packed_chunk);
    packed = static_cast<uint64_t>((p.n + isa().vector - 1) / isa().vector) * group;
    piece = kPackedGroups * group;
  }
  answer(out, std::move(c), chosen::integer_linear(), row->kernel, {quantise, multiply}).workspace = workspace;
  if (packed == 0) return true;
  out.packed_bytes = packed;
  out.packed_piece = piece;
  out.packed_input = 1;
  out.pack = chosen::pack_integers();
  out.packing = packing_of(*row);
  return true;
}

bool plan_any_linear(const Site& site, hx_kernel& out) {
  if (site.text("activation_type").empty()) return plan_linear(site, out);
  return integer_name(site.in(1).dtype) ? plan_integer_linear(site, out) : plan_typed_linear(site, out);
}

HM_PLANS(integer_products, {"linear", plan_any_linear})

}  // namespace harmonics::cpu

#endif
