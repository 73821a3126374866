#include "engine/model/state_binding.hpp"

namespace harmonics::engine {

void* StateBinding::parameter(const std::string& name, const TensorType& type) {
  if (!is_state_(name)) return store_.parameter(name, type);
  std::shared_ptr<Storage>& state = states_[name];
  if (!state) state = std::make_shared<Storage>(type.bytes());
  return state->data();
}

Layout StateBinding::layout(const std::string& name, const TensorType& type, Layout preferred) {
  return is_state_(name) ? Layout::natural : store_.layout(name, type, preferred);
}

bool StateBinding::is_constant(const std::string& name) { return !is_state_(name) && store_.is_constant(name); }

std::shared_ptr<const Storage> StateBinding::packed(const std::string& name, const Packing& packing) {
  return is_state_(name) ? nullptr : store_.packed(name, packing);
}

void StateBinding::will_change(const std::string& name) {
  if (!is_state_(name))
    throw Error(ErrorKind::Internal, "a program for inference changes the parameter '" + name + "'");
}

std::shared_ptr<const void> StateBinding::user_of(const std::string& name) {
  return is_state_(name) ? nullptr : store_.user_of(name);
}

}  // namespace harmonics::engine
