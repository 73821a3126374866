// Runs that signals of Python and progress callbacks stop.
#include <chrono>
#include <future>

#include "python/binding.hpp"

namespace harmonics::python {

void Watch::set_callback(py::object callback) {
  callback_ = callback.is_none() ? nullptr : owner_of(std::move(callback));
}

void Watch::begin() {
  stop_ = false;
  failed_.reset();
}

bool Watch::proceed(const FitProgress& progress) {
  if (stop_) return false;
  if (!callback_) return true;
  const py::gil_scoped_acquire locked;
  try {
    const py::object answer = py::handle(callback_.get())(progress);
    if (answer.ptr() == Py_False) stop_ = true;
  } catch (const py::error_already_set& error) {
    failed_.emplace(error);
    stop_ = true;
  }
  return !stop_;
}

void Watch::rethrow() {
  if (!failed_) return;
  const py::error_already_set error = *failed_;
  failed_.reset();
  throw error;
}

FitReport watched(Watch& watch, HarmonicGraph& graph, const std::function<FitReport()>& body) {
  watch.begin();
  std::optional<py::error_already_set> interrupted;
  std::future<FitReport> report;
  {
    const py::gil_scoped_release unlocked;
    report = std::async(std::launch::async, body);
    while (report.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (interrupted) graph.stop_fit();  // again: the fit may have begun only now
      const py::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() == 0) continue;
      watch.stop();
      interrupted.emplace();  // takes the exception that is set
    }
  }
  if (interrupted) {
    try {
      report.get();
    } catch (const Error&) {  // the interrupt says more
    }
    throw py::error_already_set(*interrupted);
  }
  watch.rethrow();
  return report.get();
}

}  // namespace harmonics::python
