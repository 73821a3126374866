// harmonics.Tensor, and arrays of other libraries: through the array interface, DLPack or the buffer protocol.
#include <array>
#include <cstring>
#include <string_view>

#include "python/binding.hpp"
#include "python/dlpack.hpp"

namespace harmonics::python {

namespace {

// How other libraries write an element type. NumPy has no bf16.
struct Format {
  DType dtype;
  std::string_view interface;  // of __array_interface__
  uint8_t code, bits;          // of DLPack
};
constexpr std::array kFormats = {
    Format{DType::Bool, "|b1", kDlBool, 8},  Format{DType::U8, "|u1", kDlUInt, 8},
    Format{DType::I8, "|i1", kDlInt, 8},     Format{DType::I16, "<i2", kDlInt, 16},
    Format{DType::U16, "<u2", kDlUInt, 16},  Format{DType::I32, "<i4", kDlInt, 32},
    Format{DType::U32, "<u4", kDlUInt, 32},  Format{DType::I64, "<i8", kDlInt, 64},
    Format{DType::U64, "<u8", kDlUInt, 64},  Format{DType::F16, "<f2", kDlFloat, 16},
    Format{DType::BF16, "", kDlBfloat, 16},  Format{DType::F32, "<f4", kDlFloat, 32},
    Format{DType::F64, "<f8", kDlFloat, 64},
};

const Format* format_of(DType dtype) {
  for (const Format& format : kFormats)
    if (format.dtype == dtype) return &format;
  return nullptr;
}

std::string name_of(DType dtype) { return std::string(element_type(dtype).name); }

std::string type_name(const py::handle& object) { return py::str(py::type::of(object).attr("__name__")); }

bool has(const py::handle& object, const char* name) { return py::hasattr(object, name); }

[[noreturn]] void refuse_elements(const std::string& what, const std::string& given) {
  if (given.size() > 1 && given[0] == '>')
    throw Error(ErrorKind::Type, what + " has big-endian elements (" + given + "), which are not read")
        .note("x.astype(x.dtype.newbyteorder('=')) converts them");
  throw Error(ErrorKind::Type, what + " has elements of the type " + given + ", which has no element type here")
      .note("convert it: x.astype('float32')");
}

std::vector<int64_t> row_major(const Shape& shape, size_t item) {
  std::vector<int64_t> strides(shape.rank());
  auto step = static_cast<int64_t>(item);
  for (uint32_t axis = shape.rank(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

// Writes the elements of a strided array row-major; returns the address after the last.
char* copy_strided(const char* from, const int64_t* dims, const int64_t* strides, uint32_t rank, size_t item,
                   char* to) {
  if (rank == 0) {
    std::memcpy(to, from, item);
    return to + item;
  }
  if (rank == 1 && strides[0] == static_cast<int64_t>(item)) {
    const size_t bytes = static_cast<size_t>(dims[0]) * item;
    std::memcpy(to, from, bytes);
    return to + bytes;
  }
  for (int64_t i = 0; i < dims[0]; ++i)
    to = copy_strided(from + i * strides[0], dims + 1, strides + 1, rank - 1, item, to);
  return to;
}

ArrayView from_interface(const py::object& object, const std::string& what) {
  const auto interface = object.attr("__array_interface__").cast<py::dict>();
  const auto text = interface["typestr"].cast<std::string>();
  ArrayView view;
  const Format* format = nullptr;
  for (const Format& known : kFormats)
    if (!known.interface.empty() && known.interface == text) format = &known;
  if (!format) refuse_elements(what, text);
  view.dtype = format->dtype;
  view.shape = Shape(interface["shape"].cast<std::vector<int64_t>>());
  const bool strided = interface.contains("strides") && !interface["strides"].is_none();
  view.strides =
      strided ? interface["strides"].cast<std::vector<int64_t>>() : row_major(view.shape, element_bytes(view.dtype));
  const py::object data = interface.attr("get")("data");
  if (!py::isinstance<py::tuple>(data))
    throw Error(ErrorKind::Type, what + " is a " + type_name(object) + " whose array interface has no address");
  view.data = reinterpret_cast<const char*>(data.cast<py::tuple>()[0].cast<uintptr_t>());
  view.owner = owner_of(object);
  return view;
}

// Releases the tensor of a capsule that this module has consumed.
void release_consumed(PyObject* capsule) {
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, "used_dltensor"));
  if (managed && managed->deleter) managed->deleter(managed);
}

ArrayView from_dlpack(const py::object& object, const std::string& what) {
  if (has(object, "__dlpack_device__")) {
    const int device = object.attr("__dlpack_device__")().cast<py::tuple>()[0].cast<int>();
    if (device != kDlCpu && device != kDlCudaHost)
      throw Error(ErrorKind::Device,
                  what + " is not in the memory of the host (DLPack device " + std::to_string(device) + ")")
          .note("copy it there: x.cpu(), or x.get() of CuPy");
  }
  py::object capsule = object.attr("__dlpack__")();
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!managed) throw py::error_already_set();
  // The capsule owns the tensor from here on, so that errors release it too.
  if (PyCapsule_SetName(capsule.ptr(), "used_dltensor") != 0 ||
      PyCapsule_SetDestructor(capsule.ptr(), release_consumed) != 0)
    throw py::error_already_set();
  const DlTensor& tensor = managed->tensor;
  ArrayView view;
  const Format* format = nullptr;
  for (const Format& known : kFormats)
    if (tensor.type.lanes == 1 && known.code == tensor.type.code && known.bits == tensor.type.bits) format = &known;
  if (!format)
    refuse_elements(what, "DLPack " + std::to_string(tensor.type.code) + ", " + std::to_string(tensor.type.bits) +
                              " bits, " + std::to_string(tensor.type.lanes) + " lanes");
  view.dtype = format->dtype;
  view.shape = Shape(tensor.shape, tensor.shape + tensor.rank);
  const size_t item = element_bytes(view.dtype);
  view.strides = row_major(view.shape, item);
  if (tensor.strides)
    for (size_t axis = 0; axis < view.strides.size(); ++axis)
      view.strides[axis] = tensor.strides[axis] * static_cast<int64_t>(item);
  view.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  view.owner = owner_of(std::move(capsule));
  return view;
}

// The element type of a format of the struct module; null: none.
const Format* format_of_struct(std::string text, int64_t item) {
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.erase(0, 1);
  if (text.size() != 1) return nullptr;
  const char letter = text[0];
  const std::string_view signed_ones = "bhilqn", unsigned_ones = "BHILQN", floats = "efd";
  const uint8_t code = letter == '?'                                          ? uint8_t{kDlBool}
                       : signed_ones.find(letter) != std::string_view::npos   ? uint8_t{kDlInt}
                       : unsigned_ones.find(letter) != std::string_view::npos ? uint8_t{kDlUInt}
                       : floats.find(letter) != std::string_view::npos        ? uint8_t{kDlFloat}
                                                                              : uint8_t{255};
  for (const Format& known : kFormats)
    if (known.code == code && known.bits == 8 * item) return &known;
  return nullptr;
}

ArrayView from_buffer(const py::object& object, const std::string& what) {
  // The memoryview keeps the buffer exported as long as the owner lives.
  py::object memory = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(object.ptr()));
  if (!memory) throw py::error_already_set();
  const py::buffer_info info = py::reinterpret_borrow<py::buffer>(memory).request();
  const Format* format = format_of_struct(info.format, info.itemsize);
  if (!format) refuse_elements(what, "'" + info.format + "'");
  ArrayView view;
  view.dtype = format->dtype;
  view.shape = Shape(std::vector<int64_t>(info.shape.begin(), info.shape.end()));
  view.strides.assign(info.strides.begin(), info.strides.end());
  view.data = static_cast<const char*>(info.ptr);
  view.owner = owner_of(std::move(memory));
  return view;
}

const Format& exported(const HTensor& tensor) {
  const Format* format = format_of(tensor.dtype());
  if (!format)
    throw Error(ErrorKind::Type, "elements of " + name_of(tensor.dtype()) + " have no type in other libraries")
        .note("tensor.to('f32') converts them");
  return *format;
}

// A tensor that a capsule hands out, with its own reference to the elements.
struct HandedOut {
  HTensor tensor;
  std::array<int64_t, HX_MAX_RANK> shape{};
  DlManagedTensor managed{};
};

void release_handed_out(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;  // the consumer releases it
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

// `wanted`: the keywords of the protocol. The memory is shared, except for copy=True.
py::object to_dlpack(const HTensor& given, const py::kwargs& wanted) {
  const auto asked = [&](const char* name) { return wanted.contains(name) ? py::object(wanted[name]) : py::none(); };
  if (const py::object device = asked("dl_device"); !device.is_none() && device[py::int_(0)].cast<int>() != kDlCpu)
    throw py::buffer_error("a harmonics.Tensor is in host memory; move the consumer's tensor to the device");
  const py::object copy = asked("copy");
  const HTensor tensor =
      !copy.is_none() && copy.cast<bool>() ? HTensor(given.dtype(), given.shape(), given.bytes()) : given;
  const Format& format = exported(tensor);
  auto out = std::make_unique<HandedOut>();
  out->tensor = tensor;
  const Shape shape = tensor.shape();
  std::copy(shape.begin(), shape.end(), out->shape.begin());
  out->managed.tensor = {const_cast<void*>(tensor.bytes()),  // consumers must not write
                         {kDlCpu, 0},
                         static_cast<int32_t>(shape.rank()),
                         {format.code, format.bits, 1},
                         out->shape.data(),
                         nullptr,
                         0};
  out->managed.context = out.get();
  out->managed.deleter = [](DlManagedTensor* managed) { delete static_cast<HandedOut*>(managed->context); };
  py::object capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&out->managed, "dltensor", release_handed_out));
  if (!capsule) throw py::error_already_set();
  static_cast<void>(out.release());  // belongs to the capsule
  return capsule;
}

