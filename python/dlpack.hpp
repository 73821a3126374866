// The C structures of DLPack (https://dmlc.github.io/dlpack), as capsules named "dltensor" contain them.
#pragma once

#include <cstdint>

namespace harmonics::python {

enum DlDeviceType : int32_t { kDlCpu = 1, kDlCudaHost = 3 };
enum DlCode : uint8_t { kDlInt = 0, kDlUInt = 1, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6 };

struct DlDevice {
  int32_t type;
  int32_t number;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);  // may be null
};

}  // namespace harmonics::python
