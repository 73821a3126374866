// Checks of devices: their kernels for call sites.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/conformance/device_calls.hpp"
#include "engine/conformance/kernel_memory.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/staging.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr int kThreads = 4;

struct Asked {
  DeviceCall call;
  KernelPtr kernel;      // null: declined
  std::string declined;  // the reason; "" if none was given
  Values given = {};     // results of the kernel
};

class DeviceChecks {
 public:
  DeviceChecks(const ItemPtr& item, const CheckSettings& settings, CheckLog& log)
      : item_(item), settings_(settings), log_(log) {
    registry_.add(std::const_pointer_cast<Item>(item));
  }

  Finding available() const;
  Finding keeps_times() const;
  Finding describes() const;
  Finding answers();
  Finding answers_alike();
  Finding keeps_to_memory();
  Finding means_the_same() const;
  Finding on_threads() const;
  Finding looks() const;
  Finding rounded(Precision precision, double tolerance);
  Finding many_times();
  bool serves_any() const { return !served_.empty(); }
  bool rounds_to(uint32_t flag) const { return (flags() & flag) != 0; }
  bool says_times() const {
    const auto& table = item_->table<hx_device_vt>();
    return HM_TABLE_HAS(table, record_time) || HM_TABLE_HAS(table, elapsed);
  }
  bool says_it_looks() const {
    const auto& table = item_->table<hx_device_vt>();
    return HM_TABLE_HAS(table, copy_if_finite) || HM_TABLE_HAS(table, await_event);
  }

 private:
  void look_by_copies() const;
  uint32_t flags() const {
    const auto& table = item_->table<hx_device_vt>();
    return HM_TABLE_HAS(table, flags) ? table.flags(item_->self) : 0;
  }
  KernelSource ask_anew(Precision precision = Precision::fp32) { return {item_->name, registry_, precision}; }

  ItemPtr item_;
  CheckSettings settings_;
  CheckLog& log_;
  Registry registry_;
  std::vector<Asked> asked_;
  std::vector<Asked*> served_;
};

KernelPtr find(KernelSource& source, const CallSiteInfo& site) {
  return source.find(site.op, site.attributes, site.inputs, site.outputs);
}

// Collects faults: the text of the first, and the operations of the others.
class Faults {
 public:
  void add(const CallSiteInfo& site, const std::string& text) {
    add_said(site, fmt::format("{}: {}", site.str(), text));
  }
  void add_said(const CallSiteInfo& site, const std::string& text) {  // `text` names the site
    ++count_;
    if (first_.empty())
      first_ = text, op_ = site.op;
    else if (site.op != op_ && std::find(others_.begin(), others_.end(), site.op) == others_.end())
      others_.push_back(site.op);
  }
  bool none() const { return count_ == 0; }
  // Returns a passed finding with the text `passed` if there are no faults.
  Finding finding(const std::string& passed, const char* remedy) const {
    if (count_ == 0) return {Outcome::Passed, passed, ""};
    std::string text = first_;
    if (count_ > 1) text += fmt::format("; {} calls in all", count_);
    if (!others_.empty()) text += ", also of " + comma_separated(others_);
    return {Outcome::Failed, text, remedy};
  }

 private:
  size_t count_ = 0;
  std::string first_, op_;
  std::vector<std::string> others_;
};

// Checks whether the device can be used.
Finding DeviceChecks::available() const {
  has_own_memory(*item_);
  const hx_device_info info = info_of(*item_);
  if (info.unavailable[0]) return {Outcome::Noted, info.unavailable, "nothing it computes could be tested here"};
  return {Outcome::Passed, info.name, ""};
}

