#include "chain_source.hpp"

#include "kernels/shared/scalar_texts.hpp"

namespace harmonics::cuda {
namespace {

// Prelude of generated programs. HM_EMULATED: compiled for the processor, which brings its own conversions.
const char* kPrelude = R"(typedef unsigned char uchar;
typedef signed char schar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#ifndef HM_EMULATED
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
__device__ inline float from_f16(ushort h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ inline ushort to_f16(float f) { ushort h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif
__device__ inline float from_bf16(ushort h) { return __int_as_float((int)((uint)h << 16)); }
__device__ inline ushort to_bf16(float f) {
  const uint bits = (uint)__float_as_int(f);
  return f != f ? (ushort)0x7fc0 : (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <typename T> struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) Pack { T x[4]; };
template <typename T> __device__ inline void load(Pack<T>& to, const T* from, uint first, uint some) {
  if (some == 4) to = *(const Pack<T>*)(from + first);
  else for (uint j = 0; j < some; ++j) to.x[j] = from[first + j];
}
template <typename T> __device__ inline void store(T* to, const Pack<T>& from, uint first, uint some) {
  if (some == 4) *(Pack<T>*)(to + first) = from;
  else for (uint j = 0; j < some; ++j) to[first + j] = from.x[j];
}
)";

// Storage type and arithmetic type of an element.
const char* computed_name(uint32_t dtype) { return dtype == HX_I8 ? "schar" : kernels::type_name(dtype); }
const char* stored_name(uint32_t dtype) { return is_half(dtype) ? "ushort" : computed_name(dtype); }

// To bool: not zero. From floats to integers: truncates, saturates, NaN gives 0.
std::string cast_text(const std::string& a, uint32_t from, uint32_t result) {
  if (result == HX_BOOL) return "(uchar)(" + a + " != 0)";
  const std::string to = computed_name(result);
  if (!is_float(from) || is_float(result)) return "(" + to + ")" + a;
  const uint32_t bits = 8 * width(result) - (is_signed(result) ? 1 : 0);
  const std::string all_ones =
      "(" + to + ")(((" + kernels::word_name(result) + ")-1)" + (is_signed(result) ? " >> 1)" : ")");
  const std::string beyond = bits == 63   ? "9223372036854775808.0"
                             : bits == 64 ? "18446744073709551616.0"
                                          : std::to_string(uint64_t{1} << bits) + ".0";
  const std::string least = is_signed(result) ? "(" + to + ")(-" + all_ones + " - 1)" : "(" + to + ")0";
  const std::string low = is_signed(result) ? "-" + beyond : "0.0";
  return "(" + a + " != " + a + " ? (" + to + ")0 : " + a + " >= " + beyond + " ? " + all_ones + " : " + a +
         " <= " + low + " ? " + least + " : (" + to + ")" + a + ")";
}

// Rounds a half-precision register to its type.
std::string rounded(const std::string& text, uint32_t dtype) {
  if (dtype == HX_F16) return "from_f16(to_f16(" + text + "))";
  if (dtype == HX_BF16) return "from_bf16(to_bf16(" + text + "))";
  return text;
}
std::string loaded(const std::string& text, uint32_t dtype) {
  return dtype == HX_F16 ? "from_f16(" + text + ")" : dtype == HX_BF16 ? "from_bf16(" + text + ")" : text;
}
std::string stored(const std::string& text, uint32_t dtype) {
  return dtype == HX_F16 ? "to_f16(" + text + ")" : dtype == HX_BF16 ? "to_bf16(" + text + ")" : text;
}

class Writer {
 public:
  Writer(const hx_call_site& site, ChainSource& out) : site_(site), out_(out) {
    out_.parameters.assign(1, static_cast<uint32_t>(count(site.outputs[0])));
  }

  void read(uint32_t i) {
    const hx_type &x = site_.inputs[i], &y = site_.outputs[0];
    const std::string k = std::to_string(i), type = stored_name(x.dtype);
    const bool same = count(x) == count(y);
    out_.same.push_back(same);
    types_.push_back(x.dtype);
    head_ += "const " + type + "* b" + k + ", ";
    std::string element = "b" + k + "[0]";
    if (same) {
      loads_ += "  Pack<" + type + "> x" + k + ";\n  load(x" + k + ", b" + k + ", first, some);\n";
      element = "x" + k + ".x[j]";
    } else if (count(x) != 1) {
      walk(x, y, k);
      element = "b" + k + "[at" + k + "]";
    }
    body_ += "    const " + std::string(computed_name(x.dtype)) + " r" + k + " = " + loaded(element, x.dtype) + ";\n";
  }

  bool compute(const std::string& op, uint32_t a, uint32_t b, uint32_t c, uint32_t result) {
    const auto name = [&](uint32_t r) { return r < types_.size() ? "r" + std::to_string(r) : std::string("0"); };
    const uint32_t operands = types_.at(a);
    const std::string text =
        op == "cast"
            ? cast_text(name(a), operands, result)
            : kernels::scalar_text(op, kernels::kind_of(operands),
                                   {name(a), name(b), name(c), computed_name(operands), kernels::word_name(operands)});
    if (text.empty()) return declined("has no " + op + " of these types");
    body_ += "    const " + std::string(computed_name(result)) + " r" + std::to_string(types_.size()) + " = " +
             rounded(text, result) + ";\n";
    types_.push_back(result);
    return true;
  }

  void finish(const std::vector<uint32_t>& results) {
    std::string stores;
    for (size_t i = 0; i < results.size(); ++i) {
      const uint32_t dtype = types_.at(results[i]);
      const std::string k = std::to_string(i), type = stored_name(dtype);
      head_ += type + "* o" + k + ", ";
      loads_ += "  Pack<" + type + "> y" + k + ";\n";
      body_ += "    y" + k + ".x[j] = " + stored("r" + std::to_string(results[i]), dtype) + ";\n";
      stores += "  store(o" + k + ", y" + k + ", first, some);\n";
    }
    out_.text = kPrelude + std::string(kernels::kScalarMacros) + "struct Parameters { uint v[" +
                std::to_string(out_.parameters.size()) + "]; };\nextern \"C\" __global__ void chain(" + head_ +
                "Parameters p) {\n  const uint first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;\n  if (first >= "
                "p.v[0]) return;\n"
                "  const uint some = p.v[0] - first < 4 ? p.v[0] - first : 4;\n" +
                loads_ + "#pragma unroll\n  for (uint j = 0; j < 4; ++j) {\n    if (j >= some) break;\n" + body_ +
                "  }\n" + stores + "}\n";
  }

 private:
  // Emits "at2": the offset of a broadcast input for element first + j.
  void walk(const hx_type& x, const hx_type& y, const std::string& k) {
    Walk w{dims(y), {kernels::broadcast_strides(x, y)}, {0}};
    w.join();
    body_ += "    uint at" + k + " = 0;\n    { uint rest = first + j;\n";
    for (size_t i = w.sizes.size(); i-- > 1;) {
      const std::string size = parameter(w.sizes[i]);
      body_ += "      { const uint q = rest / " + size + "; at" + k + " += (rest - q * " + size + ") * " +
               parameter(w.strides[0][i]) + "; rest = q; }\n";
    }
    body_ += "      at" + k + " += rest * " + parameter(w.strides[0][0]) + "; }\n";
  }
  std::string parameter(int64_t value) {
    out_.parameters.push_back(static_cast<uint32_t>(value));
    return "p.v[" + std::to_string(out_.parameters.size() - 1) + "]";
  }

  const hx_call_site& site_;
  ChainSource& out_;
  std::vector<uint32_t> types_;  // by register
  std::string head_, loads_, body_;
};

}  // namespace

bool chain_source(const hx_call_site& site, ChainSource& out) {
  Writer writer(site, out);
  for (uint32_t i = 0; i < site.n_inputs; ++i) writer.read(i);
  if (std::string_view(site.op) != "fused_elementwise") {
    if (!writer.compute(site.op, 0, 1, 2, site.outputs[0].dtype)) return false;
    writer.finish({site.n_inputs});
    return true;
  }
  for (uint32_t i = 0; i < site.n_chain; ++i) {
    const hx_scalar_op& o = site.chain[i];
    if (!writer.compute(o.op, o.a, o.b, o.c, o.dtype)) return false;
  }
  writer.finish({site.chain_outputs, site.chain_outputs + site.n_outputs});
  return true;
}

}  // namespace harmonics::cuda
