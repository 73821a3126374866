#include "product.hpp"

#include <harmonics/error.hpp>

namespace harmonics::cuda {
namespace {

constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;
constexpr uint32_t kAlignment = 64;  // guaranteed by the host

// An operand as cuBLASLt sees it: column-major, or transposed.
struct Matrix {
  int64_t rows, columns, leading;
  bool transposed;
};

// Sets m to the transpose of [outer, inner] with these strides: `inner` becomes rows. Returns false if neither axis is
// contiguous.
bool matrix_of(int64_t outer, int64_t inner, int64_t outer_stride, int64_t inner_stride, Matrix& m) {
  if ((inner_stride == 1 || inner == 1) && (outer_stride >= inner || outer == 1)) {
    m = {inner, outer, outer == 1 ? inner : outer_stride, false};
    return true;
  }
  if ((outer_stride == 1 || outer == 1) && (inner_stride >= outer || inner == 1)) {
    m = {outer, inner, inner == 1 ? outer : inner_stride, true};
    return true;
  }
  return false;
}

int data_type(uint32_t dtype) {
  switch (dtype) {
    case HX_F32:
      return lt::kF32;
    case HX_F64:
      return lt::kF64;
    case HX_F16:
      return lt::kF16;
    case HX_BF16:
      return lt::kBf16;
    default:
      return -1;
  }
}
int compute_type(const Product& p) {
  return p.dtype == HX_F64                                   ? lt::kComputeF64
         : p.dtype == HX_F32 && p.rounding == Rounding::tf32 ? lt::kComputeF32Tf32
                                                             : lt::kComputeF32;
}
int operand_type(const Product& p) {
  return p.rounding == Rounding::bf16 ? lt::kBf16 : p.rounding == Rounding::fp8 ? lt::kE4m3 : data_type(p.dtype);
}

class LtStep final : public Step {
 public:
  LtStep(Machine& machine, const LtFunctions& functions, const Product& product, uint32_t workspace_buffer)
      : machine_(machine), f_(functions), p_(product), workspace_{workspace_buffer} {}
  ~LtStep() override {
    for (const lt::Description m : {a_, b_, c_})
      if (m) f_.matrix_destroy(m);
    if (product_) f_.product_destroy(product_);
  }

  // Returns "", or the reason why the product is unsupported.
  std::string prepare() {
    Matrix a, b;
    if (!matrix_of(p_.m, p_.k, p_.a_row, p_.a_column, a) || !matrix_of(p_.k, p_.n, p_.b_row, p_.b_column, b))
      return "an operand is contiguous along neither side";
    const int type = data_type(p_.dtype);
    if (type < 0) return "computes floats";
    const int scale = p_.dtype == HX_F64 ? lt::kF64 : lt::kF32;
    // Operands are swapped: c' = b' a'.
    const uint32_t epilogue = p_.sum != Product::Sum::none ? (p_.sum == Product::Sum::b ? lt::kSumOfA : lt::kSumOfB)
                              : p_.has_bias                ? (p_.relu ? lt::kReluBias : lt::kBias)
                              : p_.relu                    ? lt::kRelu
                                                           : lt::kPlain;
    const int32_t first = b.transposed ? lt::kTransposed : lt::kAsIs,
                  second = a.transposed ? lt::kTransposed : lt::kAsIs;
    const bool described = f_.product_create(&product_, compute_type(p_), scale) == 0 &&
                           set_product(lt::kTransposeA, first) && set_product(lt::kTransposeB, second) &&
                           set_product(lt::kEpilogue, epilogue) && describe(b_, operand_type(p_), b, p_.b_batch) &&
                           describe(a_, operand_type(p_), a, p_.a_batch) &&
                           describe(c_, type, {p_.n, p_.m, p_.n, false}, p_.m * p_.n);
    if (!described) return "cuBLASLt does not take the description";
    return choose();
  }
  uint64_t workspace() const { return chosen_.workspace; }

  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    if (p_.has_bias || p_.sum != Product::Sum::none) tell(lt::kBiasPointer, p_.bias.at(places), bias_);
    if (p_.rounding == Rounding::fp8) {
      tell(lt::kScaleA, p_.scale_b.at(places), scales_[0]);  // operands are swapped: A is b
      tell(lt::kScaleB, p_.scale_a.at(places), scales_[1]);
    }
    machine.check(machine.driver().become_current(), "become the device of a thread");
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = p_.dtype == HX_F64;
    void* c = p_.c.at(places);
    const int code = f_.product(
        machine.lt_handle(), product_, wide ? static_cast<const void*>(&wide_one) : &one, p_.b.at(places), b_,
        p_.a.at(places), a_, wide ? static_cast<const void*>(&wide_zero) : &zero, c, c_, c, c_, &chosen_.algorithm,
        chosen_.workspace ? workspace_at(workspace_, places) : nullptr, chosen_.workspace, stream);
    if (code != 0) throw Error(ErrorKind::Device, std::string("cuBLASLt could not multiply: ") + f_.status_text(code));
  }

