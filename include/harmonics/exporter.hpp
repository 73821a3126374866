// Exporters, which write a model to the file format of another program. An extension of the contract that may still
// change (exporter_abi.h). plugin.hpp does not include this header.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/exporter_abi.h>
#include <harmonics/importer.hpp>

namespace harmonics {

// A tensor to write: dense, row-major, little-endian. Its views are valid during Exporter::write.
struct TensorToWrite {
  std::string_view name;
  DType dtype = DType::F32;
  Shape shape;
  std::string_view bytes;
};

// Keys of the metadata are those of the importer that read the model; texts are valid during Exporter::write.
struct ModelToWrite {
  MetadataMap metadata;
  std::vector<TensorToWrite> tensors;  // sorted by name
};

// The new file. The host renames it to its final name after the exporter has succeeded.
class ExportSink {
 public:
  explicit ExportSink(const hx_export_sink* sink) : sink_(sink) {}
  std::string path() const { return sink_->path; }  // for messages
  // Appends. Throws errors of the host, such as a full disk; the exporter must not catch them.
  HARMONICS_FACE void write(std::string_view bytes) const {
    detail::check(sink_->write(sink_->host, bytes.data(), bytes.size()));
  }
  // Directs later writes to another file in the same folder; `name` has no folders.
  HARMONICS_FACE void next_file(const std::string& name) const {
    if (sink_->struct_size < sizeof *sink_)
      throw Error(ErrorKind::Plugin, "this exporter needs a newer version of the program");
    detail::check(sink_->next_file(sink_->host, name.c_str()));
  }

 private:
  const hx_export_sink* sink_;
};

// Called from any thread, also concurrently.
class Exporter {
 public:
  // Returns how well the format fits a file of this name: HX_PROBE_NO .. HX_PROBE_CERTAIN.
  virtual uint32_t probe(const std::string& name) const = 0;
  // Writes the model. Equal models and options must give equal bytes. Throws ErrorKind::Weights, naming the tensor or
  // the key, if the format cannot represent it.
  virtual void write(const ModelToWrite& model, const Arguments& options, const ExportSink& sink) const = 0;
  virtual ~Exporter() = default;
};

namespace detail {

HARMONICS_FACE inline MetadataValue metadata_value(const hx_attribute& a) {
  switch (a.kind) {
    case HX_ATTR_FLOAT:
      return a.as.f;
    case HX_ATTR_STRING:
      return std::string(a.as.s);
    case HX_ATTR_BOOL:
      return a.as.i != 0;
    case HX_ATTR_INTS:
      return a.count ? std::vector<int64_t>(a.as.ints, a.as.ints + a.count) : std::vector<int64_t>();
    case HX_ATTR_FLOATS:
      return a.count ? std::vector<double>(a.as.floats, a.as.floats + a.count) : std::vector<double>();
    case HX_ATTR_TEXTS: {
      std::vector<std::string_view> texts;
      for (uint32_t i = 0; i < a.count; ++i) texts.emplace_back(a.as.texts[i].data, a.as.texts[i].bytes);
      return texts;
    }
    default:
      return a.as.i;
  }
}

HARMONICS_FACE inline ModelToWrite model_to_write(const hx_exported_model& model) {
  ModelToWrite result;
  for (uint32_t i = 0; i < model.metadata.count; ++i)
    result.metadata.emplace(model.metadata.items[i].name, metadata_value(model.metadata.items[i]));
  const char* at = reinterpret_cast<const char*>(model.tensors);
  for (uint32_t i = 0; i < model.n_tensors; ++i) {
    const auto& t = *reinterpret_cast<const hx_exported_tensor*>(at);
    result.tensors.push_back({t.name,
                              static_cast<DType>(t.type.dtype),
                              Shape(std::vector<int64_t>(t.type.dims, t.type.dims + t.type.rank)),
                              {static_cast<const char*>(t.data), t.bytes}});
    at += t.struct_size;
  }
  return result;
}

HARMONICS_FACE inline const hx_exporter_vt* exporter_vt() {
  static const hx_exporter_vt vt = {
      sizeof(hx_exporter_vt),
      [](void* self, const char* name, uint32_t* score) {
        return guarded([&] { return *score = object<Exporter>(self).probe(name), HX_OK; });
      },
      [](void* self, const hx_exported_model* model, const hx_attributes* options, const hx_export_sink* sink) {
        return guarded([&] {
          object<Exporter>(self).write(model_to_write(*model), Arguments(options), ExportSink(sink));
          return HX_OK;
        });
      },
      destroy<Exporter>};
  return &vt;
}

}  // namespace detail

// Registers an exporter. Returns false if the program does not support exporters of this version.
HARMONICS_FACE inline bool register_exporter(FunctionRegistry& registry, const std::string& name,
                                             std::shared_ptr<Exporter> exporter, const std::string& description = "",
                                             const std::vector<Argument>& options = {}) {
  return detail::register_extended(registry, HX_EXPORTER_EXTENSION, HX_EXPORTER, "exporter", name, std::move(exporter),
                                   description, options, detail::exporter_vt());
}

}  // namespace harmonics
