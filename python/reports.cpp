// Settings and reports of a fit.
#include <cmath>
#include <map>

#include "python/binding.hpp"

namespace harmonics::python {

namespace {

using Setter = void (*)(FitOptions& options, const py::object& value);

template <auto Member>
void set(FitOptions& options, const py::object& value) {
  using T = std::decay_t<decltype(options.*Member)>;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (py::isinstance<py::str>(value)) {  // one text is a list of one
      options.*Member = {value.cast<std::string>()};
      return;
    }
  }
  if constexpr (std::is_same_v<T, std::string>) {
    if (const std::optional<std::string> path = address_of(value)) {
      options.*Member = *path;
      return;
    }
  }
  options.*Member = value.cast<T>();
}

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> all = {
      {"accumulate", set<&FitOptions::accumulate>},
      {"batch", set<&FitOptions::batch>},
      {"checkpoint", set<&FitOptions::checkpoint>},
      {"clip", set<&FitOptions::clip>},
      {"deterministic", set<&FitOptions::deterministic>},
      {"device", set<&FitOptions::device>},
      {"epochs", set<&FitOptions::epochs>},
      {"every", set<&FitOptions::every>},
      {"keep", set<&FitOptions::keep>},
      {"lr", set<&FitOptions::lr>},
      {"metrics", set<&FitOptions::metrics>},
      {"optimizer", set<&FitOptions::optimizer>},
      {"precision", set<&FitOptions::precision>},
      {"resume", set<&FitOptions::resume>},
      {"schedule", set<&FitOptions::schedule>},
      {"seconds", set<&FitOptions::seconds>},
      {"seed", set<&FitOptions::seed>},
      {"steps", set<&FitOptions::steps>},
      {"threads", set<&FitOptions::threads>},
      {"until", set<&FitOptions::until>},
  };
  return all;
}

py::object accuracy_of(double accuracy) {
  return accuracy < 0 ? py::object(py::none()) : py::object(py::float_(accuracy));
}

template <typename Report>
std::map<std::string, uint64_t> left_over(const Report& report) {
  std::map<std::string, uint64_t> all;
  for (const LeftOverSamples& left : report.left_over) all[left.producer] = left.samples;
  return all;
}

std::string rounded(double number) { return py::str(py::float_(std::round(number * 1e6) / 1e6)); }

void bind_fit(py::module_& m) {
  py::class_<FitProgress>(m, "FitProgress")
      .def_readonly("epoch", &FitProgress::epoch)
      .def_readonly("epochs", &FitProgress::epochs)
      .def_readonly("step", &FitProgress::step)
      .def_readonly("samples", &FitProgress::samples)
      .def_readonly("seconds", &FitProgress::seconds)
      .def_readonly("samples_per_second", &FitProgress::samples_per_second)
      .def_readonly("fraction", &FitProgress::fraction)
      .def_readonly("loss", &FitProgress::loss)
      .def_property_readonly("accuracy", [](const FitProgress& p) { return accuracy_of(p.accuracy); });
  py::class_<EpochFigures>(m, "EpochFigures")
      .def_readonly("epoch", &EpochFigures::epoch)
      .def_readonly("steps", &EpochFigures::steps)
      .def_readonly("samples", &EpochFigures::samples)
      .def_readonly("seconds", &EpochFigures::seconds)
      .def_readonly("loss", &EpochFigures::loss)
      .def_readonly("learning_rate", &EpochFigures::learning_rate)
      .def_readonly("metrics", &EpochFigures::metrics)
      .def_readonly("validation", &EpochFigures::validation)
      .def_property_readonly("accuracy", [](const EpochFigures& e) { return accuracy_of(e.accuracy); });
  py::class_<FitReport>(m, "FitReport")
      .def_readonly("epochs", &FitReport::epochs)
      .def_readonly("steps", &FitReport::steps)
      .def_readonly("samples", &FitReport::samples)
      .def_readonly("seconds", &FitReport::seconds)
      .def_readonly("loss", &FitReport::loss)
      .def_readonly("stopped_by", &FitReport::stopped_by)
      .def_readonly("notes", &FitReport::notes)
      .def_readonly("metrics", &FitReport::metrics)
      .def_readonly("by_epoch", &FitReport::by_epoch)
      .def_readonly("resumed_at", &FitReport::resumed_at)
      .def_readonly("checkpoint", &FitReport::checkpoint)
      .def_property_readonly("accuracy", [](const FitReport& r) { return accuracy_of(r.accuracy); })
      .def_property_readonly("left_over", left_over<FitReport>)
      .def("__repr__", [](const FitReport& r) {
        return "FitReport(" + std::to_string(r.steps) + " steps, loss " + rounded(r.loss) + ", stopped by " +
               r.stopped_by + ")";
      });
}

}  // namespace

void set_options(FitOptions& options, const py::dict& settings) {
  for (const auto& [key, value] : settings) {
    const auto name = key.cast<std::string>();
    const auto setter = setters().find(name);
    if (setter == setters().end()) {
      std::string known;
      for (const auto& [other, unused] : setters()) known += ", " + other;
      throw py::type_error("there is no setting '" + name + "'; settings: progress" + known);
    }
    try {
      setter->second(options, py::reinterpret_borrow<py::object>(value));
    } catch (const py::cast_error&) {
      throw py::type_error("the setting '" + name + "' cannot be " + py::repr(value).cast<std::string>());
    }
  }
}

void bind_reports(py::module_& m) {
  bind_fit(m);
  py::class_<TestReport>(m, "TestReport")
      .def_readonly("samples", &TestReport::samples)
      .def_readonly("loss", &TestReport::loss)
      .def_readonly("figures", &TestReport::figures)
      .def_property_readonly("accuracy", [](const TestReport& r) { return accuracy_of(r.accuracy); })
      .def_property_readonly("left_over", left_over<TestReport>)
      .def("__repr__", [](const TestReport& r) {
        return "TestReport(" + std::to_string(r.samples) + " samples, loss " + rounded(r.loss) + ")";
      });
  py::class_<LayerInfo>(m, "LayerInfo")
      .def_readonly("name", &LayerInfo::name)
      .def_readonly("reason", &LayerInfo::reason)
      .def_property_readonly("shape", [](const LayerInfo& l) { return py::tuple(py::cast(l.shape.vector())); })
      .def("__repr__", [](const LayerInfo& l) { return "LayerInfo(" + l.name + " " + l.shape.str() + ")"; });
}

}  // namespace harmonics::python
