// Include this in a plugin and define
//
//   extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) { ... }
//
// This header defines the descriptor of the library, which the host reads from the file before it loads any code.
// HARMONICS_PLUGIN("org.example.mine", "1.0.0", "MIT", "Example") in one source file replaces the default descriptor.
#pragma once

#include <harmonics/augmentation.hpp>
#include <harmonics/function.hpp>
#include <harmonics/functional.hpp>
#include <harmonics/memory_device.hpp>
#include <harmonics/metric.hpp>
#include <harmonics/training.hpp>

#if defined(__clang__)
#define HARMONICS_COMPILER "clang " __clang_version__
#else
#define HARMONICS_COMPILER "g++ " __VERSION__
#endif

// `weak`: one descriptor per library, for any number of sources that include this header.
extern "C" __attribute__((visibility("default"), weak, used)) const hx_plugin_abi harmonics_plugin_abi_default = {
    "HXPLUG1", sizeof(hx_plugin_abi), HX_ABI_MAJOR, HX_ABI_MINOR, HX_ABI_MIN_MINOR, 0, "", "0.0.0", "",
    "",        HARMONICS_COMPILER};

#define HARMONICS_PLUGIN(id, version, license, vendor)                                                         \
  extern "C" __attribute__((visibility("default"), used)) const hx_plugin_abi harmonics_plugin_abi = {         \
      "HXPLUG1", sizeof(hx_plugin_abi), HX_ABI_MAJOR, HX_ABI_MINOR, HX_ABI_MIN_MINOR, 0, id, version, license, \
      vendor,    HARMONICS_COMPILER}

extern "C" __attribute__((visibility("default"))) void harmonics_register(harmonics::FunctionRegistry& registry);
