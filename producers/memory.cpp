#include "producers/memory.hpp"

#include <map>
#include <mutex>

#include <harmonics/memory.hpp>

namespace harmonics {
namespace {

struct Store {
  std::mutex mutex;
  std::map<std::string, std::vector<HTensor>> samples;
};
Store& store() {
  static auto* const it = new Store;  // never destroyed: tensors may outlive the engine
  return *it;
}

class MemoryConsumer final : public Consumer {
 public:
  explicit MemoryConsumer(std::string name) : name_(std::move(name)) {
    const std::lock_guard<std::mutex> lock(store().mutex);
    store().samples[name_].clear();
  }
  void push(const HTensor& sample) override {
    const std::lock_guard<std::mutex> lock(store().mutex);
    store().samples[name_].push_back(sample);
  }

 private:
  std::string name_;
};

}  // namespace

std::shared_ptr<Producer> open_memory_producer(const std::string& name) {
  const std::lock_guard<std::mutex> lock(store().mutex);
  const auto at = store().samples.find(name);
  if (at == store().samples.end() || at->second.empty())
    throw Error(ErrorKind::NoInput,
                "memory:" + name + " has no sampless; a consumer memory:" + name + " of this process fills it");
  return std::make_shared<MemoryProducer>(at->second);
}

std::shared_ptr<Consumer> open_memory_consumer(const std::string& name) {
  return std::make_shared<MemoryConsumer>(name);
}

}  // namespace harmonics