// Compares the device's times of copies with the host's clock, with more copies until these take long enough, and
// checks that the times of successive intervals add up.
Finding DeviceChecks::keeps_times() const {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kBytes = 1 << 20;
  constexpr int kMost = 4096;
  constexpr double kWhile = 5e-3, kRounding = 5e-6;
  const char* const remedy =
      "elapsed() gives the seconds from when the queue came to one event to when it came to a later one";
  const Finding none{Outcome::Passed, "none: steps are timed by the host's clock", ""};
  if (!has_own_memory(*item_) || !has_clock(*item_))
    return {Outcome::Failed, "it has event times, but no queues", "leave record_time and elapsed out"};
  const auto queue = std::make_shared<DeviceQueue>(item_);
  const DeviceBuffer from(queue, kBytes), to(queue, kBytes);
  const std::vector<std::byte> zeros(kBytes);
  queue->upload(from.at(0), zeros.data(), kBytes);
  if (!DeviceEvent::timed(queue)) return none;  // the first call may initialise something
  queue->synchronize();
  for (int copies = 8;; copies *= 2) {
    log_.alive();
    const auto start = Clock::now();
    const DeviceEvent first = DeviceEvent::timed(queue);
    for (int i = 0; i < copies; ++i) queue->copy(to.at(0), from.at(0), kBytes);
    const DeviceEvent worked = DeviceEvent::timed(queue), last = DeviceEvent::timed(queue);
    queue->synchronize();
    const double passed = std::chrono::duration<double>(Clock::now() - start).count();
    if (!first || !worked || !last) return none;
    const std::optional<double> work = worked.since(first), nothing = last.since(worked), both = last.since(first);
    if (!work || !nothing || !both) return none;
    const std::string told = fmt::format(
        "for {} copies of 1 MiB, which took {:.6f} s by the host's clock with overhead, it reports {:.6f} s", copies,
        passed, *work);
    if (*both > 1.01 * passed + kRounding) return {Outcome::Failed, told + ": more than elapsed", remedy};
    if (std::abs(*both - *work - *nothing) > 0.01 * *both + kRounding)
      return {Outcome::Failed,
              fmt::format("it reports {:.6f} s from one event to the next, {:.6f} s from that to a third, and {:.6f} s "
                          "from the first to the third",
                          *work, *nothing, *both),
              remedy};
    if (passed < kWhile && copies < kMost) continue;
    if (*work < passed / 1000) return {Outcome::Failed, told + ": far too little", remedy};
    return {Outcome::Passed, told, ""};
  }
}

Finding DeviceChecks::describes() const {
  const auto& table = item_->table<hx_device_vt>();
  const char* text = table.describe ? table.describe(item_->self) : nullptr;
  if (!text || !*text)
    return {Outcome::Failed, "it returns nothing", "describe() gives one line: name, instruction set, libraries"};
  if (std::string(text).find('\n') != std::string::npos)
    return {Outcome::Failed, "it returns more than one line",
            "describe() gives one line: name, instruction set, libraries"};
  if (const uint32_t other = flags() & ~uint32_t{HX_SITE_FP16_CHUNKS | HX_SITE_BF16 | HX_SITE_FP8})
    return {Outcome::Failed, fmt::format("it claims kernels for flags {:#x}, which do not exist", other),
            "flags() gives those of HX_SITE_FP16_CHUNKS, HX_SITE_BF16 and HX_SITE_FP8 that it has"};
  return {Outcome::Passed, text, ""};
}

// Returns "serves 40 of 2000 calls: linear 12 of 64, relu; declines, 'computes f32 only': linear; declines, without a
// reason: abs, add".
std::string coverage(const std::vector<Asked>& asked, size_t served) {
  std::map<std::string, std::pair<size_t, size_t>> operations;  // accepted, total
  std::map<std::string, std::set<std::string>> declined;        // by reason
  for (const Asked& a : asked) {
    auto& [some, all] = operations[a.call.site.op];
    ++all;
    if (a.kernel)
      ++some;
    else
      declined[a.declined].insert(a.call.site.op);
  }
  std::vector<std::string> words;
  for (const auto& [op, n] : operations)
    if (n.first > 0) words.push_back(n.first == n.second ? op : fmt::format("{} {} of {}", op, n.first, n.second));
  std::string text =
      fmt::format("serves {} of {} calls{}{}", served, asked.size(), words.empty() ? "" : ": ", comma_separated(words));
  for (const auto& [why, ops] : declined)
    text += fmt::format("; declines, {}: {}", why.empty() ? "without a reason" : "'" + why + "'",
                        comma_separated({ops.begin(), ops.end()}));
  return text;
}

