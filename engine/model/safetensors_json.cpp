#include "engine/model/safetensors_json.hpp"

#include <set>

#include <boost/json/basic_parser_impl.hpp>

#include "engine/model/safetensors_header.hpp"

namespace harmonics::engine {

namespace {

using boost::json::error_code;
using boost::json::string_view;

// SAX handler. A DOM would lose duplicate names.
class HeaderHandler {
 public:
  static constexpr size_t max_object_size = static_cast<size_t>(-1), max_array_size = max_object_size,
                          max_key_size = max_object_size, max_string_size = max_object_size;

  RawHeader header;
  std::string what;  // the fault, after a function returned false

  // The tensor being parsed, or null.
  const std::string* subject() const { return in_ == In::tensor ? &header.tensors.back().name : nullptr; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    if (skipping()) return enter();
    if (depth_ == 0) return enter();
    if (depth_ > 1) return fault(ec, "an object where " + expected() + " was expected");
    if (key_ == "__metadata__") {
      in_ = In::metadata;
    } else {
      in_ = In::tensor;
      header.tensors.push_back({key_, {}, {}, {}});
      names_.clear();
    }
    return enter();
  }
  bool on_object_end(size_t, error_code&) {
    leave();
    if (depth_ == 1) in_ = In::header;
    return true;
  }
  bool on_array_begin(error_code& ec) {
    if (skipping()) return enter();
    if (!numbers_ || depth_ != 2) return fault(ec, "a list where " + expected() + " was expected");
    numbers_->emplace();
    return enter();
  }
  bool on_array_end(size_t, error_code&) {
    leave();
    if (!skipping()) numbers_ = nullptr;
    return true;
  }

  bool on_key_part(string_view s, size_t, error_code&) { return collect(s); }
  bool on_key(string_view s, size_t, error_code& ec) {
    collect(s);
    key_ = std::move(text_);
    text_.clear();
    if (skip_from_) return true;
    if (depth_ == 1) return file_names_.insert(key_).second || fault(ec, "the name comes a second time", key_);
    const bool first = in_ == In::metadata ? header.metadata.emplace(key_, "").second : names_.insert(key_).second;
    if (!first) return fault(ec, "the key " + shown_name(key_) + " comes a second time");
    if (in_ == In::metadata) return true;
    RawTensor& tensor = header.tensors.back();
    numbers_ = key_ == "shape" ? &tensor.shape : key_ == "data_offsets" ? &tensor.data_offsets : nullptr;
    if (!numbers_ && key_ != "dtype") skip_from_ = depth_;
    return true;
  }

  bool on_string_part(string_view s, size_t, error_code&) { return collect(s); }
  bool on_string(string_view s, size_t, error_code& ec) {
    collect(s);
    std::string value = std::move(text_);
    text_.clear();
    if (skipping()) return passed();
    if (in_ == In::metadata) {
      header.metadata[key_] = std::move(value);
      return true;
    }
    if (in_ != In::tensor || numbers_ || depth_ != 2) return fault(ec, "a text where " + expected() + " was expected");
    header.tensors.back().dtype = std::move(value);
    return true;
  }

  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t value, string_view, error_code& ec) {
    if (skipping()) return passed();
    if (value < 0) return fault(ec, "the number " + std::to_string(value) + " is negative");
    return number(static_cast<uint64_t>(value), ec);
  }
  bool on_uint64(uint64_t value, string_view, error_code& ec) { return skipping() ? passed() : number(value, ec); }
  bool on_double(double, string_view, error_code& ec) {
    return skipping() ? passed() : fault(ec, "a number is not whole or larger than 64 bits hold");
  }
  bool on_bool(bool, error_code& ec) { return other(ec, "a truth value"); }
  bool on_null(error_code& ec) { return other(ec, "null"); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  enum class In { header, metadata, tensor };

  bool fault(error_code& ec, std::string text) {
    what = std::move(text);
    ec = boost::json::error::exception;
    return false;
  }
  bool fault(error_code& ec, std::string text, const std::string& name) {
    header.tensors.push_back({name, {}, {}, {}});
    in_ = In::tensor;
    return fault(ec, std::move(text));
  }
  bool collect(string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool enter() { return ++depth_, true; }
  void leave() {
    --depth_;
    if (skip_from_ == depth_) skip_from_ = 0;
  }
  // Inside the value of an unknown key?
  bool skipping() const { return skip_from_ != 0; }
  bool passed() {
    if (skip_from_ == depth_) skip_from_ = 0;
    return true;
  }
  bool other(error_code& ec, const std::string& kind) {
    return skipping() ? passed() : fault(ec, kind + " where " + expected() + " was expected");
  }
  bool number(uint64_t value, error_code& ec) {
    if (!numbers_ || depth_ != 3) return fault(ec, "a number where " + expected() + " was expected");
    (*numbers_)->push_back(value);
    return true;
  }
  std::string expected() const {
    if (depth_ == 0) return "the object of tensors";
    if (in_ == In::header) return "the object of " + shown_name(key_);
    if (in_ == In::metadata) return "the text of metadata key " + shown_name(key_);
    if (depth_ == 3) return "a whole number of " + shown_name(key_);
    return (numbers_ ? "the list " : "the text ") + shown_name(key_);
  }

  In in_ = In::header;
  int depth_ = 0;
  int skip_from_ = 0;  // depth of the unknown key whose value is skipped; 0: none
  std::string key_, text_;
  std::optional<std::vector<uint64_t>>* numbers_ = nullptr;  // list of the current key
  std::set<std::string> file_names_, names_;
};

}  // namespace

RawHeader parse_safetensors_json(std::string_view text, const std::string& file, uint64_t offset) {
  boost::json::basic_parser<HeaderHandler> parser({});
  error_code ec;
  const size_t read = parser.write_some(false, text.data(), text.size(), ec);
  HeaderHandler& handler = parser.handler();
  if (ec) {
    const bool grammar = handler.what.empty();
    refuse_safetensors(file, offset + read, handler.subject(),
                       grammar ? "the header is no JSON: " + ec.message() : handler.what);
  }
  if (read != text.size()) refuse_safetensors(file, offset + read, nullptr, "only spaces may follow the header's JSON");
  return std::move(handler.header);
}

}  // namespace harmonics::engine
