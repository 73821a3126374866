#include <cstring>
#include <fstream>

#include <boost/json.hpp>

#include "formats/npy.hpp"
#include "producers/file/npy.hpp"
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string npy(const std::string& dictionary, const std::string& elements, int major = 1) {
  std::string s = std::string("\x93NUMPY", 6) + static_cast<char>(major) + '\0';
  const auto n = static_cast<uint32_t>(dictionary.size());
  s += static_cast<char>(n & 255);
  s += static_cast<char>(n >> 8);
  if (major > 1) s += std::string(2, '\0');
  return s + dictionary + elements;
}
std::string header(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

double value_at(const HTensor& t, size_t i) {
  switch (t.dtype()) {
    case DType::Bool:
      return static_cast<const uint8_t*>(t.bytes())[i];
    case DType::U8:
      return t.data<uint8_t>()[i];
    case DType::I8:
      return t.data<int8_t>()[i];
    case DType::I16:
      return t.data<int16_t>()[i];
    case DType::U16:
      return t.data<uint16_t>()[i];
    case DType::I32:
      return t.data<int32_t>()[i];
    case DType::U32:
      return t.data<uint32_t>()[i];
    case DType::I64:
      return static_cast<double>(t.data<int64_t>()[i]);
    case DType::U64:
      return static_cast<double>(t.data<uint64_t>()[i]);
    case DType::F32:
      return t.data<float>()[i];
    case DType::F64:
      return t.data<double>()[i];
    default:
      FAIL("no value");
      return 0;
  }
}
double expected_value(const boost::json::value& v) { return v.is_bool() ? v.get_bool() : v.to_number<double>(); }

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return "bool";
    case DType::U8:
      return "uint8";
    case DType::I8:
      return "int8";
    case DType::I16:
      return "int16";
    case DType::U16:
      return "uint16";
    case DType::I32:
      return "int32";
    case DType::U32:
      return "uint32";
    case DType::I64:
      return "int64";
    case DType::U64:
      return "uint64";
    case DType::F16:
      return "float16";
    case DType::F32:
      return "float32";
    case DType::F64:
      return "float64";
    default:
      return "?";
  }
}

void check_array(const ArrayLayout& layout, const boost::json::object& expected) {
  CHECK(numpy_name(layout.dtype) == expected.at("ndarray").as_string());
  Shape shape{static_cast<int64_t>(layout.count)};
  for (const int64_t d : layout.sample) shape.push_back(d);
  std::vector<int64_t> dims;
  for (const auto& d : expected.at("shape").as_array()) dims.push_back(d.as_int64());
  CHECK(shape.vector() == dims);
  CHECK(layout.column_major == expected.at("fortran").as_bool());
  if (layout.dtype == DType::F16)
    return;  // no C++ type to compare with; its bytes are copied like those of every
             // other type
  ArrayProducer producer(layout);
  size_t k = 0;
  const auto& first = expected.at("first").as_array();
  while (HTensor sample = producer.next())
    for (size_t i = 0; i < static_cast<size_t>(sample.size()) && k < first.size(); ++i, ++k)
      CHECK(value_at(sample, i) == Approx(expected_value(first[k])).epsilon(1e-15));
  CHECK(k == first.size());
}

std::string refused_npy(const TemporaryFolder& folder, const std::string& bytes) {
  const std::string path = folder.write("x.npy", bytes), text = refusal([&] { open_file(path, Options{}); });
  return text.substr(0, path.size() + 2) == "'" + path + "'" ? text.substr(path.size() + 3) : text;
}

}  // namespace

