// The Python module `harmonics`: an API over the public C++ headers, without logic of its own.
#include "python/binding.hpp"

PYBIND11_MODULE(harmonics, m) {
  namespace python = harmonics::python;
  m.doc() =
      "Harmonics trains, fine-tunes and serves neural models; this module calls its library. Arrays of NumPy and "
      "tensors with __dlpack__ go in; harmonics.Tensor comes out, which both read without copies. Every failure is a "
      "harmonics.Error.";
  python::bind_errors(m);
  python::bind_tensors(m);
  python::bind_models(m);
  python::bind_transformers(m);
  python::bind_reports(m);
  python::bind_graphs(m);
  m.attr("__version__") = HARMONICS_VERSION;
  const hx_api* api = harmonics_api();
  m.attr("contract") = python::py::make_tuple(api->abi_major, api->abi_minor);
  // Kinds of items that flows name, as of `harmonics list`.
  m.attr("kinds") = python::py::make_tuple("activation", "loss", "layer", "producer", "consumer", "device", "metric",
                                           "functional", "implementation", "optimizer", "schedule", "predicate",
                                           "augmentation", "importer", "tokenizer", "exporter", "policy");
}