py::tuple shape_tuple(const Shape& shape) {
  py::tuple all(shape.rank());
  for (uint32_t axis = 0; axis < shape.rank(); ++axis) all[axis] = shape[axis];
  return all;
}

py::dict interface_of(const HTensor& tensor) {
  const Format* format = format_of(tensor.dtype());
  if (!format || format->interface.empty())
    throw py::attribute_error("NumPy has no type for elements of " + name_of(tensor.dtype()));
  py::dict interface;
  interface["version"] = 3;
  interface["shape"] = shape_tuple(tensor.shape());
  interface["typestr"] = std::string(format->interface);
  interface["data"] = py::make_tuple(reinterpret_cast<uintptr_t>(tensor.bytes()), true);  // read-only
  return interface;
}

// NumPy calls it only for a type that it lacks, because it prefers the array interface.
py::object to_numpy(const py::object& self, const py::object& dtype, const py::object&) {
  const auto& tensor = self.cast<const HTensor&>();
  const Format* format = format_of(tensor.dtype());
  if (!format || format->interface.empty())
    throw Error(ErrorKind::Type, "NumPy has no type for elements of " + name_of(tensor.dtype()))
        .note("tensor.to('f32') converts them");
  return py::module_::import("numpy").attr("asarray")(self, dtype);
}

