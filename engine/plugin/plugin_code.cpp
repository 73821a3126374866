#include "engine/plugin/plugin_code.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <mutex>

namespace harmonics::engine {

namespace {

// Code of one library. Rows are never removed, since libraries are never closed, and code_count grows only after a row
// is complete, so readers need no lock.
struct CodeRow {
  uintptr_t begin, end;
  PluginCode code;
};
std::array<CodeRow, 1024> code_rows;
std::atomic<size_t> code_count{0};
std::mutex code_adding;

// Address range of the loaded object that contains `inside`.
struct Extent {
  uintptr_t inside, begin = 0, end = 0;
};

int look_at_object(dl_phdr_info* info, size_t, void* wanted) {
  auto& extent = *static_cast<Extent*>(wanted);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t at = info->dlpi_addr + segment.p_vaddr;
    begin = std::min(begin, at);
    end = std::max(end, at + segment.p_memsz);
  }
  if (extent.inside < begin || extent.inside >= end) return 0;
  extent.begin = begin;
  extent.end = end;
  return 1;
}

const char* kept_for_good(const std::string& text) { return ::strdup(text.c_str()); }

}  // namespace

void remember_code(const std::string& id, const std::string& path, const void* symbol) {
  Extent extent{reinterpret_cast<uintptr_t>(symbol)};
  if (!::dl_iterate_phdr(look_at_object, &extent)) return;
  const std::lock_guard lock(code_adding);
  const size_t n = code_count.load(std::memory_order_relaxed);
  const bool known = std::any_of(code_rows.begin(), code_rows.begin() + static_cast<std::ptrdiff_t>(n),
                                 [&](const CodeRow& row) { return row.begin == extent.begin; });
  if (known || n == code_rows.size()) return;
  code_rows[n] = {extent.begin, extent.end, {kept_for_good(id), kept_for_good(path)}};
  code_count.store(n + 1, std::memory_order_release);
}

const PluginCode* plugin_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const size_t n = code_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < n; ++i)
    if (at >= code_rows[i].begin && at < code_rows[i].end) return &code_rows[i].code;
  return nullptr;
}

}  // namespace harmonics::engine