Finding DeviceChecks::answers() {
  KernelSource source = ask_anew();
  Faults faults;
  for (DeviceCall& call : device_calls(settings_.seed)) {
    const CallSiteInfo site = call.site;
    log_.alive();
    try {
      const KernelPtr kernel = find(source, site);
      asked_.push_back({std::move(call), kernel, source.why_not(site.op, site.attributes, site.inputs, site.outputs)});
    } catch (const Error& e) {
      faults.add_said(site, e.what());
    }
  }
  for (Asked& a : asked_)
    if (a.kernel) served_.push_back(&a);
  Finding f = faults.finding(
      coverage(asked_, served_.size()),
      "find() declines calls without a kernel, and otherwise gives a complete one: function, name, phases and parts");
  if (f.outcome == Outcome::Passed && served_.empty())
    f = {Outcome::Noted, f.text, "it declines every call: nothing it computes could be tested"};
  return f;
}

Finding DeviceChecks::answers_alike() {
  KernelSource source = ask_anew();
  Faults faults;
  for (size_t i = asked_.size(); i-- > 0;) {
    const Asked& a = asked_[i];
    log_.alive();
    const KernelPtr again = find(source, a.call.site);
    if (!again != !a.kernel) {
      faults.add(a.call.site, fmt::format("a second call: it {}", again ? "has a kernel" : "has none"));
      continue;
    }
    if (!again) continue;
    const hx_kernel &x = a.kernel->raw(), &y = again->raw();
    const bool alike = x.phases == y.phases && std::equal(x.parts, x.parts + x.phases, y.parts) &&
                       x.workspace == y.workspace && x.in_place == y.in_place;
    if (!alike) faults.add(a.call.site, "a second call gives a kernel with other phases, parts, workspace or in_place");
  }
  return faults.finding(
      "", "the answer depends on the call site alone, so that results are the same for any number of threads");
}

// Returns the allowed assignments of inputs that results overwrite, by result: those of the kernel's in_place, and that
// of an optimizer's update.
std::vector<std::vector<int64_t>> replacements(const Asked& a) {
  const CallSiteInfo& site = a.call.site;
  const auto fits = [&](size_t output, size_t input) {
    return input < site.inputs.size() && site.inputs[input].bytes() == site.outputs[output].bytes();
  };
  std::vector<std::vector<int64_t>> all;
  for (size_t i = 0; i < 32; ++i)
    if ((a.kernel->raw().in_place >> i & 1) && fits(0, i)) all.push_back({static_cast<int64_t>(i)});
  std::vector<int64_t> updated;
  for (size_t output = 0; output < site.outputs.size(); ++output) updated.push_back(a.call.replaced_by(output));
  if (!updated.empty() && updated[0] >= 0) all.push_back(updated);
  return all;
}

Finding DeviceChecks::keeps_to_memory() {
  Faults faults;
  for (Asked* a : served_) {
    const CallSiteInfo& site = a->call.site;
    log_.alive();
    try {
      std::string text = run_guarded(a->kernel->raw(), a->call.call.inputs, site.outputs, &a->given, item_);
      if (text.empty())
        for (const std::vector<int64_t>& replaced : replacements(*a))
          if (text.empty()) text = run_replacing(a->kernel->raw(), a->call.call.inputs, a->given, replaced, item_);
      if (!text.empty()) faults.add(site, "its kernel " + text);
    } catch (const Error& e) {
      faults.add(site, fmt::format("its kernel {}", e.what()));
    }
  }
  return faults.finding(fmt::format("{} kernels", served_.size()),
                        "buffers are the inputs, the outputs and the workspace; parts of one phase run in any order "
                        "and write disjoint memory; exceptions are not allowed");
}

Finding DeviceChecks::means_the_same() const {
  Faults faults;
  for (const Asked* a : served_) {
    log_.alive();
    const Values meant = a->call.meaning();
    for (size_t i = 0; i < meant.size(); ++i) {
      const std::string text = difference(a->given[i], meant[i], "the reference");
      if (text.empty()) continue;
      faults.add(a->call.site, fmt::format("result {}: {}", i + 1, text));
      break;
    }
  }
  return faults.finding(fmt::format("{} calls", served_.size()),
                        "compute what the call defines, or let find() decline it");
}