TEST_CASE("npy files are read as numpy reads them") {
  if (!have_data("numpy/expected.json")) return;
  std::ostringstream text;
  text << std::ifstream(data_path("numpy/expected.json")).rdbuf();
  const auto files = boost::json::parse(text.str()).at("files").as_object();
  int arrays = 0;
  for (const auto& [name, expected] : files) {
    if (!expected.is_array()) continue;  // NPZ
    const auto file = FileBytes::open(data_path("numpy/" + std::string(name)));
    size_t at = 0;
    for (const auto& array : expected.as_array()) {
      INFO(name << " at " << at);
      if (array.at("ndarray").as_string().starts_with("complex")) {
        CHECK(refusal([&] { read_npy_at(file, at, at); }).find("has the dtype '<c") != std::string::npos);
        break;
      }
      check_array(read_npy_at(file, at, at), array.as_object());
      ++arrays;
    }
  }
  CHECK(arrays == 22);
  const std::string several = data_path("numpy/iree-array_types.npy");
  CHECK(refusal([&] { open_file(several, Options{}); }) ==
        "'" + several + "' has 1800 bytes after its array, which ends at byte 130; save one array per file");
}

TEST_CASE("npy files of every version, byte order and memory order are read") {
  const TemporaryFolder folder;
  const std::vector<int32_t> rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2, 3, 2]
  const std::vector<int32_t> columns{1, 7, 3, 9, 5, 11, 2, 8, 4, 10, 6, 12};
  const std::vector<std::vector<int32_t>> expected{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
  std::string swapped = raw(rows);
  for (size_t i = 0; i < swapped.size(); i += 4)
    std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(i),
                 swapped.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  for (const std::string& bytes :
       {npy(header("<i4", "(2, 3, 2)"), raw(rows)), npy(header("<i4", "(2, 3, 2)"), raw(rows), 2),
        npy(header("=i4", "(2, 3, 2)"), raw(rows), 3), npy(header(">i4", "(2, 3, 2)"), swapped),
        npy(header("<i4", "(2,3,2,)", "True"), raw(columns)),
        npy("{\"shape\":(2L, 3L, 2L),\"descr\":\"<i4\",\"fortran_order\":False}", raw(rows))}) {
    const auto producer = open_file(folder.write("x", bytes), Options{});
    CHECK(producer->describe()->sample == Shape{3, 2});
    CHECK(drain<int32_t>(*producer) == expected);
    REQUIRE(producer->rewind());
    CHECK(drain_blocks<int32_t>(*producer, 2) == expected);
  }
  const auto flags = open_file(folder.write("b.npy", npy(header("|b1", "(3,)"), std::string("\0\1\7", 3))), Options{});
  CHECK(flags->describe()->dtype == DType::Bool);
  uint8_t values[3];
  CHECK(flags->read(3, values) == 3);
  CHECK((values[0] == 0 && values[1] == 1 && values[2] == 1));
}

