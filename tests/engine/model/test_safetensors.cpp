#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <harmonics/ops.hpp>

#include "engine/base/read_file.hpp"
#include "engine/model/safetensors.hpp"
#include "safetensors_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::safetensors_bytes;
namespace fs = std::filesystem;

namespace {

TensorFile read_bytes(const std::string& bytes) { return read_safetensors(bytes.data(), bytes.size(), "t"); }

template <typename Body>
std::string refused_file(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Weights);
    return e.what();
  }
  return "nothing";
}

// Returns the error for a file with this header and data, without "'t' is not a safetensors file: ".
std::string fault(const std::string& header, const std::string& data = "", uint64_t length = UINT64_MAX) {
  const std::string text = refused_file([&] { read_bytes(safetensors_bytes(header, data, length)); });
  const std::string begin = "'t' is not a safetensors file: ";
  return text.rfind(begin, 0) == 0 ? text.substr(begin.size()) : text;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::vector<float> floats(const HTensor& x) { return {x.data<float>(), x.data<float>() + x.size()}; }

std::string data_folder() {
  const char* folder = std::getenv("HARMONICS_TEST_DATA");
  return folder ? folder : std::string(HARMONICS_SOURCE_DIR) + "/../shared/data";
}

}  // namespace

TEST_CASE("safetensors: round trip") {
  TensorFile file;
  file.metadata = {{"format", "pt"}, {"text", "quote \" backslash \\ line\nß"}};
  file.tensors["weight"] = HTensor::from<float>({2, 2}, {1, 2.5, -3, 4});
  file.tensors["a.scalar"] = HTensor::from<double>({}, {0.1});
  file.tensors["bytes"] = HTensor::from<uint8_t>({3}, {1, 2, 3});
  file.tensors["none"] = HTensor(DType::I64, {0, 4});
  file.tensors["truth"] = HTensor(DType::Bool, {2}, "\1\0");
  const std::string bytes = write_safetensors(file);
  const TensorFile back = read_bytes(bytes);
  CHECK(back.metadata == file.metadata);
  REQUIRE(back.tensors.size() == file.tensors.size());
  for (const auto& [name, x] : file.tensors) {
    const HTensor& y = back.tensors.at(name);
    CHECK(type_of(y) == type_of(x));
    CHECK(std::memcmp(y.bytes(), x.bytes(), type_of(x).bytes()) == 0);
  }
  CHECK(write_safetensors(back) == bytes);
}

TEST_CASE("safetensors: every element type is written and read") {
  TensorFile file;
  for (uint32_t d = 0; d <= HX_F64; ++d) file.tensors["t" + std::to_string(d)] = HTensor(static_cast<DType>(d), {3});
  const TensorFile back = read_bytes(write_safetensors(file));
  for (uint32_t d = 0; d <= HX_F64; ++d)
    CHECK(back.tensors.at("t" + std::to_string(d)).dtype() == static_cast<DType>(d));
}

TEST_CASE("safetensors: floats of eight bits are read and written") {
  const std::string bytes = safetensors_bytes(
      R"({"a":)" + tensor("F8_E4M3", "[3]", "[0,3]") + R"(,"b":)" + tensor("F8_E5M2", "[2]", "[3,5]") + "}",
      "\x38\x7e\xc0\x3c\x7b");
  const TensorFile file = read_bytes(bytes);
  CHECK(floats(cast(file.tensors.at("a"), DType::F32)) == std::vector<float>{1, 448, -2});
  CHECK(floats(cast(file.tensors.at("b"), DType::F32)) == std::vector<float>{1, 57344});
  const std::string written = write_safetensors(file);  // the tensors lie in it
  const TensorFile back = read_bytes(written);
  CHECK(back.tensors.at("a").dtype() == DType::F8_E4M3);
  CHECK(std::memcmp(back.tensors.at("a").bytes(), file.tensors.at("a").bytes(), 3) == 0);
}

