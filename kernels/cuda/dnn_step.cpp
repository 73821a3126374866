// A convolution as a graph for cuDNN: an engine that its heuristics offer and whose numbers are as they should be, a plan, and the
// addresses of a run.
#include <array>
#include <optional>

#include <harmonics/error.hpp>

#include "dnn_description.hpp"

namespace harmonics::cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{256} << 20;
constexpr int64_t kMostNotes = 64;

class DnnStep final : public Step {
 public:
  DnnStep(Machine& machine, const DnnFunctions& functions, Convolution convolution, uint32_t workspace_buffer)
      : machine_(machine), f_(functions), c_(std::move(convolution)), workspace_{workspace_buffer} {}

  // "": it can be done.
  std::string prepare() {
    parts_ = describe(f_, c_);
    const dnn::Description operation = parts_.back().get();
    parts_.emplace_back(f_, dnn::kGraph).handle(dnn::kGraphHandle, machine_.dnn_handle()).set(dnn::kGraphOperations, dnn::kDescriptions, 1, &operation).finalize();
    for (const Descriptor& part : parts_)
      if (!part.is_good()) return std::string("cuDNN does not take the description: ") + f_.status_text(part.code());
    return choose();
  }
  uint64_t workspace() const { return static_cast<uint64_t>(bytes_); }
  void place_workspace(uint64_t offset) { workspace_.offset = offset; }

  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    const Addresses at{c_.x_place.at(places), c_.weight_place.at(places), c_.y_place.at(places), bytes_ ? workspace_.at(places) : nullptr};
    machine.check(machine.driver().become_current(), "become the device of a thread");
    const auto lock = machine.lock_dnn();  // the handle has one stream at a time
    if (!pack_ || at != packed_) {
      pack_.emplace(f_, dnn::kPack);
      check(pack_->set(dnn::kPackAddresses, dnn::kAddresses, 3, at.data())
                .numbers(dnn::kPackNumbers, {dnn_numbers::kX, dnn_numbers::kWeight, dnn_numbers::kY})
                .set(dnn::kPackWorkspace, dnn::kAddresses, 1, &at[3])
                .finalize()
                .code());
      packed_ = at;
    }
    check(f_.set_stream(machine.dnn_handle(), stream));
    check(f_.execute(machine.dnn_handle(), plan_->get(), pack_->get()));
  }

 private:
  using Addresses = std::array<void*, 4>;  // of x, weight, y and the workspace

  // The first engine offered whose numbers are as they should be and whose workspace is not too large. The answer depends on the shape
  // alone, so that results stay the same.
  std::string choose() {
    const char* why = "none offered";
    for (const int mode : {dnn::kBest, dnn::kFallback}) {
      Descriptor heuristics(f_, dnn::kHeuristics);
      heuristics.link(dnn::kHeuristicsGraph, parts_.back()).choice(dnn::kHeuristicsMode, dnn::kHeuristicModes, mode).finalize();
      int64_t offered = 0;
      if (!heuristics.is_good() || f_.get(heuristics.get(), dnn::kHeuristicsResults, dnn::kDescriptions, 0, &offered, nullptr) != 0) continue;
      std::vector<Descriptor> choices;
      std::vector<dnn::Description> raw;
      for (int64_t i = 0; i < offered; ++i) raw.push_back(choices.emplace_back(f_, dnn::kEngineChoice).get());
      int64_t given = 0;
      if (offered == 0 || f_.get(heuristics.get(), dnn::kHeuristicsResults, dnn::kDescriptions, offered, &given, raw.data()) != 0) continue;
      for (size_t i = 0; i < static_cast<size_t>(std::min(given, offered)); ++i) {
        if (!is_exact(choices[i])) {
          why = "engines that round or vary";
          continue;
        }
        Descriptor plan(f_, dnn::kPlan);
        plan.handle(dnn::kPlanHandle, machine_.dnn_handle()).link(dnn::kPlanChoice, choices[i]).finalize();
        int64_t bytes = 0, n = 0;
        if (!plan.is_good() || f_.get(plan.get(), dnn::kPlanWorkspace, dnn::kInt64s, 1, &n, &bytes) != 0 || bytes > kMostWorkspace) {
          why = "engines that do not fit";
          continue;
        }
        bytes_ = bytes;
        plan_.emplace(std::move(plan));
        parts_.push_back(std::move(choices[i]));
        return "";
      }
    }
    return std::string("cuDNN knows no way: ") + why;
  }

  // A run gives the bits of the run before it. Sums of products in f32 stay that, unless rounding is allowed: tensor cores take f32 as
  // TF32, and transforms lose digits.
  bool is_exact(const Descriptor& choice) const {
    Descriptor engine(f_, dnn::kEngine);
    dnn::Description raw = engine.get();
    int64_t n = 0;
    if (!engine.is_good() || f_.get(choice.get(), dnn::kChoiceEngine, dnn::kDescriptions, 1, &n, &raw) != 0) return false;
    int32_t notes[kMostNotes] = {};
    if (f_.get(raw, dnn::kEngineNotes, dnn::kNotes, kMostNotes, &n, notes) != 0) return false;
    return std::none_of(notes, notes + std::min(n, kMostNotes), [&](int32_t note) {
      if (note == dnn::kVaries || note == dnn::kRoundsInputs || note == dnn::kRoundsSums) return true;
      return !c_.may_round && (note == dnn::kTensorCores || note == dnn::kFourier || (note >= dnn::kWinograd && note <= dnn::kWinogradLargest));
    });
  }

  void check(int code) const {
    if (code != 0) throw Error(ErrorKind::Device, std::string("cuDNN could not convolve: ") + f_.status_text(code));
  }

  Machine& machine_;
  const DnnFunctions& f_;
  Convolution c_;
  Operand workspace_;
  int64_t bytes_ = 0;
  std::vector<Descriptor> parts_;
  std::optional<Descriptor> plan_;
  // Addresses, as they were last told; under the machine's lock.
  mutable std::optional<Descriptor> pack_;
  mutable Addresses packed_{};
};

}  // namespace

std::unique_ptr<Step> dnn_step(Machine& machine, const Convolution& convolution, uint64_t& workspace, uint32_t workspace_buffer, std::string& why) {
  const DnnFunctions* functions = machine.dnn(why);
  if (!functions) return nullptr;
  auto step = std::make_unique<DnnStep>(machine, *functions, convolution, workspace_buffer);
  {
    const auto lock = machine.lock_dnn();
    why = step->prepare();
  }
  if (!why.empty()) return nullptr;
  step->place_workspace(workspace);
  workspace += (step->workspace() + 255) / 256 * 256;
  return step;
}

}  // namespace harmonics::cuda
