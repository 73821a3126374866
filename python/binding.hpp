// Shared by the sources of the Python module. Only this header includes pybind11.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/harmonics.hpp>
#include <harmonics/models.hpp>
#include <harmonics/trainer.hpp>
#include <harmonics/transformer.hpp>

namespace harmonics::python {

namespace py = pybind11;

void bind_errors(py::module_& m);
void bind_tensors(py::module_& m);
void bind_models(py::module_& m);
void bind_transformers(py::module_& m);
void bind_reports(py::module_& m);
void bind_graphs(py::module_& m);

// Releases the GIL while `body` runs. Every call of the library that may block or wait for a thread goes through it: a
// thread of a run may wait for the GIL meanwhile.
template <typename Body>
auto without_gil(Body&& body) {
  const py::gil_scoped_release unlocked;
  return body();
}

// "ValueError: the text". Needs the GIL.
std::string text_of(const py::error_already_set& error);

// A counted reference to an object of Python, which any thread may drop.
using Owner = std::shared_ptr<PyObject>;
Owner owner_of(py::object object);

// The elements of an array of another library, where they lie.
struct ArrayView {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<int64_t> strides;  // in bytes
  const char* data = nullptr;
  Owner owner;

  bool contiguous() const;
  // Writes the elements of `count` slices along the first axis, row-major, from slice `first`.
  void copy_slices(int64_t first, int64_t count, void* to) const;
};

// Whether the object has elements: __array_interface__, __dlpack__ or the buffer protocol.
bool is_array(const py::handle& object);
// `what` names the value in errors: "'x'". Throws ErrorKind::Type if the object is no array, or if its elements have
// no element type here.
ArrayView view_of(const py::object& object, const std::string& what);
// Likewise, as a tensor. Copies the elements once; a harmonics.Tensor is not copied.
HTensor tensor_of(const py::object& object, const std::string& what);

// The address of a stream, if the object is a text or a path.
std::optional<std::string> address_of(const py::object& object);
// A producer of the slices of an array along its first axis, or of the items of an iterable. `shuffle`: samples per
// shuffled block; 0: none.
std::shared_ptr<Producer> producer_of(const py::object& source, const std::string& what, uint32_t shuffle,
                                      uint64_t seed);
// A consumer that calls the object for every sample.
std::shared_ptr<Consumer> consumer_of(const py::object& target, const std::string& what);

// Stops a run on a signal, or for its progress callback.
class Watch {
 public:
  // `callback`: None or a callable.
  void set_callback(py::object callback);
  void begin();
  void stop() { stop_ = true; }
  // [any thread] The progress callback of a run; false stops it.
  bool proceed(const FitProgress& progress);
  // Throws the exception of the callback, if there was one.
  void rethrow();

 private:
  std::atomic<bool> stop_{false};
  Owner callback_;
  std::optional<py::error_already_set> failed_;
};

// Runs `body` on a thread of its own, without the GIL. The calling thread handles signals of Python: KeyboardInterrupt
// stops the fit of the graph after its current step, and is then raised.
FitReport watched(Watch& watch, HarmonicGraph& graph, const std::function<FitReport()>& body);

// Sets the settings of a fit by name. Throws TypeError for an unknown name or a value of the wrong type.
void set_options(FitOptions& options, const py::dict& settings);
py::object number_of(double value);  // an int if it is whole

}  // namespace harmonics::python