TEST_CASE("broken npy files are refused") {
  const TemporaryFolder folder;
  const std::string four = raw<float>({1, 2, 3, 4});
  CHECK(refused_npy(folder, "x") == "is not NPY: no NPY array begins at byte 0");
  CHECK(refused_npy(folder, "\x93NUMPY\1") == "ends at byte 7 inside its NPY header; get the file again");
  CHECK(refused_npy(folder, npy(header("<f4", "(4,)"), four, 4)) ==
        "is NPY of version 4.0; versions 1 to 3 can be read");
  CHECK(refused_npy(folder, npy(header("<f4", "(4,)"), "").substr(0, 40)) ==
        "is truncated: its NPY header has 58 bytes, 30 are there; get the file again");
  CHECK(refused_npy(folder, npy(header("<f4", "(5,)"), four)) ==
        "is truncated: its NPY header promises 20 bytes of elements, 16 are there; get the file again");
  CHECK(refused_npy(folder, npy(header("<f4", "(3,)"), four)) ==
        "has 4 bytes after its array, which ends at byte 80; save one array per file");
  CHECK(refused_npy(folder, npy(header("<f4", "()"), four)) ==
        "holds one number without axes (its array); the first axis counts the samples; save it with the shape [1]");
  CHECK(refused_npy(folder, npy(header("<f4", "(2, 0)"), "")) == "holds no elements: axis 1 of its array has size 0");
  CHECK(refused_npy(folder, npy(header("<f4", "(4294967296, 4294967296, 4294967296)"), four)) ==
        "promises an array of shape [4294967296, 4294967296, 4294967296], more than any memory holds; the file is "
        "damaged");
  CHECK(refused_npy(folder, npy(header("<f4", "(99999999999999999999,)"), four)) ==
        "has a damaged NPY header: found '99999999' at byte 61, expected a size below 2^64");
  CHECK(refused_npy(folder, npy(header("<c8", "(2,)"), four)) ==
        "has the dtype '<c8'; numbers of 1 to 8 bytes can be read (b1, u1 to u8, i1 to i8, f2, f4, f8); convert it "
        "with array.astype('f4')");
  CHECK(refused_npy(folder, npy(header("<U1", "(1,)"), four)) ==
        "holds texts (dtype '<U1'), not numbers; save class numbers: numpy.unique(array, return_inverse=True)[1], or "
        "the words as a column of a CSV file");
  CHECK(refused_npy(folder, npy(header("|O", "(2,)"), four)) ==
        "holds Python objects (dtype '|O'), which are never read; save numbers: array.astype('f4')");
  CHECK(refused_npy(folder, npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four)) ==
        "holds records of several fields (a structured NPY dtype); save each field as its own array");
  CHECK(refused_npy(folder, npy("{'descr': '<f4', 'shape': (4,), }", four)) ==
        "has a damaged NPY header: it has no 'fortran_order'");
  CHECK(refused_npy(folder, npy("{'descr': '<f4', 'fortran_order': Maybe}", four)) ==
        "has a damaged NPY header: found 'Maybe}' at byte 44, expected True or False");
  CHECK(
      refused_npy(folder, npy("{'descr': '<f4', 'descr': '<f4'}", four)) ==
      "has a damaged NPY header: found ''descr':' at byte 27, expected 'descr', 'fortran_order' or 'shape', each once");
  CHECK(refused_npy(folder, npy("{'descr': '<f4'", four)) ==
        "has a damaged NPY header: found its end at byte 25, expected ','");
  CHECK(refused_npy(folder, npy(header("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), four)) ==
        "has 10 axes (its array); a sample has at most 8 beside the axis that counts samples");
}

TEST_CASE("npy: the header that is written is the one that is read") {
  const Origin origin{"a", ErrorKind::Stream};
  for (const DType dtype : {DType::Bool, DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32,
                            DType::I64, DType::U64, DType::F16, DType::F32, DType::F64})
    for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{}, std::vector<uint64_t>{7},
                                               std::vector<uint64_t>{0, 3}, std::vector<uint64_t>{2, 3, 4}})
      for (const size_t alignment : {64, 256}) {
        const std::string bytes = write_npy_header(dtype, shape, alignment);
        const std::span<const uint8_t> whole(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
        CHECK(looks_like_npy(whole.data(), whole.size()));
        CHECK_FALSE(looks_like_npy(whole.data(), 5));
        for (size_t n = 6; n < 10; ++n) CHECK_FALSE(read_npy_preamble(whole.first(n), origin));
        const auto preamble = read_npy_preamble(whole, origin);
        REQUIRE(preamble);
        CHECK(preamble->text + preamble->size == bytes.size());
        CHECK(bytes.size() % alignment == 0);
        CHECK(bytes.back() == '\n');
        const NpyHeader header =
            read_npy_header(std::string_view(bytes).substr(preamble->text), preamble->text, origin);
        CHECK(header.dtype == dtype);
        CHECK(header.shape == shape);
        CHECK_FALSE(header.swapped);
        CHECK_FALSE(header.column_major);
      }
  CHECK_THROWS_AS(write_npy_header(DType::BF16, {1}), Error);
}
