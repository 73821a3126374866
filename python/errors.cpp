// harmonics.Error: the exception of every failure of the library.
#include <algorithm>
#include <array>

#include "python/binding.hpp"

namespace harmonics::python {

namespace {

constexpr std::array kKinds = {"internal", "syntax",       "name",   "shape",       "type",  "weights",
                               "plugin",   "device",       "stream", "no_input",    "usage", "output",
                               "diverged", "input_output", "denied", "unavailable", "memory"};

PyObject* error_class = nullptr;  // belongs to the module

struct Place {
  std::string source;
  int64_t line = 0, column = 0;
};

// Cuts the number after the last ':' off a text.
std::optional<int64_t> cut_number(std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || text.size() - colon > 10) return std::nullopt;
  int64_t number = 0;
  for (size_t i = colon + 1; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    number = 10 * number + (text[i] - '0');
  }
  text.resize(colon);
  return number;
}

// The place of the first error in a report: "flow.hmx:3:5: error: ...".
std::optional<Place> place_of(const std::string& message) {
  std::string head = message.substr(0, message.find('\n'));
  const size_t end = head.find(": error: ");
  if (end == std::string::npos) return std::nullopt;
  head.resize(end);
  const std::optional<int64_t> column = cut_number(head);
  const std::optional<int64_t> line = column ? cut_number(head) : std::nullopt;
  if (!line) return std::nullopt;
  return Place{head, *line, *column};
}

// The lines that begin with "help: ", without it.
std::string help_in(const std::string& report) {
  const std::string mark = "help: ";
  std::string help;
  for (size_t at = 0; at < report.size();) {
    const size_t end = std::min(report.find('\n', at), report.size());
    if (report.compare(at, mark.size(), mark) == 0)
      help += (help.empty() ? "" : "\n") + report.substr(at + mark.size(), end - at - mark.size());
    at = end + 1;
  }
  return help;
}

// The errors of a text arrive as one report, with the lines of the text. The notes of any other error are remedies,
// unless they are marked.
struct Parts {
  std::string message, text, remedy;
  std::vector<std::string> notes;
  std::optional<Place> place;

  explicit Parts(const Error& error) : message(error.what()), text(message), place(place_of(message)) {
    for (const std::string& note : error.notes()) text += "\n" + note;
    text.erase(text.find_last_not_of('\n') + 1);
    if (place) {
      message = text;
      remedy = help_in(text);
      return;
    }
    notes = error.notes();
    for (const std::string& note : notes)
      if (note.rfind("note: ", 0) != 0) remedy += (remedy.empty() ? "" : "\n") + note;
  }
};

void raise(const Error& error) {
  const Parts parts(error);
  const auto kind = static_cast<size_t>(error.kind());
  const py::object value = py::reinterpret_borrow<py::object>(error_class)(parts.text);
  const std::optional<Place>& place = parts.place;
  value.attr("kind") = kind < kKinds.size() ? kKinds[kind] : "internal";
  value.attr("message") = parts.message;
  value.attr("notes") = py::cast(parts.notes);
  value.attr("place") =
      place ? py::object(py::make_tuple(place->source, place->line, place->column)) : py::object(py::none());
  value.attr("remedy") = parts.remedy.empty() ? py::object(py::none()) : py::object(py::str(parts.remedy));
  PyErr_SetObject(error_class, value.ptr());
}

}  // namespace

std::string text_of(const py::error_already_set& error) {
  const std::string type = py::str(error.type().attr("__name__"));
  const std::string text = py::str(error.value());
  return text.empty() ? type : type + ": " + text;
}

void bind_errors(py::module_& m) {
  error_class = PyErr_NewExceptionWithDoc(
      "harmonics.Error",
      "A failure of the library. kind: its kind, one of harmonics.error_kinds; message: the text without notes; notes: "
      "additional lines; place: (source, line, column) of the first error of a text, or None; remedy: what to do, or "
      "None.",
      PyExc_RuntimeError, nullptr);
  if (!error_class) throw py::error_already_set();
  m.add_object("Error", error_class);
  m.attr("error_kinds") = py::tuple(py::cast(std::vector<std::string>(kKinds.begin(), kKinds.end())));
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace harmonics::python