TEST_CASE("safetensors: blocks and four-bit types are written as bytes and read back") {
  TensorFile file;
  file.metadata["format"] = "pt";
  std::string expected;
  for (const ElementType& type : detail::element_types) {
    if (!is_stored(type.dtype)) continue;
    HTensor t(type.dtype, {3, 512});
    const size_t bytes = type_of(t).bytes();
    for (size_t i = 0; i < bytes; ++i) static_cast<char*>(t.mutable_bytes())[i] = static_cast<char>(i * 37 + type.bits);
    file.tensors[std::string(type.name)] = t;
  }
  file.tensors["plain"] = HTensor::from<uint8_t>({2, 34}, std::vector<uint8_t>(68, 7));
  file.tensors["none"] = HTensor(DType::Q8_0, {0, 64});
  const std::string written = write_safetensors(file);
  CHECK(written.find(R"("harmonics.element_type:q8_0":"q8_0[3, 512]")") != std::string::npos);
  CHECK(written.find(R"("q8_0":{"dtype":"U8","shape":[3,544])") != std::string::npos);
  CHECK(written.find(R"("harmonics.element_type:plain")") == std::string::npos);
  CHECK(written.find(R"("harmonics.element_type:f8_e4m3")") == std::string::npos);
  const TensorFile back = read_bytes(written);
  CHECK(back.metadata == file.metadata);
  REQUIRE(back.tensors.size() == file.tensors.size());
  for (const auto& [name, t] : file.tensors) {
    CAPTURE(name);
    const HTensor& found = back.tensors.at(name);
    REQUIRE(type_of(found) == type_of(t));
    REQUIRE((type_of(t).bytes() == 0 || std::memcmp(found.bytes(), t.bytes(), type_of(t).bytes()) == 0));
  }
  CHECK(write_safetensors(back) == written);
}

TEST_CASE("safetensors: false metadata of blocks is refused") {
  const auto with = [](const std::string& type, const std::string& dtype, const std::string& shape, size_t bytes,
                       const std::string& name = "w") {
    return fault(R"({"__metadata__":{"harmonics.element_type:)" + name + R"(":")" + type + R"("},"w":)" +
                     tensor(dtype, shape, "[0," + std::to_string(bytes) + "]") + "}",
                 std::string(bytes, 1));
  };
  const std::string begin = "at byte 8, tensor 'w': metadata gives it the type ";
  CHECK(with("q8_0[2, 32]", "U8", "[2,34]", 68) == "nothing");
  CHECK(with("q8_0[2, 64]", "U8", "[2,34]", 68) == begin + "'q8_0[2, 64]', but its bytes are those of q8_0[2, 32]");
  CHECK(with("q8_0[32, 2]", "U8", "[2,34]", 68) == begin + "'q8_0[32, 2]', but its bytes are those of q8_0[2, 32]");
  CHECK(with("q8_0", "U8", "[2,34]", 68) == begin + "'q8_0', but its bytes are those of q8_0[2, 32]");
  CHECK(with("q8_0[2, 32]", "U8", "[68]", 68) == begin + "'q8_0[2, 32]', but its bytes are those of q8_0[64]");
  CHECK(with("q8_0[2, 32]", "U8", "[2,35]", 70) ==
        begin + "'q8_0[2, 32]', which its rows of U8 [2, 35] cannot hold: they are U8 with a multiple of 34 bytes");
  CHECK(with("q8_0[]", "U8", "[]", 1) ==
        begin + "'q8_0[]', which its rows of U8 [] cannot hold: they are U8 with a multiple of 34 bytes");
  CHECK(with("q8_0[2, 32]", "F16", "[2,34]", 136) ==
        begin + "'q8_0[2, 32]', which its rows of F16 [2, 34] cannot hold: they are U8 with a multiple of 34 bytes");
  for (const char* type : {"f32[2, 34]", "u8[2, 34]", "f8_e4m3[2, 34]", "q9_0[2, 32]", "", "["})
    CHECK(with(type, "U8", "[2,34]", 68) == begin + "'" + type + "', which is not a type that is stored as bytes");
  CHECK(with("q8_0[2, 32]", "U8", "[2,34]", 68, "v") ==
        "at byte 8, tensor 'v': metadata gives it the type 'q8_0[2, 32]', but the file has no such tensor");
  // twice as many elements as bytes
  CHECK(with("i4[0, 1]", "U8", "[0,9223372036854775807]", 0) == begin + "'i4[0, 1]', which overflows");
  TensorFile file;
  file.metadata["harmonics.element_type:w"] = "q8_0[2, 32]";
  CHECK_THAT(refused_file([&] { write_safetensors(file); }), Catch::Contains("is reserved for the types of tensors"));
}

