// Calls a kernel of the CUDA device on the emulated driver.
#pragma once

#include <catch2/catch.hpp>

#include <cstring>
#include <limits>
#include <random>

#include "engine/contract/plugin_body.hpp"
#include "kernels/cuda/families.hpp"
#include "tests/cuda/emulated_driver.hpp"

namespace harmonics::cuda::testing {

using namespace engine;

inline hx_type type_for(std::vector<int64_t> dims, uint32_t dtype = HX_F32) {
  hx_type t{};
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), t.dims);
  return t;
}

// Restores default settings before and after a test.
class FreshSettings {
 public:
  FreshSettings() { emulated::settings() = {}; }
  ~FreshSettings() { emulated::settings() = {}; }
};

struct Buffer {
  hx_type type;
  std::vector<float> numbers;
};

inline Buffer numbers(std::vector<int64_t> dims, uint32_t seed) {
  Buffer b{type_for(std::move(dims)), {}};
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < count(b.type); ++i) b.numbers.push_back(std::uniform_real_distribution<float>(-1, 1)(engine));
  return b;
}

class DeviceCall {
 public:
  DeviceCall(std::string op, AttributeMap attributes, std::vector<Buffer> inputs, std::vector<int64_t> result)
      : op_(std::move(op)),
        attributes_(std::move(attributes)),
        inputs_(std::move(inputs)),
        result_{type_for(std::move(result)), {}} {
    result_.numbers.assign(static_cast<size_t>(count(result_.type)), -77);
  }
  // Adds a second result.
  DeviceCall& second(std::vector<int64_t> result) {
    second_ = Buffer{type_for(std::move(result)), {}};
    second_.numbers.assign(static_cast<size_t>(count(second_.type)), -77);
    return *this;
  }
  const std::vector<float>& second_result() const { return second_.numbers; }
  DeviceCall& flags(uint32_t flags) { return flags_ = flags, *this; }
  DeviceCall& chain(std::vector<hx_scalar_op> ops, std::vector<uint32_t> stored) {
    chain_ = std::move(ops);
    stored_ = std::move(stored);
    return *this;
  }

  // Returns the kernel's name; "": declined.
  std::string plan(Machine& machine) {
    const AttributeView view(attributes_);
    std::vector<hx_type> in;
    for (const Buffer& b : inputs_) in.push_back(b.type);
    hx_call_site site{};
    site.struct_size = sizeof site;
    site.op = op_.c_str();
    site.attributes = view.get();
    site.n_inputs = static_cast<uint32_t>(in.size());
    const hx_type out[] = {result_.type, second_.type};
    site.n_outputs = second_.numbers.empty() ? 1 : 2;
    site.inputs = in.data();
    site.outputs = out;
    site.flags = flags_;
    site.n_chain = static_cast<uint32_t>(chain_.size());
    site.chain = chain_.data();
    site.chain_outputs = stored_.data();
    machine_ = &machine;
    const Plan plan = plans().find(op_);
    REQUIRE(plan);
    return plan(Site(site, machine), kernel_) ? kernel_.name : "";
  }
  std::vector<float> run() {
    std::vector<hx_place> places;
    for (Buffer& b : inputs_) places.push_back({reinterpret_cast<uint64_t>(b.numbers.data()), 0});
    places.push_back({reinterpret_cast<uint64_t>(result_.numbers.data()), 0});
    if (!second_.numbers.empty()) places.push_back({reinterpret_cast<uint64_t>(second_.numbers.data()), 0});
    std::vector<char> workspace(kernel_.workspace + 1, 0x7f);
    places.push_back({reinterpret_cast<uint64_t>(workspace.data()), 0});
    void* stream = nullptr;
    REQUIRE(machine_->driver().open_stream(&stream) == 0);
    REQUIRE(kernel_.enqueue(kernel_.context, static_cast<hx_queue*>(stream), places.data()) == HX_OK);
    REQUIRE(machine_->driver().synchronize(stream) == 0);
    machine_->driver().close_stream(stream);
    return result_.numbers;
  }
  // Moves all buffers and poisons the old ones.
  DeviceCall& move() {
    std::vector<Buffer*> all{&result_};
    for (Buffer& b : inputs_) all.push_back(&b);
    for (Buffer* b : all) {
      left_.push_back(b->numbers);
      left_.back().swap(b->numbers);
      std::fill(left_.back().begin(), left_.back().end(), std::numeric_limits<float>::quiet_NaN());
    }
    std::fill(result_.numbers.begin(), result_.numbers.end(), -77.0f);
    return *this;
  }
  ~DeviceCall() {
    if (kernel_.destroy) kernel_.destroy(kernel_.context);
  }

 private:
  std::string op_;
  AttributeMap attributes_;
  std::vector<Buffer> inputs_;
  Buffer result_, second_{};
  std::vector<std::vector<float>> left_;
  std::vector<hx_scalar_op> chain_;
  std::vector<uint32_t> stored_;
  uint32_t flags_ = 0;
  Machine* machine_ = nullptr;
  hx_kernel kernel_{};
};

}  // namespace harmonics::cuda::testing