DType dtype_named(const std::string& name) {
  for (const ElementType& type : detail::element_types)
    if (type.name == name) return type.dtype;
  throw Error(ErrorKind::Name, "there is no element type '" + name + "'").note("harmonics.dtypes has their names");
}

py::object item_of(const HTensor& tensor) {
  const HTensor one = tensor.size() == 1 ? tensor : HTensor();
  if (!one) throw Error(ErrorKind::Shape, "item() needs one element, the shape is " + tensor.shape().str());
  const ElementKind kind = element_type(tensor.dtype()).kind;
  if (kind == ElementKind::Boolean) return py::bool_(*static_cast<const uint8_t*>(one.bytes()) != 0);
  if (tensor.dtype() == DType::U64) return py::int_(*one.data<uint64_t>());
  if (kind == ElementKind::Integer) return py::int_(*one.cast(DType::I64).data<int64_t>());
  return py::float_(*one.cast(DType::F64).data<double>());
}

}  // namespace

Owner owner_of(py::object object) {
  return Owner(object.release().ptr(), [](PyObject* held) {
    if (!Py_IsInitialized()) return;  // the interpreter has gone, and its objects with it
    const py::gil_scoped_acquire locked;
    Py_DECREF(held);
  });
}

bool ArrayView::contiguous() const {
  if (shape.count() == 0) return true;
  const std::vector<int64_t> dense = row_major(shape, element_bytes(dtype));
  for (uint32_t axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1 && strides[axis] != dense[axis]) return false;
  return true;
}

