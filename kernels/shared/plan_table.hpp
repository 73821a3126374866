// A device's table: operations of call sites and the functions that plan their kernels.
//
// Each source that plans kernels ends with its rows, HM_PLANS(FAMILY, {"op", plan_op}, …). The device names its
// families once, in families.inc: families.hpp declares their rows from it, and device.cpp collects them.
#pragma once

#include <span>
#include <string_view>
#include <unordered_map>

namespace harmonics::kernels {

// Plan: bool (*)(const Site&, hx_kernel&), which returns true and fills the kernel if the device supports the site.
template <typename Plan>
struct PlanRow {
  std::string_view op;
  Plan plan;
};

template <typename Plan>
class PlanTable {
 public:
  void add(std::span<const PlanRow<Plan>> rows) {
    for (const auto& row : rows) plans_[row.op] = row.plan;
  }
  void add(std::string_view op, Plan plan) { plans_[op] = plan; }
  // Null: no kernel of the device computes it.
  Plan find(std::string_view op) const {
    const auto at = plans_.find(op);
    return at == plans_.end() ? nullptr : at->second;
  }

 private:
  std::unordered_map<std::string_view, Plan> plans_;
};

}  // namespace harmonics::kernels

#define HM_PLANS(family, ...)                        \
  std::span<const PlanRow> family##_plans() {        \
    static constexpr PlanRow rows[] = {__VA_ARGS__}; \
    return rows;                                     \
  }