TEST_CASE("safetensors: bytes equal those of the reference writer") {
  TensorFile file;
  file.tensors["b"] = HTensor::from<uint8_t>({2}, {7, 8});
  file.tensors["c"] = HTensor::from<float>({1}, {1});
  file.tensors["a"] = HTensor::from<float>({1}, {2});
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(write_safetensors(file) == safetensors_bytes(padded, std::string("\0\0\0\x40\0\0\x80\x3f\x07\x08", 10)));
  CHECK(write_safetensors({}) == safetensors_bytes("{}      "));
  CHECK(read_bytes(safetensors_bytes("{}")).tensors.empty());
}

TEST_CASE("safetensors: an unaligned tensor is copied") {
  const std::string bytes =
      safetensors_bytes(R"({"x":)" + tensor("U8", "[1]", "[0,1]") + R"(,"y":)" + tensor("F32", "[2]", "[1,9]") + "}",
                        std::string("\7\0\0\x80\x3f\0\0\0\x40", 9));
  const TensorFile file = read_bytes(bytes);
  CHECK(floats(file.tensors.at("y")) == std::vector<float>{1, 2});
  CHECK(reinterpret_cast<uintptr_t>(file.tensors.at("y").bytes()) % 4 == 0);
}

TEST_CASE("safetensors: tensors of a mapped file outlive it and are copied on write") {
  const std::string path = (fs::temp_directory_path() / ("harmonics-mapped-" + std::to_string(::getpid()))).string();
  TensorFile file;
  file.tensors["w"] = HTensor::from<float>({2}, {1, 2});
  save_safetensors(file, path);
  CHECK(read_file(path, 1000) == write_safetensors(file));
  HTensor w = read_safetensors(path).tensors.at("w");
  fs::remove(path);
  CHECK(floats(w) == std::vector<float>{1, 2});
  w.mutable_data<float>()[0] = 5;
  CHECK(floats(w) == std::vector<float>{5, 2});
}

TEST_CASE("safetensors: unknown keys are ignored") {
  const std::string header =
      R"({"x":{"dtype":"U8","note":{"a":[1,{"dtype":2}],"b":null},"more":[1.5,"s",true],"shape":[1],)"
      R"("extra":-1,"data_offsets":[0,1]}})";
  CHECK(read_bytes(safetensors_bytes(header, "\5")).tensors.at("x").item<uint8_t>() == 5);
}

TEST_CASE("safetensors: invalid lengths are rejected") {
  CHECK(refused_file([] { read_bytes("1234567"); }) ==
        "'t' is not a safetensors file: at byte 0, it holds 7 bytes, the header's length alone takes 8");
  CHECK(refused_file([] { read_bytes("GGUF1234"); }) == "'t' is not a safetensors file, but a GGUF file");
  CHECK(refused_file([] { read_bytes("a,b\n1,2\n"); }) == "'t' is not a safetensors file, but a text");
  CHECK(fault("{}", "", 3) == "at byte 0, the header's length is 3, but only 2 bytes follow");
  CHECK(fault("{}", "", 1ull << 63) ==
        "at byte 0, the header's length is 9223372036854775808, at most 100000000 are allowed");
  CHECK(fault("", "") == "at byte 8, the header must begin with '{'");
  CHECK(fault(" {}") == "at byte 8, the header must begin with '{'");
  CHECK(fault("[]") == "at byte 8, the header must begin with '{'");
}

