#include "producers/file/safetensors.hpp"

#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"
#include "producers/file/select.hpp"

namespace harmonics {

ArrayLayout read_safetensors_array(const FileBytesPtr& file, const std::optional<std::string>& name) {
  const SafetensorsHeader header = read_safetensors_header(file->data(), file->size(), file->origin());
  std::vector<std::string> names;
  for (const TensorEntry& t : header.tensors) names.push_back(t.name);
  const TensorEntry& t = header.tensors[selected(file->name(), "tensor", names, name)];
  if (is_stored(t.dtype))
    refuse_file(file->name(),
                "holds " + std::string(harmonics::element_type(t.dtype).name) + " in tensor " + shown_name(t.name) +
                    ", a type that samples cannot have",
                "convert it to f32");
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = header.data_offset + t.begin;
  layout.dtype = t.dtype;
  set_axes(layout, t.shape, "tensor " + shown_name(t.name));
  return layout;
}

}  // namespace harmonics
