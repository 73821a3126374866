// Runs a cuDNN plan.
#include <array>
#include <optional>

#include <harmonics/error.hpp>

#include "dnn_description.hpp"

namespace harmonics::cuda {
namespace {

// A tensor id with its operand, or with the value of its only element.
struct Told {
  int64_t number;
  Operand place;
};
struct Constant {
  int64_t number;
  uint32_t bits;
};
template <typename T>
uint32_t bits_of(T value) {
  static_assert(sizeof value == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

class DnnStep final : public Step {
 public:
  DnnStep(Machine& machine, const DnnFunctions& functions, DnnPlan plan, std::vector<Told> told,
          std::vector<Constant> constants, Operand workspace)
      : machine_(machine),
        f_(functions),
        plan_(std::move(plan)),
        told_(std::move(told)),
        constants_(std::move(constants)),
        workspace_(workspace) {
    for (const Told& t : told_) numbers_.push_back(t.number);
    for (const Constant& c : constants_) numbers_.push_back(c.number);
  }

  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    Addresses at{};
    size_t n = 0;
    for (const Told& t : told_) at[n++] = t.place.at(places);
    for (const Constant& c : constants_) at[n++] = const_cast<uint32_t*>(&c.bits);
    at[n] = plan_.workspace ? workspace_at(workspace_, places) : nullptr;
    machine.check(machine.driver().become_current(), "become the device of a thread");
    const auto lock = machine.lock_dnn();  // the handle has only one stream
    if (!pack_ || at != packed_) {
      pack_.emplace(f_, dnn::kPack);
      check(pack_->set(dnn::kPackAddresses, dnn::kAddresses, static_cast<int64_t>(n), at.data())
                .numbers(dnn::kPackNumbers, numbers_)
                .set(dnn::kPackWorkspace, dnn::kAddresses, 1, &at[n])
                .finalize()
                .code());
      packed_ = at;
    }
    check(f_.set_stream(machine.dnn_handle(), stream));
    check(f_.execute(machine.dnn_handle(), plan_.parts.back().get(), pack_->get()));
  }

 private:
  using Addresses = std::array<void*, 10>;  // in the order of the ids; the workspace last

  void check(int code) const {
    if (code != 0) throw Error(ErrorKind::Device, std::string("cuDNN could not run its plan: ") + f_.status_text(code));
  }

  Machine& machine_;
  const DnnFunctions& f_;
  DnnPlan plan_;
  std::vector<Told> told_;
  std::vector<Constant> constants_;
  std::vector<int64_t> numbers_;
  Operand workspace_;
  // Addresses of the last run; guarded by the machine's lock.
  mutable std::optional<Descriptor> pack_;
  mutable Addresses packed_{};
};

std::unique_ptr<Step> step_of(const Site& site, Work& work, const DnnFunctions& f, DnnPlan plan, std::vector<Told> told,
                              std::vector<Constant> constants = {}) {
  if (plan.parts.empty()) return nullptr;
  const Operand workspace = work.take_workspace(site, plan.workspace ? workspace_bytes(plan.workspace) : 0);
  return std::make_unique<DnnStep>(site.machine(), f, std::move(plan), std::move(told), std::move(constants),
                                   workspace);
}

}  // namespace

std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Convolution& c, std::string& why) {
  const DnnFunctions* f = site.machine().dnn(why);
  if (!f) return nullptr;
  const auto lock = site.machine().lock_dnn();
  const bool two_bytes = c.dtype == HX_F16 || c.dtype == HX_BF16;  // tensor cores do not round these
  DnnPlan plan =
      plan_operation(*f, {site.machine().dnn_handle()}, describe(*f, c), {c.may_round || two_bytes, c.may_round}, why);
  return step_of(
      site, work, *f, std::move(plan),
      {{dnn_numbers::kX, c.x_operand}, {dnn_numbers::kWeight, c.weight_operand}, {dnn_numbers::kY, c.y_operand}});
}

std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Attention& a, std::string& why) {
  const DnnFunctions* f = site.machine().dnn(why);
  if (!f) return nullptr;
  constexpr size_t kAttends = 92100;
  if (const size_t version = f->version(); version < kAttends) {
    why = "cuDNN is older than 9.21 (" + std::to_string(version) + "), which attends in one operation";
    return nullptr;
  }
  const auto lock = site.machine().lock_dnn();
  const dnn::Handle handle = site.machine().dnn_handle();
  DnnPlan plan = plan_operation(*f, {handle}, describe(*f, a, handle), {true, false}, why);
  std::vector<Constant> constants{{dnn_numbers::kScale, bits_of(a.scale)}};
  if (a.is_causal) {
    constants.push_back({dnn_numbers::kReach, bits_of(static_cast<int32_t>(a.keys - a.queries))});
    constants.push_back({dnn_numbers::kFill, bits_of(-std::numeric_limits<float>::infinity())});
  }
  return step_of(site, work, *f, std::move(plan),
                 {{dnn_numbers::kQ, a.q},
                  {dnn_numbers::kK, a.k},
                  {dnn_numbers::kV, a.v},
                  {dnn_numbers::kOut, a.out},
                  {dnn_numbers::kLse, a.lse}},
                 std::move(constants));
}

}  // namespace harmonics::cuda