Finding DeviceChecks::on_threads() const {
  Faults faults;
  for (const Asked* a : served_) {
    log_.alive();
    const hx_kernel& kernel = a->kernel->raw();
    if (std::all_of(kernel.parts, kernel.parts + kernel.phases, [](uint32_t n) { return n == 1; })) continue;
    const std::string text = run_on_threads(kernel, a->call.call.inputs, a->given, kThreads, item_);
    if (!text.empty()) faults.add(a->call.site, "its kernel " + text);
  }
  const char* const remedy =
      "parts of one kernel run at the same time, and so do different kernels: share no mutable state";
  if (!faults.none()) return faults.finding("", remedy);
  std::atomic<size_t> next{0};
  const std::string beside = harmonics::engine::on_four_threads(1, [&] {
    for (size_t i; (i = next.fetch_add(1)) < served_.size();) {
      const Asked& a = *served_[i];
      const std::string text = run_on_threads(a.kernel->raw(), a.call.call.inputs, a.given, 1, item_);
      if (!text.empty())
        throw Error(ErrorKind::Plugin,
                    fmt::format("{}: while other kernels run, its kernel {}", a.call.site.str(), text));
    }
  });
  if (!beside.empty()) return {Outcome::Failed, beside, remedy};
  return {};
}

Finding DeviceChecks::rounded(Precision precision, double tolerance) {
  KernelSource source = ask_anew(precision);
  Faults faults;
  size_t other = 0;
  for (const Asked& a : asked_) {
    const CallSiteInfo& site = a.call.site;
    const bool single =
        std::any_of(site.inputs.begin(), site.inputs.end(), [](const TensorType& t) { return t.dtype == DType::F32; });
    const KernelPtr kernel = single ? find(source, site) : nullptr;
    if (!kernel) continue;
    log_.alive();
    Values given;
    std::string text = run_guarded(kernel->raw(), a.call.call.inputs, site.outputs, &given, item_);
    if (text.empty() && a.kernel && std::equal(given.begin(), given.end(), a.given.begin(), same_bits)) continue;
    ++other;
    const Values meant = text.empty() ? a.call.meaning() : Values();
    for (size_t i = 0; i < meant.size() && text.empty(); ++i)
      text = difference(given[i], meant[i], "the reference", std::max(tolerance, tolerance_of(meant[i].dtype())));
    if (!text.empty()) faults.add(site, fmt::format("with {} allowed, its kernel {}", precision_name(precision), text));
  }
  return faults.finding(fmt::format("of the calls, {} with other results", other),
                        "operands of products may be rounded, and of fp16 short sums; totals are in f32");
}

constexpr float kLooked[] = {0.5f,     -0.0f,     std::numeric_limits<float>::max(),
                             INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()};

// Checks copy_if_finite. The host waits for events only, which checks await_event too.
void DeviceChecks::look_by_copies() const {
  const auto queue = std::make_shared<DeviceQueue>(item_);
  for (const uint64_t bytes : {4, 7, 64, 4099}) {
    std::vector<std::byte> sent(bytes);
    for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + 1);
    const DeviceBuffer from(queue, bytes), to(queue, bytes + 1), number(queue, sizeof(float));
    const HostMemory back(queue, bytes + 1);
    queue->upload(from.at(0), sent.data(), bytes);
    for (const float looked : kLooked) {
      const std::vector<std::byte> before(bytes + 1, std::byte{0x5a});
      queue->upload(to.at(0), before.data(), before.size());
      queue->upload(number.at(0), &looked, sizeof looked);
      queue->copy_if_finite(to.at(0), from.at(0), bytes, number.at(0));
      queue->download(back.at(0), to.at(0), bytes + 1);
      DeviceEvent(queue).await();
      const std::vector<std::byte>& meant = std::isfinite(looked) ? sent : before;
      const std::string of = fmt::format("a copy of {} bytes that looks at {}", bytes, looked);
      if (!std::equal(meant.begin(), meant.begin() + static_cast<ptrdiff_t>(bytes), back.at(0)))
        throw Error(ErrorKind::Plugin,
                    of + (std::isfinite(looked) ? " leaves other bytes, or await_event comes back before it is done"
                                                : " writes nevertheless"));
      if (*back.at(bytes) != before[bytes]) throw Error(ErrorKind::Plugin, of + " writes after them");
    }
  }
}

