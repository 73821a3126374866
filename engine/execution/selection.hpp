// Choosing an implementation for every call: what the user says, then the graph's own registry, then plugins, the newest
// first, then the device, then the portable body. Evaluated while programs are made; what was chosen stays with them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/execution/kernel_source.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/chooser.hpp"

namespace harmonics {

struct CallSiteInfo;

class Selection final : public Chooser {
 public:
  // Takes over the overrides of now. One that names no functional, or no implementation there is, is ErrorKind::Usage. `flags`:
  // of every site, HX_SITE_...
  Selection(Registry& registry, const DeviceSettings& device, bool training);

  // Nothing to choose among: nobody has registered an implementation, and nothing is overridden.
  bool idle() const { return named_.empty() && overrides_.empty(); }

  std::shared_ptr<const HostFunction> choose(const Program& program, const Node& node) override;
  void opened(const Program& program, const Node& call) override;
  // The calls whose bodies were differentiated.
  const std::vector<Selected>& opened() const { return opened_; }
  // Is the call to be computed by its body, whatever the device has?
  bool wants_body(const std::string& op) const;
  // Is the call to be computed by the device's kernel?
  bool wants_device(const std::string& op) const;

  // For a call that stays one: "cpu" has a kernel for it, or its body takes its place. With an override that wants the device
  // and no kernel there: ErrorKind::Usage with what everybody says.
  // `why_not`: what the device said when it gave none.
  Selected settled(const Program& program, const Node& node, bool by_device, const std::string& why_not = "");

 private:
  struct Verdict {
    ItemPtr item;
    std::optional<std::string> declined;  // why; empty: it would serve
  };
  struct Considered {
    std::vector<Verdict> verdicts;
    ItemPtr winner;  // null: none of them
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
  KernelSource kernels_;  // for what the device would say
  std::map<std::string, std::string> overrides_;
  std::set<std::string> named_;  // what implementations are registered for
  std::map<std::string, std::vector<ItemPtr>> candidates_;
  std::map<std::string, Considered> known_;  // by site
  std::vector<Selected> opened_;
};

// The implementation an override may name besides those of plugins: the functional's body.
inline constexpr const char* kPortable = "portable";

}  // namespace harmonics
