#include "engine/model/state_binding.hpp"

#include "engine/execution/device_memory.hpp"

namespace harmonics::engine {

void* StateBinding::parameter(const std::string& name, const TensorType& type) {
  if (!is_state_(name)) return store_.parameter(name, type);
  std::shared_ptr<Storage>& state = states_.memory[name];
  if (!state) state = std::make_shared<Storage>(type.bytes());
  return state->data();
}

Layout StateBinding::layout(const std::string& name, const TensorType& type, Layout preferred) {
  return is_state_(name) ? Layout::natural : store_.layout(name, type, preferred);
}

bool StateBinding::is_constant(const std::string& name) { return !is_state_(name) && store_.is_constant(name); }

// States have none: they are not constant.
std::vector<std::shared_ptr<const Storage>> StateBinding::packed(std::span<const PackedParameter> parameters) {
  return store_.packed(parameters);
}

void StateBinding::will_change(const std::string& name) {
  if (!is_state_(name))
    throw Error(ErrorKind::Internal, "a program for inference changes the parameter '" + name + "'");
}

std::shared_ptr<const void> StateBinding::user_of(const std::string& name) {
  return is_state_(name) ? nullptr : store_.user_of(name);
}

// If the store's tensors are on another device, each program has a separate queue and copies states through the host.
std::shared_ptr<DeviceQueue> StateBinding::queue_on(const ItemPtr& device) {
  const auto queue = store_.queue_on(device);
  if (!states_.queue && store_.queue_on(device) == queue) states_.queue = queue;
  return queue;
}

std::shared_ptr<DeviceTensor> StateBinding::parameter_on(const std::shared_ptr<DeviceQueue>& queue,
                                                         const std::string& name, const TensorType& type) {
  if (!is_state_(name)) return store_.parameter_on(queue, name, type);
  if (states_.queue != queue) return TensorBinding::parameter_on(queue, name, type);
  std::shared_ptr<DeviceTensor>& mirror = states_.mirrors[name];
  if (!mirror) mirror = std::make_shared<DeviceTensor>(queue, parameter(name, type), type.bytes());
  return mirror;
}

}  // namespace harmonics::engine
