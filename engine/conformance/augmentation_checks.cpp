// Checks of augmentations: single samples with their random draws. Results are computed in memory of different contents
// to detect unwritten bytes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/core.h>
#include <harmonics/augmentation_abi.h>
#include <harmonics/ops.hpp>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/conformance/kernel_memory.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;
using Bytes = std::vector<unsigned char>;

constexpr uint64_t kRecords = 50;
// Scalars, rows, grey and colour images, symbols.
const std::vector<TensorType> kAugmentedTypes = {
    {DType::F32, {7}},        {DType::F32, {3, 5}},     {DType::F32, {13, 11}},    {DType::U8, {13, 11}},
    {DType::U8, {13, 11, 3}}, {DType::U8, {3, 13, 11}}, {DType::F32, {1, 13, 11}}, {DType::I64, {9}}};

// An augmentation bound to a sample type and arguments.
class Tried {
 public:
  Tried(const ItemPtr& item, const AttributeMap& arguments, const TensorType& type, uint64_t seed)
      : item_(item),
        arguments_(arguments),
        view_(arguments_),
        sample_(to_c(type)),
        result_(result_of()),
        numbers_(is_float(type.dtype) ? random_tensor(type.shape, seed, 0, 1, type.dtype)
                                      : cast(random_indices(type.shape, seed, 200), type.dtype)) {
    if (result().shape.count() <= 0)
      throw Error(ErrorKind::Plugin, fmt::format("{} announces the result {}", spoken_name(*item_), result().str()));
  }
  Tried(const Tried&) = delete;
  Tried& operator=(const Tried&) = delete;

  TensorType sample() const { return from_c(sample_); }
  TensorType result() const { return from_c(result_); }
  std::string str() const { return sample().str() + (sample() == result() ? "" : " -> " + result().str()); }
  bool says_so_again() const { return from_c(result_of()) == result(); }

  // Returns the result. Its memory is initialised with `fill`. `wrong` is set if other memory was written.
  Bytes operator()(const hx_draw& draw, unsigned char fill = 0, std::string* wrong = nullptr) const {
    GuardedBytes from(sample().bytes(), 0), to(result().bytes(), fill);
    std::memcpy(from.data(), numbers_.bytes(), from.size());
    const hx_status status = item_->table<hx_augmentation_vt>().apply(item_->self, view_.get(), &sample_, from.data(),
                                                                      &draw, &result_, to.data());
    if (status != HX_OK) throw plugin_error(*item_, status);
    if (wrong && !to.intact()) *wrong = "it writes outside the result";
    if (wrong && (!from.intact() || std::memcmp(from.data(), numbers_.bytes(), from.size()) != 0))
      *wrong = "it writes into the sample it is given";
    return {to.data(), to.data() + to.size()};
  }

 private:
  hx_type result_of() const {
    hx_type result = sample_;
    const auto& table = item_->table<hx_augmentation_vt>();
    if (!HM_TABLE_HAS(table, result_type)) return result;
    if (const hx_status status = table.result_type(item_->self, view_.get(), &sample_, &result); status != HX_OK)
      throw plugin_error(*item_, status);
    return result;
  }

  ItemPtr item_;
  AttributeMap arguments_;
  AttributeView view_;
  hx_type sample_, result_;
  HTensor numbers_;
};
using TriedPtr = std::unique_ptr<const Tried>;

hx_draw draw_of(uint64_t record, uint64_t key = 0x1234567890abcdef, uint32_t ordinal = 0) {
  return {sizeof(hx_draw), ordinal, key, record};
}

std::vector<TriedPtr> taken(const ItemPtr& item, const AttributeMap& arguments, uint64_t seed,
                            std::optional<Error>* refused = nullptr) {
  std::vector<TriedPtr> all;
  for (const TensorType& type : kAugmentedTypes) try {
      auto tried = std::make_unique<const Tried>(item, arguments, type, seed);
      (*tried)(draw_of(0));
      all.push_back(std::move(tried));
    } catch (const Error& e) {
      if (refused && !*refused) *refused = e;
    }
  return all;
}

