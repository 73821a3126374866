// Shares one open data set among the producers that read it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace harmonics::engine {

// Returns the object in use whose options have the same key(), or a new T(options). Thread-safe.
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
