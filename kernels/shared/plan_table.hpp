// Table of a device: operation name -> function that plans its kernel.
//
// A source that plans kernels ends with its rows, HM_PLANS(FAMILY, {"op", plan_op}, …). The families of a device are
// listed in families.inc, from which families.hpp declares the rows and device.cpp collects them.
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
  // Returns null if no kernel of the device computes the operation.
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
