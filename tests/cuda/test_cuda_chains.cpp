// Elementwise chains: generated sources, their acceptance by CUDA's compilers, and the disk cache.
#include "tests/cuda/device_call.hpp"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/chain_source.hpp"
#include "tests/cache_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;
using harmonics::engine::testing::CacheFolder;
namespace fs = std::filesystem;

namespace {

// relu(a * b + c) with a scalar b and a row c.
DeviceCall sample_chain(int64_t rows, int64_t columns) {
  DeviceCall call("fused_elementwise", {},
                  {numbers({rows, columns}, 1), numbers({}, 2), numbers({columns}, 3), numbers({rows, 1}, 4)},
                  {rows, columns});
  call.chain({{"mul", 0, 1, 0, HX_F32}, {"add", 4, 2, 0, HX_F32}, {"maximum", 5, 3, 0, HX_F32}}, {6});
  return call;
}

void expect_sample(DeviceCall& call, int64_t rows, int64_t columns) {
  const Buffer a = numbers({rows, columns}, 1), b = numbers({}, 2), c = numbers({columns}, 3),
               d = numbers({rows, 1}, 4);
  const std::vector<float> y = call.run();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto at = static_cast<size_t>(i);
    INFO("element " << i);
    REQUIRE(y[at] == std::max(a.numbers[at] * b.numbers[0] + c.numbers[static_cast<size_t>(i % columns)],
                              d.numbers[static_cast<size_t>(i / columns)]));
  }
}

hx_call_site site_of(const std::vector<hx_type>& in, const std::vector<hx_type>& out,
                     const std::vector<hx_scalar_op>& chain, const std::vector<uint32_t>& stored) {
  hx_call_site site{};
  site.struct_size = sizeof site;
  site.op = "fused_elementwise";
  site.n_inputs = static_cast<uint32_t>(in.size());
  site.n_outputs = static_cast<uint32_t>(out.size());
  site.inputs = in.data();
  site.outputs = out.data();
  site.n_chain = static_cast<uint32_t>(chain.size());
  site.chain = chain.data();
  site.chain_outputs = stored.data();
  return site;
}

// Returns sources with every type and every broadcasting of inputs.
std::vector<std::string> sources() {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<hx_type>& in, const std::vector<hx_type>& out,
                       const std::vector<hx_scalar_op>& chain, const std::vector<uint32_t>& stored) {
    ChainSource source;
    REQUIRE(chain_source(site_of(in, out, chain, stored), source));
    all.push_back(source.text);
  };
  const std::vector<int64_t> s{3, 5, 7};
  add({type_for(s), type_for({}), type_for({7}), type_for({5, 1}), type_for({3, 1, 7})}, {type_for(s), type_for(s)},
      {{"mul", 0, 1, 0, HX_F32},
       {"add", 5, 2, 0, HX_F32},
       {"tanh", 6, 0, 0, HX_F32},
       {"pow", 7, 3, 0, HX_F32},
       {"logistic", 8, 0, 0, HX_F32},
       {"remainder", 9, 4, 0, HX_F32}},
      {7, 10});
  std::vector<hx_scalar_op> unary;
  uint32_t r = 0;
  for (const char* op : {"neg", "abs", "sign", "floor", "ceil", "round", "exp", "expm1", "log", "log1p", "sqrt",
                         "rsqrt", "sin", "cos", "tanh", "erf", "logistic"})
    unary.push_back({op, r++, 0, 0, 0});
  for (const uint32_t dtype : {HX_F32, HX_F64, HX_F16, HX_BF16}) {
    for (auto& o : unary) o.dtype = dtype;
    add({type_for(s, dtype)}, {type_for(s, dtype)}, unary, {r});
  }
  const uint32_t types[] = {HX_BOOL, HX_U8,  HX_I8,  HX_I16,  HX_U16, HX_I32, HX_U32,
                            HX_I64,  HX_U64, HX_F16, HX_BF16, HX_F32, HX_F64};
  for (const uint32_t from : types) {  // casts to every type, chained
    std::vector<hx_scalar_op> casts;
    std::vector<hx_type> results;
    std::vector<uint32_t> stored;
    for (const uint32_t to : types) {
      stored.push_back(static_cast<uint32_t>(casts.size()) + 1);
      casts.push_back({"cast", 0, 0, 0, to});
      results.push_back(type_for(s, to));
    }
    add({type_for(s, from)}, results, casts, stored);
    if (from == HX_BOOL) continue;
    add({type_for(s, from), type_for({7}, from)}, {type_for(s, from)},
        {{"add", 0, 1, 0, from},
         {"sub", 2, 1, 0, from},
         {"mul", 3, 1, 0, from},
         {"div", 4, 1, 0, from},
         {"remainder", 5, 1, 0, from},
         {"less", 6, 1, 0, HX_BOOL},
         {"select", 7, 6, 0, from},
         {"maximum", 8, 1, 0, from}},
        {9});
  }
  return all;
}

}  // namespace