TEST_CASE("safetensors: invalid JSON is rejected") {
  CHECK(fault(R"({"x":)").rfind("at byte 8, the header is not JSON: ", 0) == 0);
  CHECK(fault(R"({"x" 5})").rfind("at byte 13, the header is not JSON: ", 0) == 0);
  CHECK(fault(R"({"x":{"shape":[1 2]}})").rfind("at byte 25, tensor 'x': the header is not JSON: ", 0) == 0);
  CHECK(fault(R"({"x":{"n":tru}})").rfind("at byte 18, tensor 'x': the header is not JSON: ", 0) == 0);
  CHECK(fault(R"({"x":{"n":nul}})").rfind("at byte 18, tensor 'x': the header is not JSON: ", 0) == 0);
  CHECK(fault("{}  {}") == "at byte 12, only spaces may follow the header's JSON");
  CHECK(fault(std::string("{}\0", 3)).find("the header is not JSON: ") != std::string::npos);
  CHECK(fault("{\"\xff\":1}").find("the header is not JSON: ") != std::string::npos);
  CHECK(fault("{\"a\":" + std::string(100, '[') + "}").find("a list where the object of 'a' was expected") !=
        std::string::npos);
  const auto nested = [](size_t levels) {
    return R"({"x":{"n":)" + std::string(levels, '[') + std::string(levels, ']') + "}}";
  };
  CHECK(fault(nested(65)).find("tensor 'x': the value of an unknown key is nested deeper than 64") !=
        std::string::npos);
  CHECK(fault(nested(64)) == "at byte 8, tensor 'x': has no 'dtype'");
  CHECK(fault(R"({"x":{"n":)" + std::string(100, '[')).find("the header is not JSON: ") != std::string::npos);
}

TEST_CASE("safetensors: values of another kind are rejected") {
  const std::string one = tensor("U8", "[1]", "[0,1]");
  CHECK(fault(R"({"x":5})", "a") == "at byte 13, a number where the object of 'x' was expected");
  CHECK(fault(R"({"x":"y"})", "a").find("a string where the object of 'x' was expected") != std::string::npos);
  CHECK(fault(R"({"x":null})", "a").find("null where the object of 'x' was expected") != std::string::npos);
  CHECK(fault(R"({"x":{"dtype":7}})", "a").find("tensor 'x': a number where the string 'dtype' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"dtype":{}}})", "a").find("tensor 'x': an object where the string 'dtype' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"shape":true}})", "a").find("a truth value where the list 'shape' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"shape":["1"]}})", "a").find("a string where a whole number of 'shape' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"shape":[[1]]}})", "a").find("a list where a whole number of 'shape' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"shape":[1.0]}})", "a")
            .find("tensor 'x': a number of 'shape' is not whole or larger than 64 bits hold") != std::string::npos);
  CHECK(fault(R"({"x":{"shape":[99999999999999999999]}})", "a").find("not whole or larger") != std::string::npos);
  CHECK(fault(R"({"x":{"shape":[-1]}})", "a").find("tensor 'x': a number of 'shape' is negative") != std::string::npos);
  CHECK(fault(R"({"__metadata__":{"a":1}})").find("a number where the value of metadata key 'a' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"__metadata__":"a"})").find("a string where the object of '__metadata__' was expected") !=
        std::string::npos);
  CHECK(fault(R"({"x":)" + one + R"(,"x":)" + one + "}", "a").find("tensor 'x': the name occurs a second time") !=
        std::string::npos);
  CHECK(fault(R"({"x":{"dtype":"U8","dtype":"U8"}})").find("tensor 'x': the key 'dtype' occurs a second time") !=
        std::string::npos);
  CHECK(fault(R"({"__metadata__":{"a":"","a":""}})").find("the key 'a' occurs a second time") != std::string::npos);
}