Finding writes_its_result(const std::vector<TriedPtr>& all) {
  for (const TriedPtr& t : all) {
    if (!t->says_so_again())
      return {Outcome::Failed, fmt::format("for {} a second call announces another result", t->sample().str()),
              "result_type() depends on the sample's type and the arguments alone"};
    for (uint64_t record = 0; record < kRecords; ++record) {
      std::string wrong;
      const Bytes zeros = (*t)(draw_of(record), 0, &wrong), ones = (*t)(draw_of(record), 0xFF, &wrong);
      if (!wrong.empty())
        return {Outcome::Failed, fmt::format("for {} {}", t->str(), wrong),
                "read only the given sample and write exactly the numbers of the result"};
      const bool keeps_something = (*t)(draw_of(record)) != zeros;  // otherwise reported below
      if (zeros != ones && !keeps_something) {
        const auto at = std::mismatch(zeros.begin(), zeros.end(), ones.begin()).first - zeros.begin();
        return {
            Outcome::Failed,
            fmt::format("for {} the result depends on what its memory held before, from byte {} on", t->str(), at),
            "write every number of the result, including unchanged ones, and draw random numbers only from `random`"};
      }
    }
  }
  return {};
}

Finding repeats(const std::vector<TriedPtr>& all) {
  size_t differing = 0;
  for (const TriedPtr& t : all) {
    std::vector<Bytes> once;
    for (uint64_t record = 0; record < kRecords; ++record) once.push_back((*t)(draw_of(record)));
    for (uint64_t record = kRecords; record-- > 0;)
      if ((*t)(draw_of(record)) != once[record])
        return {
            Outcome::Failed, fmt::format("sample {} of {} differs when it is read again", record, t->str()),
            "draw random numbers only from `random` and keep no state between calls: samples are read in any order"};
    for (const Bytes& other : once) differing += other != once[0];
  }
  return {
      Outcome::Passed,
      differing ? fmt::format("{} samples, each with its own random numbers", kRecords) : "it draws no random numbers",
      ""};
}

Finding finite(const std::vector<TriedPtr>& all) {
  for (const TriedPtr& t : all)
    for (uint64_t record = 0; record < kRecords && is_float(t->result().dtype); ++record) {
      const Bytes bytes = (*t)(draw_of(record));
      const HTensor numbers = cast(HTensor(t->result().dtype, t->result().shape, bytes.data()), DType::F64);
      for (int64_t i = 0; i < numbers.size(); ++i)
        if (const double v = numbers.data<double>()[i]; !std::isfinite(v))
          return {Outcome::Failed, fmt::format("for {} element {} of sample {} is {}", t->str(), i, record, v),
                  "training stops at the first number that is not finite"};
    }
  return {};
}

Finding on_threads(const Tried& t) {
  std::vector<Bytes> expected;
  for (uint64_t record = 0; record < kRecords; ++record) expected.push_back(t(draw_of(record)));
  const std::string error = on_four_threads(20, [&] {
    for (uint64_t record = 0; record < kRecords; ++record)
      if (t(draw_of(record)) != expected[record])
        throw Error(ErrorKind::Plugin, fmt::format("sample {} differs from that of one thread", record));
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "samples are augmented on any thread: share no mutable state"};
}

}  // namespace

void check_augmentation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const AttributeMap arguments = arguments_to_try(*item);
  std::vector<TriedPtr> all;
  attempt(log, "takes samples", [&]() -> Finding {
    std::optional<Error> refused;
    all = taken(item, arguments, settings.seed, &refused);
    if (all.empty())
      throw Error(refused->kind(), refused->what()).note("it should accept one of numbers, rows, pictures and symbols");
    std::string text;
    for (const TriedPtr& t : all) text += (text.empty() ? "" : ", ") + t->str();
    return {Outcome::Passed, text, ""};
  });
  if (all.empty()) return;
  attempt(log, "writes its result, and nothing else", [&] { return writes_its_result(all); });
  attempt(log, "gives the same sample for the same draw", [&] { return repeats(all); });
  attempt(log, "stays finite", [&] { return finite(all); });
  attempt(log, "accepts the values that its ranges allow", [&] {
    return at_the_ends(*item, [&](const AttributeMap& ends) -> std::string {
      std::optional<Error> refused;
      const std::vector<TriedPtr> taken_at_an_end = taken(item, ends, settings.seed, &refused);
      if (taken_at_an_end.empty()) return refused->what();
      const Finding f = writes_its_result(taken_at_an_end);
      return f.outcome == Outcome::Passed ? "" : f.text;
    });
  });
  attempt(log, "threads", [&] { return on_threads(*all.front()); });
  attempt(log, "many calls", [&] {
    uint64_t record = 0;
    return many_calls(settings, [&] { (*all.front())(draw_of(++record)); });
  });
}

}  // namespace harmonics::engine
