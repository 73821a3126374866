#include "chain_source.hpp"

#include "kernels/shared/scalar_texts.hpp"

namespace harmonics::cuda {
namespace {

// Prelude of generated programs. HM_EMULATED: compiled for the CPU, with conversions defined elsewhere.
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

// Arithmetic type and storage type of an element.
const char* computed_name(uint32_t dtype) { return dtype == HX_I8 ? "schar" : kernels::type_name(dtype); }
const char* stored_name(uint32_t dtype) { return is_half(dtype) ? "ushort" : computed_name(dtype); }

// Cast to bool: not zero. Cast from floats to integers: truncates and saturates; NaN gives 0.
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

// Rounds a register of 16-bit floats to its type.
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

// Accumulator type, initial value and combination of two terms. In max and min, NaN is the result if any term is NaN;
// of equal terms the first is kept.
struct SumTexts {
  std::string type, start, joined;
  SumTexts(std::string_view rule, uint32_t dtype) {
    const bool real = is_float(dtype), largest = rule == "reduce_max";
    type = dtype == HX_F64 ? "double" : real ? "float" : "long";
    if (rule == "reduce_sum" || rule == "reduce_prod") {
      start = rule == "reduce_sum" ? "0" : "1";
      joined = rule == "reduce_sum" ? "a + b" : "a * b";
    } else {
      start = real      ? (largest ? "-INFINITY" : "INFINITY")
              : largest ? "-0x7fffffffffffffffl - 1"
                        : "0x7fffffffffffffffl";
      joined = std::string("a == a && (b != b || b ") + (largest ? ">" : "<") + " a) ? b : a";
    }
  }
};

class Writer {
 public:
  // Inputs are broadcast to `whole`.
  Writer(const hx_call_site& site, const hx_type& whole, ChainSource& out) : site_(site), whole_(whole), out_(out) {}

  void read(uint32_t i) {
    const hx_type &x = site_.inputs[i], &y = whole_;
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
      Walk w{dims(y), {kernels::broadcast_strides(x, y)}, {0}};
      w.join();
      body_ += walk("at" + k, "first + j", w);
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
  uint32_t type(uint32_t r) const { return types_.at(r); }

  void store(const std::vector<uint32_t>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const uint32_t dtype = types_.at(results[i]);
      const std::string k = std::to_string(i), type = stored_name(dtype);
      head_ += type + "* o" + k + ", ";
      loads_ += "  Pack<" + type + "> y" + k + ";\n";
      body_ += "    y" + k + ".x[j] = " + stored("r" + std::to_string(results[i]), dtype) + ";\n";
      stores_ += "  store(o" + k + ", y" + k + ", first, some);\n";
    }
  }

  void finish() {
    out_.parameters[0] = static_cast<uint32_t>(count(whole_));
    put("  const uint first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;\n  if (first >= p.v[0]) return;\n"
        "  const uint some = p.v[0] - first < 4 ? p.v[0] - first : 4;\n" +
        elements(4));
  }

  void reduce(const ChainReduction& r, uint32_t term) {
    const SumTexts sum(r.rule, types_.at(term));
    const std::string type = stored_name(r.to), lanes = std::to_string(r.lanes);
    head_ += type + "* to, ";
    body_ += "    sum = joined(sum, (" + sum.type + ")r" + std::to_string(term) + ");\n";
    out_.parameters[0] = r.results;
    const std::string terms = parameter(r.terms), chunks = parameter(r.chunks), chunk = parameter(r.chunk);
    std::string text = "  typedef " + sum.type + " S;\n";
    const std::string range = "  const uint begin = chunk * " + chunk + ", end = !exists ? begin : begin + " + chunk +
                              " < " + terms + " ? begin + " + chunk + " : " + terms + ";\n" +
                              walk("from", "result", r.kept) + "  S sum = " + sum.start + ";\n";
    const auto one_by_one = [&](const std::string& loop) {
      return loop + " {\n" + walk("at", "t", r.reduced) + "  const uint first = from + at, some = 1;\n" + elements(1) +
             "  }\n";
    };
    const std::string result = stored("sum", r.to);
    if (r.lanes == 0) {
      text +=
          "  const uint result = blockIdx.x * blockDim.x + threadIdx.x, chunk = blockIdx.y;\n"
          "  const bool exists = result < p.v[0];\n" +
          range + one_by_one("#pragma unroll 4\n  for (uint t = begin; t < end; ++t)") +
          "  if (exists) to[chunk * p.v[0] + result] = (" + type + ")" + result + ";\n";
    } else {
      text += "  const uint lane = threadIdx.x % " + lanes + ", number = blockIdx.x * (blockDim.x / " + lanes +
              ") + threadIdx.x / " + lanes + ";\n  const bool exists = number < p.v[0] * " + chunks +
              ";\n  const uint result = exists ? number / " + chunks + " : 0, chunk = exists ? number % " + chunks +
              " : 0;\n" + range + "  uint t = begin;\n";
      if (r.reduced.sizes.size() == 1 && r.reduced.strides[0][0] == 1)
        text +=
            "  if ((from + t) % 4 == 0) {\n  const uint packs = (end - t) / 4, rounds = lane < packs ? (packs - lane - "
            "1) / " +
            lanes +
            " + 1 : 0;\n#pragma unroll 2\n  for (uint i = 0; i < rounds; ++i) {\n"
            "  const uint first = from + t + (lane + i * " +
            lanes + ") * 4, some = 4;\n" + elements(4) + "  }\n  t += packs * 4;\n  }\n";
      text += one_by_one("  for (t += lane; t < end; t += " + lanes + ")");
      text +=
          "  for (uint apart = 16; apart > 0; apart /= 2) sum = joined(sum, __shfl_xor_sync(0xffffffffu, sum, "
          "apart));\n";
      if (r.lanes > 32)
        text += "  __shared__ S parts[" + lanes +
                " / 32];\n  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;\n"
                "  __syncthreads();\n  sum = parts[0];\n  for (uint w = 1; w < " +
                lanes + " / 32; ++w) sum = joined(sum, parts[w]);\n";
      text += "  if (exists && lane == 0) to[number] = (" + type + ")" + result + ";\n";
    }
    put(text, "__device__ inline " + sum.type + " joined(" + sum.type + " a, " + sum.type + " b) { return " +
                  sum.joined + "; }\n");
  }