TEST_CASE("safetensors: contradictory tensors are rejected") {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x":)" + tensor(dtype, shape, offsets) + "}";
  };
  CHECK(fault(R"({"x":{"shape":[],"data_offsets":[0,1]}})", "a") == "at byte 8, tensor 'x': has no 'dtype'");
  CHECK(fault(R"({"x":{"dtype":"U8","data_offsets":[0,1]}})", "a") == "at byte 8, tensor 'x': has no 'shape'");
  CHECK(fault(R"({"x":{"dtype":"U8","shape":[]}})", "a") == "at byte 8, tensor 'x': has no 'data_offsets'");
  CHECK(fault(one("F8_E8M0", "[1]", "[0,1]"), "a") ==
        "at byte 8, tensor 'x': dtype 'F8_E8M0' is not one that can be read: BOOL, U8, I8, F8_E5M2, F8_E4M3, I16, U16, "
        "F16, BF16, I32, U32, F32, F64, I64, U64");
  CHECK(fault(one("U8", "[1]", "[0]"), "a") ==
        "at byte 8, tensor 'x': data_offsets = [0] must have two entries, begin and end");
  CHECK(fault(one("U8", "[1]", "[1,0]"), "a") ==
        "at byte 8, tensor 'x': data_offsets = [1, 0] are not inside the 1 byte of data");
  CHECK(fault(one("U8", "[2]", "[0,2]"), "a") ==
        "at byte 8, tensor 'x': data_offsets = [0, 2] are not inside the 1 byte of data");
  CHECK(fault(one("F32", "[2,3]", "[0,20]"), std::string(20, 'a')) ==
        "at byte 8, tensor 'x': F32 [2, 3] takes 24 bytes, data_offsets = [0, 20] hold 20");
  CHECK(fault(one("F32", "[4294967296,4294967296]", "[0,0]")) ==
        "at byte 8, tensor 'x': the size of shape [4294967296, 4294967296] overflows");
  CHECK(fault(one("U8", "[18446744073709551615]", "[0,0]")) ==
        "at byte 8, tensor 'x': the dimension 18446744073709551615 is too large");
  CHECK(fault(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), "a") ==
        "at byte 8, tensor 'x': has 9 dimensions; a tensor has at most 8");
  CHECK(fault(one("BOOL", "[2]", "[0,2]"), "\1\2").find(", tensor 'x': a BOOL is the byte 0 or 1, not 2") !=
        std::string::npos);
  CHECK(fault(R"({"x\u0000y":)" + tensor("U8", "[1]", "[0,1]") + "}", "a") ==
        "at byte 8, tensor 'x?y': has a name with a zero character in it");
}

TEST_CASE("safetensors: tensors must cover the data") {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"x":)" + tensor("U8", "[2]", first) + R"(,"y":)" + tensor("U8", "[2]", second) + "}";
  };
  const std::string header = two("[0,2]", "[2,4]");
  CHECK(read_bytes(safetensors_bytes(header, "abcd")).tensors.size() == 2);
  CHECK(read_bytes(safetensors_bytes(two("[2,4]", "[0,2]"), "abcd")).tensors.size() == 2);
  const auto at = [&](size_t byte) { return "at byte " + std::to_string(8 + header.size() + byte) + ", "; };
  CHECK(fault(two("[0,2]", "[3,5]"), "abcde") == at(3) +
                                                     "tensor 'y': begins at byte 3 of the data, expected 2, where 'x' "
                                                     "ends; a gap hides bytes that no tensor owns");
  CHECK(fault(two("[0,2]", "[1,3]"), "abc") ==
        at(1) + "tensor 'y': begins at byte 1 of the data, expected 2, where 'x' ends; the two overlap");
  CHECK(fault(two("[1,3]", "[3,5]"), "abcde") ==
        at(1) +
            "tensor 'x': begins at byte 1 of the data, expected 0, the first; a gap hides bytes that no tensor owns");
  CHECK(fault(header, "abcdef") == at(4) + "2 bytes follow the last tensor; the file must end there");
}

