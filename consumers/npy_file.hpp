// Writes NPY: one array, whose first axis counts the samples.
#pragma once

#include <string>

#include <harmonics/stream.hpp>

#include "consumers/output_file.hpp"

namespace harmonics {

class NpyFileConsumer final : public Consumer {
 public:
  explicit NpyFileConsumer(const std::string& path) : path_(path), file_(path) {}
  void push(const HTensor& sample) override;
  void finish() override;

 private:
  std::string header() const;

  std::string path_;
  OutputFile file_;
  DType dtype_ = DType::F32;
  Shape sample_;
  uint64_t count_ = 0;
};

}  // namespace harmonics
