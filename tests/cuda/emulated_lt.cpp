// Emulation of cuBLASLt, written from its documentation, so that the calls of kernels/cuda/lt_step.cpp are checked
// rather than repeated: matrices are column-major, D = epilogue(op(A) op(B)), the bias is added along columns.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "engine/tensor/half.hpp"
#include "kernels/cuda/lt.hpp"
#include "tests/cuda/e4m3.hpp"
#include "tests/cuda/emulated_driver.hpp"

namespace harmonics::cuda {

using namespace engine;
namespace {

struct Description {
  int type = 0, compute = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  std::map<int, int64_t> attributes;  // integers and addresses
  int64_t get(int attribute, int64_t otherwise) const {
    const auto at = attributes.find(attribute);
    return at == attributes.end() ? otherwise : at->second;
  }
};
Description& of(lt::Description d) { return *static_cast<Description*>(d); }

int make(lt::Description* out) { return *out = new Description(), 0; }
int destroy(lt::Description d) { return delete static_cast<Description*>(d), 0; }
int set(lt::Description d, int attribute, const void* value, size_t bytes) {
  int64_t v = 0;
  if (bytes == 4) {
    int32_t narrow = 0;
    std::memcpy(&narrow, value, 4);
    v = narrow;
  } else if (bytes == 8) {
    std::memcpy(&v, value, 8);
  } else {
    return 7;
  }
  of(d).attributes[attribute] = v;
  return 0;
}

double element(const void* at, int type, int64_t i) {
  switch (type) {
    case lt::kF32:
      return static_cast<const float*>(at)[i];
    case lt::kF64:
      return static_cast<const double*>(at)[i];
    case lt::kE4m3:
      return static_cast<double>(e4m3_value(static_cast<const uint8_t*>(at)[i]));
    case lt::kF16:
      return static_cast<double>(half_to_float(static_cast<const uint16_t*>(at)[i]));
    default:
      return static_cast<double>(bfloat_to_float(static_cast<const uint16_t*>(at)[i]));
  }
}
void put(void* at, int type, int64_t i, double v) {
  switch (type) {
    case lt::kF32:
      static_cast<float*>(at)[i] = static_cast<float>(v);
      break;
    case lt::kF64:
      static_cast<double*>(at)[i] = v;
      break;
    case lt::kF16:
      static_cast<uint16_t*>(at)[i] = float_to_half(static_cast<float>(v));
      break;
    default:
      static_cast<uint16_t*>(at)[i] = float_to_bfloat(static_cast<float>(v));
  }
}

struct Shape {
  int64_t rows, columns;
};
Shape shape_after(const Description& m, bool transposed) {
  const auto r = static_cast<int64_t>(m.rows), c = static_cast<int64_t>(m.columns);
  return transposed ? Shape{c, r} : Shape{r, c};
}
bool fits(const Description& p, const Description& a, const Description& b, const Description& d) {
  const Shape x = shape_after(a, p.get(lt::kTransposeA, 0)), y = shape_after(b, p.get(lt::kTransposeB, 0));
  for (const Description* m : {&a, &b, &d})
    if (m->leading < static_cast<int64_t>(m->rows)) return false;
  const int64_t batch = d.get(lt::kBatchCount, 1);
  // fp8: A transposed, B not, columns at multiples of 16 bytes, no epilogue.
  if (a.type == lt::kE4m3 &&
      (b.type != lt::kE4m3 || d.type != lt::kF32 || !p.get(lt::kTransposeA, 0) || p.get(lt::kTransposeB, 0) ||
       a.rows % 16 || d.rows * 4 % 16 || p.get(lt::kEpilogue, lt::kPlain) != lt::kPlain))
    return false;
  if (a.type != b.type) return false;
  return x.columns == y.rows && x.rows == static_cast<int64_t>(d.rows) &&
         y.columns == static_cast<int64_t>(d.columns) && a.get(lt::kBatchCount, 1) == batch &&
         b.get(lt::kBatchCount, 1) == batch;
}

void multiply(const Description& p, const void* a, const Description& da, const void* b, const Description& db, void* d,
              const Description& dd) {
  const bool ta = p.get(lt::kTransposeA, 0), tb = p.get(lt::kTransposeB, 0);
  const int64_t k = shape_after(da, ta).columns, epilogue = p.get(lt::kEpilogue, lt::kPlain);
  const auto* bias = reinterpret_cast<const void*>(p.get(lt::kBiasPointer, 0));
  // Sums over each row of A, or each column of B, after transposition.
  auto* sums = reinterpret_cast<void*>(p.get(lt::kBiasPointer, 0));
  const bool of_a = epilogue == lt::kSumOfA;
  for (int64_t i = 0; (of_a || epilogue == lt::kSumOfB) && i < static_cast<int64_t>(of_a ? dd.rows : dd.columns); ++i) {
    double sum = 0;
    for (int64_t t = 0; t < k; ++t)
      sum += of_a ? element(a, da.type, ta ? t + i * da.leading : i + t * da.leading)
                  : element(b, db.type, tb ? i + t * db.leading : t + i * db.leading);
    put(sums, dd.type, i, sum);
  }
  double scale = 1;
  for (const int which : {lt::kScaleA, lt::kScaleB})
    if (da.type == lt::kE4m3) scale *= static_cast<double>(*reinterpret_cast<const float*>(p.get(which, 0)));
  for (int64_t n = 0; n < dd.get(lt::kBatchCount, 1); ++n)
    for (int64_t j = 0; j < static_cast<int64_t>(dd.columns); ++j)
      for (int64_t i = 0; i < static_cast<int64_t>(dd.rows); ++i) {
        double sum = 0;
        for (int64_t t = 0; t < k; ++t)
          sum += element(a, da.type, n * da.get(lt::kBatchStride, 0) + (ta ? t + i * da.leading : i + t * da.leading)) *
                 element(b, db.type, n * db.get(lt::kBatchStride, 0) + (tb ? j + t * db.leading : t + j * db.leading));
        sum *= scale;
        if (epilogue & lt::kBias) sum += element(bias, dd.type, i);
        if (epilogue & lt::kRelu && sum < 0) sum = 0;
        put(d, dd.type, n * dd.get(lt::kBatchStride, 0) + i + j * dd.leading, sum);
      }
}

const LtFunctions kFunctions = [] {
  LtFunctions f{};
  f.create = [](lt::Handle* h) { return *h = h, 0; };
  f.destroy = [](lt::Handle) { return 0; };
  f.version = []() -> size_t { return 130100; };
  f.status_text = [](int code) { return code == 15 ? "not supported" : "an error"; };
  f.product_create = [](lt::Description* out, int compute, int scale) {
    make(out);
    of(*out).compute = compute;
    of(*out).type = scale;
    return 0;
  };
  f.product_set = set;
  f.product_destroy = destroy;
  f.matrix_create = [](lt::Description* out, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    make(out);
    of(*out).type = type;
    of(*out).rows = rows;
    of(*out).columns = columns;
    of(*out).leading = leading;
    return 0;
  };
  f.matrix_set = set;
  f.matrix_destroy = destroy;
  f.preference_create = make;
  f.preference_set = set;
  f.preference_destroy = destroy;
  f.heuristic = [](lt::Handle, lt::Description p, lt::Description a, lt::Description b, lt::Description,
                   lt::Description d, lt::Description preference, int, lt::Heuristic* results, int* found) {
    if (!fits(of(p), of(a), of(b), of(d))) return 15;
    // The host guarantees an alignment of 64: algorithms that need more must not be offered.
    for (const int which : {lt::kLeastAlignmentA, lt::kLeastAlignmentB, lt::kLeastAlignmentC, lt::kLeastAlignmentD})
      if (of(preference).get(which, 256) > 64) return 15;
    *results = {};
    results->workspace = 1000;
    *found = 1;
    return 0;
  };
  f.product = [](lt::Handle, lt::Description p, const void* alpha, const void* a, lt::Description da, const void* b,
                 lt::Description db, const void* beta, const void*, lt::Description, void* d, lt::Description dd,
                 const lt::Algorithm*, void* workspace, size_t bytes, void* stream) {
    const bool wide = of(p).type == lt::kF64;
    if (element(alpha, wide ? lt::kF64 : lt::kF32, 0) != 1 || element(beta, wide ? lt::kF64 : lt::kF32, 0) != 0 ||
        (bytes > 0 && (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256)))
      return 7;
    auto& seen = emulated::settings();
    ++seen.products;
    seen.last_epilogue = static_cast<uint32_t>(of(p).get(lt::kEpilogue, 1));
    seen.last_compute = of(p).compute;
    seen.last_type = of(da).type;
    emulated::put(stream, [=, product = of(p), x = of(da), y = of(db), z = of(dd)] {
      std::memset(workspace, 0xff, bytes);
      multiply(product, a, x, b, y, d, z);
    });
    return 0;
  };
  return f;
}();

}  // namespace

const LtFunctions* open_lt(std::string& why) {
  if (emulated::settings().has_lt) return &kFunctions;
  why = "libcublasLt.so.13 is not found";
  return nullptr;
}

}  // namespace harmonics::cuda