TEST_CASE("cuda chains: equal to single operations for all shapes") {
  const FreshSettings fresh;
  const CacheFolder cache;
  Machine machine(open_driver(), open_compiler());
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {1, 9}, {7, 1}, {61, 67}, {1, 1025}}) {
    INFO(rows << " x " << columns);
    DeviceCall call = sample_chain(rows, columns);
    REQUIRE(call.plan(machine) == "elementwise chain");
    expect_sample(call, rows, columns);
  }
}

TEST_CASE("cuda chains: compiled once, cached on disk, rebuilt if damaged") {
  const FreshSettings fresh;
  const CacheFolder cache;
  const auto compiled_by_new_machine = [] {
    Machine machine(open_driver(), open_compiler());
    const int before = emulated::settings().compiled;
    for (int again = 0; again < 2; ++again) {
      DeviceCall call = sample_chain(4, 6);
      REQUIRE(call.plan(machine) == "elementwise chain");
      expect_sample(call, 4, 6);
    }
    return emulated::settings().compiled - before;
  };
  CHECK(compiled_by_new_machine() == 1);
  CHECK(compiled_by_new_machine() == 0);
  REQUIRE(cache.files().size() == 1);
  const fs::path file = cache.files()[0];
  fs::resize_file(file, fs::file_size(file) / 2);
  CHECK(compiled_by_new_machine() == 1);
  CHECK(compiled_by_new_machine() == 0);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-100, std::ios::end);
    bytes.write("damage", 6);
  }
  CHECK(compiled_by_new_machine() == 1);
  CHECK(cache.files().size() == 1);  // no temporary files remain
}

TEST_CASE("cuda chains: declined with a reason without NVRTC") {
  const FreshSettings fresh;
  emulated::settings().has_compiler = false;
  Machine machine(open_driver(), open_compiler());
  DeviceCall call = sample_chain(4, 6);
  CHECK(call.plan(machine).empty());
  CHECK(std::string(harmonics_api()->last_error(nullptr)).find("libnvrtc.so.13 is not found") != std::string::npos);
}

TEST_CASE("cuda chains: NVRTC compiles every chain") {
  const auto nvrtc = open_nvrtc();
  if (const std::string why = nvrtc->unavailable(); !why.empty()) {
    WARN("nothing is tested: " << why);
    return;
  }
  Facts facts;
  for (const int major : {8, 9, 10}) {
    facts.major = major;
    for (const std::string& source : sources()) CHECK(nvrtc->compile(source, facts).size() > 500);
  }
  facts.major = 99;  // unknown to the compiler: PTX for the newest it knows
  const std::string ptx = nvrtc->compile(sources()[0], facts);
  CHECK(ptx.find(".visible .entry chain(") != std::string::npos);
  CHECK_THROWS_WITH(nvrtc->compile("not CUDA", facts), Catch::Contains("NVRTC cannot compile a generated program"));
}

#ifdef HARMONICS_NVCC
TEST_CASE("cuda chains: nvcc compiles all chains in one program") {
  const CacheFolder folder;
  const fs::path from = fs::temp_directory_path() / "harmonics-chains.cu";
  std::string text;
  int n = 0;
  for (const std::string& source : sources()) {
    // Each in a separate namespace, with a common prelude.
    std::string one = source;
    const std::string name = "extern \"C\" __global__ void chain(";
    one.replace(one.find(name), name.size(), "__global__ void chain(");
    std::string macros;  // defined once for all
    for (size_t at; (at = one.find("#define")) != std::string::npos;) {
      const size_t end = one.find('\n', at);
      if (n == 0) macros += one.substr(at, end - at) + "\n";
      one.erase(at, end - at + 1);
    }
    text += macros + "namespace n" + std::to_string(n++) + " {\n" + one + "}\n";
  }
  std::ofstream(from) << text;
  const std::string command = std::string("timeout 250 ") + HARMONICS_NVCC +
                              " -std=c++17 --ptx -arch=compute_80 -w -o /dev/null " + from.string();
  CHECK(std::system(command.c_str()) == 0);
  fs::remove(from);
}
#endif