  void place_workspace(uint64_t offset) { workspace_.offset = offset; }

 private:
  void tell(int attribute, const void* address, const void*& told) const {
    if (address == told) return;
    f_.product_set(product_, attribute, &address, sizeof address);
    told = address;
  }
  template <typename T>
  bool set_product(int attribute, T value) {
    return f_.product_set(product_, attribute, &value, sizeof value) == 0;
  }
  bool describe(lt::Description& to, int type, const Matrix& m, int64_t batch_stride) const {
    const auto batch = static_cast<int32_t>(p_.batch);
    return f_.matrix_create(&to, type, static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.columns), m.leading) ==
               0 &&
           (batch == 1 || (f_.matrix_set(to, lt::kBatchCount, &batch, sizeof batch) == 0 &&
                           f_.matrix_set(to, lt::kBatchStride, &batch_stride, sizeof batch_stride) == 0));
  }
  // Selects the algorithm, once per call site. It depends only on the shape, so that results are reproducible.
  std::string choose() {
    machine_.check(machine_.driver().become_current(), "become the device of a thread");
    lt::Description preference = nullptr;
    if (f_.preference_create(&preference) != 0) return "cuBLASLt has no memory";
    bool set = f_.preference_set(preference, lt::kMostWorkspace, &kMostWorkspace, sizeof kMostWorkspace) == 0;
    for (const int which : {lt::kLeastAlignmentA, lt::kLeastAlignmentB, lt::kLeastAlignmentC, lt::kLeastAlignmentD})
      set = set && f_.preference_set(preference, which, &kAlignment, sizeof kAlignment) == 0;
    int found = 0;
    const int code =
        set ? f_.heuristic(machine_.lt_handle(), product_, b_, a_, c_, c_, preference, 1, &chosen_, &found) : 0;
    f_.preference_destroy(preference);
    if (!set) return "cuBLASLt does not take the preference";
    if (code != 0 || found < 1 || chosen_.state != 0)
      return std::string("cuBLASLt knows no way: ") + (code ? f_.status_text(code) : "none found");
    return "";
  }

  Machine& machine_;
  const LtFunctions& f_;
  Product p_;
  Operand workspace_;
  lt::Description product_ = nullptr, a_ = nullptr, b_ = nullptr, c_ = nullptr;
  lt::Heuristic chosen_{};
  mutable const void *bias_ = nullptr, *scales_[2] = {};  // current pointers in the descriptor
};

}  // namespace

std::unique_ptr<Step> lt_step(Machine& machine, const Product& product, uint64_t& workspace, uint32_t workspace_buffer,
                              std::string& why) {
  const LtFunctions* functions = machine.lt(why);
  if (!functions) return nullptr;
  auto step = std::make_unique<LtStep>(machine, *functions, product, workspace_buffer);
  why = step->prepare();
  if (!why.empty()) return nullptr;
  step->place_workspace(workspace);
  if (step->workspace()) workspace += workspace_bytes(step->workspace());
  return step;
}

}  // namespace harmonics::cuda