Finding DeviceChecks::looks() const {
  harmonics::engine::looks_at_numbers(*item_);
  look_by_copies();
  Faults faults;
  size_t kernels = 0;
  std::set<std::string> operations;
  for (const Asked* a : served_) {
    if (!a->kernel->raw().enqueue_if_finite) continue;
    log_.alive();
    ++kernels;
    operations.insert(a->call.site.op);
    std::vector<std::vector<int64_t>> arrangements = replacements(*a);
    arrangements.emplace_back();
    std::string text;
    for (const std::vector<int64_t>& replaced : arrangements)
      for (const float looked : kLooked)
        if (text.empty()) text = run_looking(a->kernel->raw(), a->call.call.inputs, a->given, replaced, looked, item_);
    if (!text.empty()) faults.add(a->call.site, "its kernel " + text);
  }
  return faults.finding(kernels == 0 ? "copies, but no kernels: steps that change something wait for the host"
                                     : fmt::format("copies, and {} of {}", quantity(kernels, "kernel"),
                                                   comma_separated({operations.begin(), operations.end()})),
                        "with enqueue_if_finite the outputs keep what they hold when the f32 at `number` is not finite "
                        "by the time the queue comes there");
}

// Repeatedly looks up, runs and releases kernels for few distinct calls. All of them occur in the first half of the
// check, so that caches do not grow in the second.
Finding DeviceChecks::many_times() {
  const size_t different = std::min<size_t>(served_.size(), 200);
  size_t next = 0;
  return many_calls(settings_, [&] {
    const Asked& a = *served_[next++ % different * served_.size() / different];
    KernelSource source = ask_anew();
    const KernelPtr kernel = find(source, a.call.site);
    const std::string text =
        kernel ? run_on_threads(kernel->raw(), a.call.call.inputs, a.given, 1, item_) : "is no longer given";
    if (!text.empty())
      throw Error(ErrorKind::Plugin, fmt::format("{}: its kernel, found again, {}", a.call.site.str(), text));
  });
}

}  // namespace

void check_device(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  DeviceChecks checks(item, settings, log);
  attempt(log, "describes itself", [&] { return checks.describes(); });
  bool there = !HM_TABLE_HAS(item->table<hx_device_vt>(), info);  // a device without info() counts as available
  if (!there)
    attempt(log, "is available", [&] {
      const Finding f = checks.available();
      there = f.outcome == Outcome::Passed;
      return f;
    });
  if (!there) return;
  if (checks.says_times()) attempt(log, "keeps times", [&] { return checks.keeps_times(); });
  attempt(log, "reports the calls it serves", [&] { return checks.answers(); });
  if (!checks.serves_any()) return;
  attempt(log, "answers consistently", [&] { return checks.answers_alike(); });
  bool careful = false;  // a kernel that fails this may corrupt memory in later checks
  attempt(log, "stays within its memory", [&] {
    const Finding f = checks.keeps_to_memory();
    careful = f.outcome == Outcome::Passed;
    return f;
  });
  if (!careful) return;
  attempt(log, "computes calls correctly", [&] { return checks.means_the_same(); });
  if (checks.says_it_looks()) attempt(log, "checks for finite numbers", [&] { return checks.looks(); });
  attempt(log, "threads", [&] { return checks.on_threads(); });
  if (checks.rounds_to(HX_SITE_FP16_CHUNKS))
    attempt(log, "products in fp16 chunks", [&] { return checks.rounded(Precision::fp16, tolerance_of(DType::F16)); });
  if (checks.rounds_to(HX_SITE_BF16))
    attempt(log, "products in bf16", [&] { return checks.rounded(Precision::bf16, tolerance_of(DType::BF16)); });
  constexpr double kOfFp8 = 0.15;  // three bits of mantissa
  if (checks.rounds_to(HX_SITE_FP8))
    attempt(log, "products in fp8", [&] { return checks.rounded(Precision::fp8, kOfFp8); });
  attempt(log, "many calls", [&] { return checks.many_times(); });
}

}  // namespace harmonics::engine