TEST_CASE("safetensors: names in messages are shortened and sanitised") {
  const std::string text = fault(R"({")" + std::string(200, 'n') + R"(\u001b[2J":5})");
  CHECK(text.find(std::string(80, 'n') + "...'") != std::string::npos);
  CHECK(text.find(std::string(90, 'n')) == std::string::npos);
  CHECK(fault("{\"\\u001b[2J\":5}").find("the object of '?[2J'") != std::string::npos);
}

TEST_CASE("safetensors: unwritable content is rejected") {
  const auto written = [](const std::string& name, const std::string& value = "") {
    TensorFile file;
    file.tensors[name] = HTensor(DType::F32, {1});
    if (!value.empty()) file.metadata["key"] = value;
    return refused_file([&] { write_safetensors(file); });
  };
  CHECK(written("__metadata__") ==
        "no tensor in a safetensors file can be called '__metadata__'; give it another name");
  CHECK(written("a\xff") == "tensor name 'a?' is not UTF-8 and cannot be saved");
  CHECK(written("a", "\xff") == "metadata value '?' is not UTF-8 and cannot be saved");
}

TEST_CASE("safetensors: a too long header is not written, the old file stays") {
  const fs::path path = fs::temp_directory_path() / ("harmonics-header-" + std::to_string(::getpid()));
  TensorFile file;
  file.tensors["a"] = HTensor::from(Shape{1}, std::vector<float>{1});
  save_safetensors(file, path.string());
  const std::string former = read_file(path.string(), 1000);
  file.metadata["harmonics.run"] = std::string(100'000'000, 'x');
  CHECK(refused_file([&] { save_safetensors(file, path.string()); }) ==
        "a safetensors file cannot hold this: its header would take 100000096 bytes, at most 100000000 are allowed");
  CHECK(read_file(path.string(), 1000) == former);
  file.metadata["harmonics.run"].resize(99'999'000);
  const std::string bytes = write_safetensors(file);
  CHECK(read_bytes(bytes).metadata.at("harmonics.run").size() == 99'999'000);
  fs::remove(path);
}

TEST_CASE("safetensors: other writers' files round-trip byte for byte") {
  const fs::path folder = fs::path(data_folder()) / "safetensors";
  if (!fs::exists(folder)) {
    WARN("no safetensors files in " << folder << "; set HARMONICS_TEST_DATA");
    return;
  }
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    INFO(entry.path());
    const TensorFile file = read_safetensors(entry.path().string());
    CHECK_FALSE(file.tensors.empty());
    CHECK(write_safetensors(file) == read_file(entry.path().string(), 1 << 24));
    ++files;
  }
  CHECK(files > 0);
  const TensorFile net = read_safetensors((folder / "mnist-mlp.safetensors").string());
  CHECK(type_of(net.tensors.at("l1.weight")).str() == "f32[128, 784]");
}

TEST_CASE("safetensors: bytes after the last tensor are refused") {
  const fs::path path = fs::path(data_folder()) / "malformed/safetensors/trailing-bytes.safetensors";
  if (!fs::exists(path)) {
    WARN("no file " << path << "; set HARMONICS_TEST_DATA");
    return;
  }
  const std::string text = refused_file([&] { read_safetensors(path.string()); });
  CHECK(text.find("'" + path.string() + "' is not a safetensors file: at byte ") == 0);
  CHECK(text.find("follow the last tensor; the file must end there") != std::string::npos);
}
