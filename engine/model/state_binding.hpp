// StateBinding: binds programs to the parameters of a store and to separate states, such as those of a session.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/model/parameter_store.hpp"

namespace harmonics::engine {

// Parameters of the store are read-only: a program that changes one causes ErrorKind::Internal. States are allocated,
// uninitialised, when a program first needs them, and are owned by `states`, which must outlive all such programs. On a
// device with its own memory, programs on the store's queue share one mirror of each state.
class StateBinding final : public TensorBinding {
 public:
  struct States {
    std::map<std::string, std::shared_ptr<Storage>> memory;
    std::shared_ptr<DeviceQueue> queue;  // of the mirrors
    std::map<std::string, std::shared_ptr<DeviceTensor>> mirrors;
  };
  StateBinding(ParameterStore& store, States& states, std::function<bool(const std::string& name)> is_state)
      : store_(store), states_(states), is_state_(std::move(is_state)) {}

  void* parameter(const std::string& name, const TensorType& type) override;
  Layout layout(const std::string& name, const TensorType& type, Layout preferred) override;
  bool is_constant(const std::string& name) override;
  std::vector<std::shared_ptr<const Storage>> packed(std::span<const PackedParameter> parameters) override;
  void will_change(const std::string& name) override;
  std::shared_ptr<const void> user_of(const std::string& name) override;
  std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device) override;
  std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                             const TensorType& type) override;

 private:
  ParameterStore& store_;
  States& states_;
  std::function<bool(const std::string&)> is_state_;
};

}  // namespace harmonics::engine
