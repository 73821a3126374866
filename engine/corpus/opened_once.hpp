// Data sets that several producers of a run read are opened once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace harmonics::engine {

// The object of these options that is open already, or a new one. `T` is made of `Options`, whose key() tells one data
// set from another. Any thread may call it.
template <typename T, typename Options>
std::shared_ptr<T> opened_once(const Options& options) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<T>> opened;
  const std::lock_guard lock(mutex);
  std::erase_if(opened, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<T>& known = opened[options.key()];
  std::shared_ptr<T> found = known.lock();
  if (!found) known = found = std::make_shared<T>(options);
  return found;
}

}  // namespace harmonics::engine