void ArrayView::copy_slices(int64_t first, int64_t count, void* to) const {
  const size_t item = element_bytes(dtype);
  Shape part = shape;
  const char* from = data;
  if (shape.rank() > 0) {
    part[0] = count;
    from += first * strides[0];
  }
  if (part.count() == 0) return;
  if (contiguous())
    std::memcpy(to, from, static_cast<size_t>(part.count()) * item);
  else
    copy_strided(from, part.begin(), strides.data(), part.rank(), item, static_cast<char*>(to));
}

bool is_array(const py::handle& object) {
  return py::isinstance<HTensor>(object) || has(object, "__array_interface__") || has(object, "__dlpack__") ||
         PyObject_CheckBuffer(object.ptr()) != 0;
}

ArrayView view_of(const py::object& object, const std::string& what) {
  if (py::isinstance<HTensor>(object)) {
    const auto& tensor = object.cast<const HTensor&>();
    ArrayView view{tensor.dtype(), tensor.shape(), {}, static_cast<const char*>(tensor.bytes()), owner_of(object)};
    view.strides = row_major(view.shape, element_bytes(view.dtype));
    return view;
  }
  if (has(object, "__array_interface__")) return from_interface(object, what);
  if (has(object, "__dlpack__")) return from_dlpack(object, what);
  if (PyObject_CheckBuffer(object.ptr())) return from_buffer(object, what);
  throw Error(ErrorKind::Type, what + " is of the type " + type_name(object) +
                                   ", not an array of NumPy, a tensor with __dlpack__, or a buffer")
      .note("numpy.asarray(x, dtype='float32') makes an array of a list or a number");
}

HTensor tensor_of(const py::object& object, const std::string& what) {
  if (py::isinstance<HTensor>(object)) return object.cast<const HTensor&>();
  const ArrayView view = view_of(object, what);
  if (view.contiguous()) return HTensor(view.dtype, view.shape, view.data);
  HTensor tensor(view.dtype, view.shape);
  view.copy_slices(0, view.shape.rank() ? view.shape[0] : 1, tensor.mutable_bytes());
  return tensor;
}

void bind_tensors(py::module_& m) {
  py::class_<HTensor>(m, "Tensor", "A tensor of the library, in the memory of the host. Its elements do not change.")
      .def(py::init([](const py::object& array) { return tensor_of(array, "the value"); }), py::arg("array"),
           "Copies the elements of an array: of NumPy, with __dlpack__, or a buffer.")
      .def_property_readonly("shape", [](const HTensor& t) { return shape_tuple(t.shape()); })
      .def_property_readonly("dtype", [](const HTensor& t) { return name_of(t.dtype()); })
      .def_property_readonly("ndim", [](const HTensor& t) { return t.rank(); })
      .def_property_readonly("size", [](const HTensor& t) { return t.size(); })
      .def("item", item_of, "Returns the element of a tensor with one element.")
      .def(
          "to", [](const HTensor& t, const std::string& dtype) { return t.cast(dtype_named(dtype)); }, py::arg("dtype"),
          "Returns the elements converted to a type of harmonics.dtypes.")
      .def(
          "numpy", [](const py::object& self) { return to_numpy(self, py::none(), py::none()); },
          "Returns a read-only array of NumPy over the same memory.")
      .def("__array__", to_numpy, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def_property_readonly("__array_interface__", interface_of)
      .def("__dlpack__", to_dlpack,
           "Hands out the same memory, which the consumer must not write to, or a copy (copy=True).")
      .def("__dlpack_device__", [](const HTensor&) { return py::make_tuple(int{kDlCpu}, 0); })
      .def("__repr__",
           [](const HTensor& t) { return "harmonics.Tensor(" + name_of(t.dtype()) + t.shape().str() + ")"; });
  py::list names;
  for (const ElementType& type : detail::element_types) names.append(std::string(type.name));
  m.attr("dtypes") = py::tuple(names);
}

}  // namespace harmonics::python
