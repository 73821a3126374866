#include "engine/corpus/token_store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

TokenStore::TokenStore(std::string name, uint64_t limit) : name_(std::move(name)), limit_(limit) {}

TokenStore::~TokenStore() {
  if (mapped_) ::munmap(const_cast<int32_t*>(mapped_), written_);
  if (file_ >= 0) ::close(file_);
}

void TokenStore::fail(const char* what, int number) const {
  throw Error(ErrorKind::InputOutput,
              fmt::format("the tokens of '{}' do not fit into {} bytes of memory, and a temporary file {}: {}", name_,
                          limit_, what, std::strerror(number)))
      .note("name a folder with more room in TMPDIR, or give a larger memory=");
}

void TokenStore::add(std::span<const int32_t> document) {
  memory_.insert(memory_.end(), document.begin(), document.end());
  begins_.push_back(begins_.back() + document.size());
  if (memory_.size() * sizeof(int32_t) > limit_) spill();
}

void TokenStore::spill() {
  if (file_ < 0) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/var/tmp") + "/harmonics-tokens-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) fail("cannot be created", errno);
    ::unlink(path.c_str());
  }
  const auto* from = reinterpret_cast<const char*>(memory_.data());
  for (size_t left = memory_.size() * sizeof(int32_t); left > 0;) {
    const ssize_t done = ::write(file_, from, left);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("cannot be written", errno);
    from += done;
    left -= static_cast<size_t>(done);
    written_ += static_cast<uint64_t>(done);
  }
  memory_.clear();
}

void TokenStore::finish() {
  if (file_ < 0) return memory_.shrink_to_fit();
  if (!memory_.empty()) spill();
  memory_.shrink_to_fit();
  void* at = ::mmap(nullptr, written_, PROT_READ, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) fail("cannot be mapped", errno);
  mapped_ = static_cast<const int32_t*>(at);
}

}  // namespace harmonics::engine
