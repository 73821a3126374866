// A disk in memory, thread-safe: unsynced writes can be lost, any call can fail, and the power can fail at any call.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>

#include "engine/base/file.hpp"

namespace harmonics::engine::testing {

class FilesInMemory final : public FileCalls {
 public:
  enum class Fault { None, Error, ShortThenError, PowerCut };

  // Makes the call with this index, from 0, fail. With PowerCut, all later calls fail, too, and none has an effect.
  void fail_at(size_t call, Fault fault, int reason = EIO) {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = 0;
    at_ = call;
    fault_ = fault;
    reason_ = reason;
    failed_ = false;
  }
  void work() { fail_at(0, Fault::None); }
  size_t calls() const { return call_; }
  bool failed() const {  // whether the fault has occurred
    const std::lock_guard<std::mutex> lock(mutex_);
    return failed_;
  }

  // Returns the disk's contents after the power returns: synced content under synced names, and a random part of the
  // rest, chosen by `luck`. Null: none of the rest.
  std::unique_ptr<FilesInMemory> after_power_cut(std::mt19937* luck) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto image = std::make_unique<FilesInMemory>();
    image->directories_ = directories_;
    const auto lucky = [&] { return luck && (*luck)() % 2 == 0; };
    std::map<std::string, std::shared_ptr<Node>> names = durable_;
    for (const auto& [name, node] : names_)
      if (lucky()) names[name] = node;
    for (auto it = names.begin(); it != names.end();)
      it = !names_.count(it->first) && lucky() ? names.erase(it) : std::next(it);
    for (const auto& [name, node] : names) {
      std::string bytes = node->durable;
      if (bytes.size() < node->bytes.size() && lucky())
        bytes = node->bytes.substr(0, bytes.size() + (*luck)() % (node->bytes.size() - bytes.size() + 1));
      image->put(name, bytes);
    }
    return image;
  }

  void put(const std::string& name, const std::string& bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_[name] = durable_[name] = std::make_shared<Node>(Node{bytes, bytes});
  }
  std::string get(const std::string& name) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return names_.at(name)->bytes;
  }
  size_t size_of(const std::string& name) const {  // 0: no such file
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = names_.find(name);
    return at == names_.end() ? 0 : at->second->bytes.size();
  }
  std::set<std::string> names() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::set<std::string> all;
    for (const auto& [name, node] : names_) all.insert(name);
    return all;
  }

  int open(const char* path, int flags, unsigned) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    const int file = next_++;
    if (flags & O_DIRECTORY) {
      if (!directories_.count(trimmed(path))) return errno = ENOENT, -1;
      open_[file] = {nullptr, trimmed(path), 0};
      return file;
    }
    const auto at = names_.find(path);
    if (at != names_.end() && (flags & O_EXCL)) return errno = EEXIST, -1;
    if (at == names_.end() && !(flags & O_CREAT)) return errno = ENOENT, -1;
    if (at == names_.end()) names_[path] = std::make_shared<Node>();
    open_[file] = {names_[path], "", 0};
    return file;
  }
  long read(int file, void* to, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    Open& o = open_.at(file);
    const size_t n = std::min({bytes, o.node->bytes.size() - o.at, size_t{1000}});
    std::memcpy(to, o.node->bytes.data() + o.at, n);
    o.at += n;
    return static_cast<long>(n);
  }
  long long size(int file) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return strikes() ? -1 : static_cast<long long>(open_.at(file).node->bytes.size());
  }
  long write(int file, const void* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool strike = strikes();
    if (strike && fault_ != Fault::ShortThenError) return -1;
    if (strike && bytes > 1)
      bytes /= 2, at_ = call_;  // the rest of the write fails
    else if (strike)
      return -1;
    open_.at(file).node->bytes.append(static_cast<const char*>(data), bytes);
    return static_cast<long>(bytes);
  }
  int sync(int file) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    const Open& o = open_.at(file);
    if (o.node) return o.node->durable = o.node->bytes, 0;
    const auto inside = [&](const std::string& name) { return name.rfind(o.directory + "/", 0) == 0; };
    std::erase_if(durable_, [&](const auto& entry) { return inside(entry.first); });
    for (const auto& [name, node] : names_)
      if (inside(name)) durable_[name] = node;
    return 0;
  }
  int truncate(int file, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    open_.at(file).node->bytes.resize(bytes);
    return 0;
  }
  int close(int file) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool strike = strikes();
    open_.erase(file);
    return strike ? -1 : 0;
  }
  int rename(const char* from, const char* to) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    const auto at = names_.find(from);
    if (at == names_.end()) return errno = ENOENT, -1;
    names_[to] = at->second;
    names_.erase(from);
    return 0;
  }
  int remove(const char* path) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return strikes() ? -1 : names_.erase(path) ? 0 : (errno = ENOENT, -1);
  }
  int make_directory(const char* path) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    return directories_.insert(trimmed(path)).second ? 0 : (errno = EEXIST, -1);
  }
  int lock(int) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    return strikes() ? -1 : 0;
  }
  int list(const char* directory, std::vector<std::string>& names) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (strikes()) return -1;
    const std::string prefix = trimmed(directory) + "/";
    if (!directories_.count(trimmed(directory))) return errno = ENOENT, -1;
    for (const auto& [name, node] : names_)
      if (name.rfind(prefix, 0) == 0) names.push_back(name.substr(prefix.size()));
    return 0;
  }

 private:
  struct Node {
    std::string bytes, durable;
  };
  struct Open {
    std::shared_ptr<Node> node;  // null: a directory
    std::string directory;
    size_t at;
  };

  static std::string trimmed(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
  }
  bool strikes() {
    if (fault_ == Fault::None || call_++ != at_) return false;
    if (fault_ == Fault::PowerCut) at_ = call_;  // the next call
    failed_ = true;
    errno = reason_;
    return true;
  }

  std::map<std::string, std::shared_ptr<Node>> names_, durable_;
  std::set<std::string> directories_{".", "/"};
  std::map<int, Open> open_;
  int next_ = 3, reason_ = 0;
  size_t call_ = 0, at_ = 0;
  Fault fault_ = Fault::None;
  bool failed_ = false;
  mutable std::mutex mutex_;
};

}  // namespace harmonics::engine::testing
