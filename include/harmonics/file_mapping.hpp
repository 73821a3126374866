// FileMapping: a memory-mapped file. If the file is truncated while it is mapped, or its device fails, the reader can
// throw an error; without this class, SIGBUS would end the process.
//
// The first mapping installs a SIGBUS handler. It replaces lost pages of a mapping by zeros and marks the mapping; any
// other SIGBUS goes to the previous handler, or ends the process as without the handler. A program with its own handler
// must install it earlier, or forward unknown addresses. A library that has installed the handler is never unloaded.
#pragma once

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace harmonics {

namespace mapped {

// A slot for one mapping, read by the handler; `version` is odd during a change.
struct Range {
  std::atomic<unsigned> version{0};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> lost{false};
  Range* next_free = nullptr;

  void set(std::uintptr_t from, std::uintptr_t to) {
    version.fetch_add(1);
    begin = from;
    end = to;
    lost = false;
    version.fetch_add(1);
  }
  // Returns the end of the mapping if it contains `address`, else 0.
  std::uintptr_t end_around(std::uintptr_t address) const {
    const unsigned before = version;
    const std::uintptr_t from = begin, to = end;
    return before % 2 == 0 && version == before && from <= address && address < to ? to : 0;
  }
};

__attribute__((visibility("hidden"))) inline const std::atomic<bool> never_lost{false};

// Slots are reused and never freed, since a handler may be reading them.
struct Block {
  static constexpr std::size_t kRanges = 64;
  Range ranges[kRanges];
  Block* next = nullptr;
};

__attribute__((visibility("hidden"))) inline std::atomic<Block*> blocks{nullptr};
__attribute__((visibility("hidden"))) inline struct sigaction handler_before {};
__attribute__((visibility("hidden"))) inline std::uintptr_t page_bytes = 4096;

// Replaces the mapping by zeros from this page. [signal handler]
__attribute__((visibility("hidden"))) inline bool replace_lost_pages(std::uintptr_t address) {
  for (Block* block = blocks.load(); block; block = block->next)
    for (Range& range : block->ranges) {
      const std::uintptr_t end = range.end_around(address);
      if (end == 0) continue;
      range.lost = true;  // before any thread can read a zero
      const std::uintptr_t page = address / page_bytes * page_bytes;
      return ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
  return false;
}

__attribute__((visibility("hidden"))) inline void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const bool fault = info->si_code > 0;
  if (fault && replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    errno = kept;
    return;
  }
  errno = kept;
  if (handler_before.sa_flags & SA_SIGINFO) return handler_before.sa_sigaction(signal, info, context);
  const bool ignored = handler_before.sa_handler == SIG_IGN;
  if (!ignored && handler_before.sa_handler != SIG_DFL) return handler_before.sa_handler(signal);
  if (ignored && !fault) return;
  // Behaves as without this handler: the access is repeated and ends the process; a sent signal is raised again.
  struct sigaction otherwise {};
  otherwise.sa_handler = SIG_DFL;
  ::sigaction(signal, &otherwise, nullptr);
  if (!fault) ::raise(signal);
}

struct Ranges {
  std::mutex mutex;
  Range* free = nullptr;

  Ranges() {
    page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    Dl_info self{};
    if (::dladdr(reinterpret_cast<void*>(&on_bus_error), &self) != 0 && self.dli_fname)
      (void)::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigaction(SIGBUS, nullptr, &handler_before);  // set before the handler can run
    ::sigaction(SIGBUS, &action, nullptr);
  }

  Range* take(std::uintptr_t from, std::uintptr_t to) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!free) add_block();
    Range* const range = free;
    free = range->next_free;
    range->set(from, to);
    return range;
  }
  void give_back(Range* range) {
    const std::lock_guard<std::mutex> lock(mutex);
    range->next_free = free;
    free = range;
  }

 private:
  void add_block() {
    auto* const block = new Block;
    for (Range& range : block->ranges) range.next_free = std::exchange(free, &range);
    block->next = blocks;
    blocks = block;
  }
};

__attribute__((visibility("hidden"))) inline Ranges& ranges() {
  static auto* const all = new Ranges;  // streams may outlive static objects
  return *all;
}

}  // namespace mapped

class FileMapping {
 public:
  FileMapping() = default;
  // Maps the first `bytes` of an open file read-only; the file may be closed afterwards. On failure data() is null and
  // errno is set.
  FileMapping(int file, std::size_t bytes) {
    mapped::Ranges& ranges = mapped::ranges();
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED) return;
    data_ = at;
    bytes_ = bytes;
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t page = mapped::page_bytes;
    range_ = ranges.take(begin, begin + (bytes + page - 1) / page * page);
  }
  FileMapping(FileMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        range_(std::exchange(other.range_, nullptr)) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(range_, other.range_);
    return *this;
  }
  ~FileMapping() {
    if (!range_) return;
    range_->set(0, 0);
    ::munmap(data_, bytes_);
    mapped::ranges().give_back(range_);
  }

  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Whether a read since mapping may have returned zeros for lost pages. To be called after reading.
  bool lost() const { return range_ && range_->lost; }
  // The same as a flag that is cheap to read and outlives the mapping.
  const std::atomic<bool>& lost_flag() const { return range_ ? range_->lost : mapped::never_lost; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  mapped::Range* range_ = nullptr;
};

// Returns the result of `read`. If it may have read zeros for lost pages, its result or exception is discarded and
// file.expect_whole() throws.
template <typename File, typename Read>
auto read_whole(const File& file, Read read) -> decltype(read()) {
  try {
    auto result = read();
    file.expect_whole();
    return result;
  } catch (...) {
    file.expect_whole();
    throw;
  }
}

}  // namespace harmonics
