// Selects an implementation for every call, by priority: overrides, the registry of the graph, plugins (newest first),
// the device, the portable body. Selection happens when programs are compiled and does not change later.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/execution/kernel_source.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/chooser.hpp"

namespace harmonics::engine {

struct CallSiteInfo;

class Selection final : public Chooser {
 public:
  // Copies the current overrides. Throws ErrorKind::Usage if one names an unknown functional or implementation.
  Selection(Registry& registry, const DeviceSettings& device, bool training);

  // Returns whether there is nothing to select: no implementation is registered, and nothing is overridden.
  bool idle() const { return named_.empty() && overrides_.empty(); }

  std::shared_ptr<const HostFunction> choose(const Program& program, const Node& node) override;
  void opened(const Program& program, const Node& call) override;
  // Returns the calls whose bodies were differentiated.
  const std::vector<Selected>& opened() const { return opened_; }
  // Returns whether an override requests the body.
  bool wants_body(const std::string& op) const;
  // Returns whether an override requests the kernel of the device.
  bool wants_device(const std::string& op) const;

  // Records a call that no implementation takes: the device has a kernel for it (`by_device`), or its body replaces it.
  // Throws ErrorKind::Usage with the answers of all candidates if an override requests the device and it has no kernel.
  // `why_not` is the reason of the device.
  Selected settled(const Program& program, const Node& node, bool by_device, const std::string& why_not = "");

 private:
  struct Verdict {
    ItemPtr item;
    std::optional<std::string> declined;  // the reason; empty if it accepts
  };
  struct Considered {
    std::vector<Verdict> verdicts;
    ItemPtr winner;  // null: none accepted
  };

  void check_override(const std::string& functional, const std::string& wanted);
  const std::string* wanted(const std::string& op) const;
  const Considered& consider(const CallSiteInfo& site);
  CallSiteInfo site_of(const Program& program, const Node& node) const;
  [[noreturn]] void refuse_override(const CallSiteInfo& site, const std::vector<Verdict>& verdicts);
  Selected record(const Program& program, const Node& node, const CallSiteInfo& site, const Considered& considered);

  Registry& registry_;
  std::string device_;
  bool training_;
  KernelSource kernels_;  // to query the device
  hx_native native_{};    // native handles of the device
  std::map<std::string, std::string> overrides_;
  std::set<std::string> named_;  // functionals and primitives with registered implementations
  std::map<std::string, std::vector<ItemPtr>> candidates_;
  std::map<std::string, Considered> known_;  // by call site
  std::vector<Selected> opened_;
};

// The name of the portable body in overrides.
inline constexpr const char* kPortable = "portable";

}  // namespace harmonics::engine