 private:
  // Returns text that computes and stores elements [first, first + some), some <= most.
  std::string elements(uint32_t most) const {
    const std::string n = std::to_string(most);
    return loads_ + "#pragma unroll\n  for (uint j = 0; j < " + n + "; ++j) {\n    if (j >= some) break;\n" + body_ +
           "  }\n" + stores_;
  }
  void put(const std::string& text, const std::string& functions = "") {
    out_.text = kPrelude + std::string(kernels::kScalarMacros) + "struct Parameters { uint v[" +
                std::to_string(out_.parameters.size()) + "]; };\n" + functions + "extern \"C\" __global__ void chain(" +
                head_ + "Parameters p) {\n" + text + "}\n";
  }
  // Returns text that defines `at`, the offset of element `number` of a walk.
  std::string walk(const std::string& at, const std::string& number, const Walk& w) {
    std::string text = "    uint " + at + " = 0;\n";
    if (w.sizes.empty()) return text;
    text += "    { uint rest = " + number + ";\n";
    for (size_t i = w.sizes.size(); i-- > 1;) {
      const std::string size = parameter(w.sizes[i]);
      text += "      { const uint q = rest / " + size + "; " + at + " += (rest - q * " + size + ") * " +
              parameter(w.strides[0][i]) + "; rest = q; }\n";
    }
    return text + "      " + at + " += rest * " + parameter(w.strides[0][0]) + "; }\n";
  }
  std::string parameter(int64_t value) {
    out_.parameters.push_back(static_cast<uint32_t>(value));
    return "p.v[" + std::to_string(out_.parameters.size() - 1) + "]";
  }

  const hx_call_site& site_;
  const hx_type whole_;
  ChainSource& out_;
  std::vector<uint32_t> types_;  // by register
  std::string head_, loads_, body_, stores_;
};

}  // namespace

bool chain_source(const hx_call_site& site, ChainSource& out) {
  out.parameters.assign(1, 0);
  Writer writer(site, site.outputs[0], out);
  for (uint32_t i = 0; i < site.n_inputs; ++i) writer.read(i);
  std::vector<uint32_t> results{site.n_inputs};
  if (std::string_view(site.op) != "fused_elementwise") {
    if (!writer.compute(site.op, 0, 1, 2, site.outputs[0].dtype)) return false;
  } else {
    for (uint32_t i = 0; i < site.n_chain; ++i) {
      const hx_scalar_op& o = site.chain[i];
      if (!writer.compute(o.op, o.a, o.b, o.c, o.dtype)) return false;
    }
    results.assign(site.chain_outputs, site.chain_outputs + site.n_outputs);
  }
  writer.store(results);
  writer.finish();
  return true;
}

bool reduced_chain_source(const hx_call_site& site, const ChainReduction& reduction, ChainSource& out) {
  out.parameters.assign(1, 0);
  Writer writer(site, reduction.whole, out);
  for (uint32_t i = 0; i < site.n_inputs; ++i) writer.read(i);
  for (uint32_t i = 0; i < site.n_chain; ++i) {
    const hx_scalar_op& o = site.chain[i];
    // At call sites only casts and comparisons have a result type; other operations have the type of their operands.
    const bool says = o.dtype == HX_BOOL || std::string_view(o.op) == "cast";
    const uint32_t type = says ? o.dtype : writer.type(std::string_view(o.op) == "select" ? o.b : o.a);
    if (!writer.compute(o.op, o.a, o.b, o.c, type)) return false;
  }
  const uint32_t last = site.n_outputs - 1, term = site.chain_outputs[last];
  if (writer.type(term) != site.outputs[last].dtype) return declined("reduces results of the chain only");
  writer.store({site.chain_outputs, site.chain_outputs + last});
  writer.reduce(reduction, term);
  return true;
}

}  // namespace harmonics::cuda
