#include "wire/plain/npy_header.hpp"

namespace harmonics {

void npy_refuse(const std::string& name, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Stream, "'" + name + "' " + what + (remedy.empty() ? "" : "; " + remedy));
}

namespace {

struct NpyType {
  const char* code;
  DType dtype;
};
constexpr NpyType npy_types[] = {{"b1", DType::Bool}, {"u1", DType::U8},  {"i1", DType::I8},  {"i2", DType::I16},
                                 {"u2", DType::U16},  {"i4", DType::I32}, {"u4", DType::U32}, {"i8", DType::I64},
                                 {"u8", DType::U64},  {"f2", DType::F16}, {"f4", DType::F32}, {"f8", DType::F64}};

}  // namespace

DType dtype_of_descr(const std::string& name, const std::string& descr) {
  if (descr.size() > 1 && std::strchr("<>|=", descr[0]))
    for (const NpyType& t : npy_types)
      if (descr.compare(1, std::string::npos, t.code) == 0) return t.dtype;
  if (descr.find('O') != std::string::npos)
    npy_refuse(name, "holds Python objects (dtype '" + descr + "'), which are never read",
               "save numbers: array.astype('f4')");
  npy_refuse(name,
             "has the dtype '" + descr + "'; numbers of 1 to 8 bytes can be read (b1, u1 to u8, i1 to i8, f2, f4, f8)",
             "convert it with array.astype('f4')");
}

}  // namespace harmonics
