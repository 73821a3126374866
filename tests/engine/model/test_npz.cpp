// Weights in NPZ files, written by NumPy (npz/make.py).
#include <catch2/catch.hpp>

#include <fstream>

#include "engine/model/npz.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string npz_path(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/engine/model/npz/" + name;
}

std::string npz_bytes(const std::string& name) {
  std::ifstream in(npz_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
std::vector<T> elements(const HTensor& t) {
  return std::vector<T>(t.data<T>(), t.data<T>() + t.size());
}

template <typename T>
std::vector<T> rising(size_t n) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<T>(i);
  return v;
}

}  // namespace

TEST_CASE("npz: arrays of every order and type are tensors in row-major order") {
  const std::string name = GENERATE(as<std::string>(), "stored.npz", "deflated.npz");
  INFO(name);
  const TensorFile file = read_weights(npz_path(name));
  REQUIRE(file.tensors.size() == 8);
  CHECK(file.mapped);
  CHECK(file.metadata.empty());
  const HTensor& weight = file.tensors.at("x.o.affine.weight");
  CHECK(weight.shape() == Shape{2, 3});
  CHECK(elements<float>(weight) == rising<float>(6));
  CHECK(file.tensors.at("fortran").shape() == Shape{2, 3, 4});
  CHECK(elements<int32_t>(file.tensors.at("fortran")) == rising<int32_t>(24));
  CHECK(elements<double>(file.tensors.at("big")) == rising<double>(6));
  CHECK(elements<int16_t>(file.tensors.at("both")) == rising<int16_t>(6));
  CHECK(elements<bool>(file.tensors.at("flags")) == std::vector<bool>{true, false, true});
  CHECK(file.tensors.at("half").dtype() == DType::F16);
  CHECK(file.tensors.at("one").shape() == Shape{});
  CHECK(elements<int64_t>(file.tensors.at("one")) == std::vector<int64_t>{7});
  CHECK(file.tensors.at("none").shape() == Shape{0, 3});
  // Single bytes are always aligned, so stored ones are views. Byte-swapped ones are copies.
  CHECK(file.tensors.at("flags").raw()->storage->owned() == (name == "deflated.npz"));
  CHECK(file.tensors.at("big").raw()->storage->owned());
}

TEST_CASE("npz: every truncation and every changed element is refused") {
  const std::string whole = npz_bytes("stored.npz");
  const auto message = [](const std::string& bytes) {
    return message_of([&] { read_npz(bytes.data(), bytes.size(), "w.npz"); });
  };
  REQUIRE(message(whole) == "no error");
  for (size_t n = 0; n < whole.size(); n += 7) {
    INFO(n);
    CHECK(message(whole.substr(0, n)) != "no error");
  }
  std::string changed = whole;
  const size_t at = changed.find("NUMPY") + 127;  // the first element of the first array
  changed[at] = static_cast<char>(changed[at] ^ 1);
  CHECK(message(changed).find("'w.npz#x.o.affine.weight.npy' is damaged: its checksum does not fit") == 0);
}

TEST_CASE("npz: members that are not arrays are refused by name") {
  std::string bytes = npz_bytes("stored.npz");
  for (size_t at = 0; (at = bytes.find("flags.npy", at)) != std::string::npos;) bytes.replace(at, 9, "flags.txt");
  CHECK(message_of([&] { read_npz(bytes.data(), bytes.size(), "w.npz"); }) ==
        "'w.npz#flags.txt' is not an array of an NPZ file, whose members are NAME.npy; save arrays with numpy.savez");
}
