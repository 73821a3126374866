#include "engine/model/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/element_weighted.hpp>
#include <harmonics/quantity.hpp>

#include "engine/base/file_group.hpp"
#include "engine/model/sealed_file.hpp"
#include "formats/gguf.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kChunk = int64_t{1} << 22;  // elements converted between two writes
constexpr int64_t kPart = int64_t{1} << 14;   // elements per task of the executor

bool is_split_key(std::string_view key) { return key.substr(0, 6) == "split."; }

// One file of the model.
struct Part {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  GgufFile contents;
};

std::vector<Part> open_parts(const std::string& path) {
  std::vector<Part> parts;
  const auto open = [&](const std::string& name) {
    const auto file = MappedFile::open(name);
    parts.push_back(
        {name, file, read_gguf({static_cast<const char*>(file->data()), file->bytes()}, {name, ErrorKind::Weights})});
  };
  open(path);
  const GgufValue* value = parts[0].contents.find("split.count");
  const auto count = value ? value->integer() : std::nullopt;
  for (int64_t part = 1; count && part < *count; ++part) {
    const auto name = gguf_part_name(path, static_cast<uint64_t>(part), static_cast<uint64_t>(*count));
    if (!name || *name == path)
      throw Error(ErrorKind::Weights, fmt::format("'{}' is not named as the first of {} parts", path, *count))
          .note("give the first part: model-00001-of-0000N.gguf");
    open(*name);
  }
  return parts;
}

// Returns the files to write: `to`, or parts named after it.
std::vector<std::string> outputs_of(const std::string& to, size_t parts) {
  if (parts < 2) return {to};
  constexpr std::string_view kEnd = ".gguf";
  std::string any = to;
  if (!gguf_part_name(any, 0, parts)) {
    if (any.ends_with(kEnd)) any.resize(any.size() - kEnd.size());
    any += "-00001-of-00001" + std::string(kEnd);
  }
  std::vector<std::string> names;
  for (size_t part = 0; part < parts; ++part) {
    const auto name = gguf_part_name(any, part, parts);
    if (!name)
      throw Error(ErrorKind::Usage, fmt::format("{} parts cannot be named after '{}'", parts, to))
          .note("without --keep-split the model is written as one file");
    names.push_back(*name);
  }
  return names;
}

struct Planned {
  const GgufTensor* tensor;
  const char* bytes;
  const GgufType* type;  // in the new file
  DType dtype;           // same, for converted tensors
  uint64_t offset;       // in the data of the new file
  bool converted;
  std::vector<std::vector<float>> importance;  // of the columns, by matrix; empty: uniform
};

class Writing {
 public:
  Writing(std::vector<Part> parts, const std::string& from, const QuantizeOptions& options)
      : parts_(std::move(parts)), from_(from), options_(options), outputs_(options.keep_split ? parts_.size() : 1) {
    metadata();
    std::vector<const GgufTensor*> tensors;
    for (const Part& part : parts_)
      for (const GgufTensor& tensor : part.contents.tensors) tensors.push_back(&tensor);
    const auto types = mixed_types(options_.mix, MixedModel::of(parts_[0].contents), tensors, options_.overrides,
                                   options_.importance != nullptr);
    size_t i = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      Output& output = outputs_[options.keep_split ? part : 0];
      for (const GgufTensor& tensor : parts_[part].contents.tensors) plan(parts_[part], tensor, types[i++], output);
    }
    if (outputs_.size() > 1) number_outputs();
  }

  const QuantizeResult& planned() const { return result_; }

  // Writes all files, the first one as the leading file, since readers find the others through it. If one cannot be
  // written, existing files are not replaced.
  QuantizeResult write(const std::vector<std::string>& to, Executor& executor,
                       const std::function<void(double)>& progress) {
    FileGroup group(to.front());
    for (size_t i = 0; i < outputs_.size(); ++i)
      write_output(outputs_[i], i == 0 ? group.leading() : group.add(to[i]), executor, progress);
    for (const Part& part : parts_) part.file->expect_whole();
    group.finish();
    result_.files = to;
    if (weights_ > 0) result_.relative_error = std::sqrt(error_ / weights_);
    return result_;
  }

 private:
  struct Output {
    GgufWriter writer;
    std::vector<Planned> planned;
  };

  void write_output(const Output& output, FileReplacement& to, Executor& executor,
                    const std::function<void(double)>& progress) {
    const std::string header = output.writer.header();
    bool begun = false;
    size_t tensor = 0;
    int64_t element = 0;   // next element of the tensor
    uint64_t written = 0;  // bytes of the data section
    std::string piece;
    const auto next = [&]() -> std::string_view {
      if (!begun) return begun = true, std::string_view(header);
      if (progress && result_.bytes_after)
        progress(static_cast<double>(written_) / static_cast<double>(result_.bytes_after));
      for (; tensor < output.planned.size(); ++tensor, element = 0) {
        const Planned& p = output.planned[tensor];
        if (written < p.offset) {
          piece.assign(p.offset - std::exchange(written, p.offset), '\0');
          return piece;
        }
        const int64_t all = elements_of(*p.tensor);
        if (element == all) continue;
        const int64_t count = std::min(kChunk, all - element);
        const std::string_view bytes =
            p.converted ? convert(p, element, count, executor, piece) : plain(p, element, count);
        element += count;
        written += bytes.size();
        written_ += bytes.size();
        return bytes;
      }
      return {};
    };
    for (std::string_view bytes = next(); !bytes.empty(); bytes = next()) to.append(bytes);
  }

  static int64_t elements_of(const GgufTensor& tensor) {
    int64_t count = 1;
    for (const uint64_t length : tensor.shape) count *= static_cast<int64_t>(length);
    return count;
  }

  void metadata() {
    GgufWriter& writer = outputs_[0].writer;
    for (const GgufMetadata& entry : parts_[0].contents.metadata)
      if (!is_split_key(entry.key) && entry.key != "general.file_type" && entry.key != "general.quantization_version" &&
          !describes_one_file(entry.key))
        writer.copy(entry);
    writer.set("general.file_type", GgufKind::U32, options_.mix.file_type);
    writer.set("general.quantization_version", GgufKind::U32, int64_t{2});
  }

  // Adds the split.* metadata, with the integer types that llama.cpp expects.
  void number_outputs() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      GgufWriter& writer = outputs_[i].writer;
      writer.set("split.no", GgufKind::U16, static_cast<int64_t>(i));
      writer.set("split.count", GgufKind::U16, static_cast<int64_t>(outputs_.size()));
      writer.set("split.tensors.count", GgufKind::I32, static_cast<int64_t>(result_.tensors.size()));
    }
  }

  void plan(const Part& part, const GgufTensor& tensor, const std::optional<MixedType>& mixed, Output& output) {
    const GgufType* wanted = mixed ? find_gguf_type(mixed->dtype) : tensor.type;
    const bool converted = tensor.type != wanted;
    if (converted) expect_convertible(tensor);
    const auto* bytes = static_cast<const char*>(part.file->data()) + tensor.offset;
    const uint64_t offset = output.writer.add(tensor.name, *wanted, tensor.shape);
    Planned p{&tensor, bytes, wanted, converted ? mixed->dtype : DType::F32, offset, converted, {}};
    if (converted && options_.importance && has_weighted_encoder(p.dtype)) p.importance = importance_of(tensor);
    const int64_t elements = elements_of(tensor);
    const uint64_t size = static_cast<uint64_t>(elements) / wanted->block * wanted->block_bytes;
    result_.tensors.push_back({std::string(tensor.name), tensor.shape, tensor.type->name, wanted->name, tensor.bytes,
                               size, converted && mixed->fallback, !p.importance.empty()});
    result_.converted += converted;
    result_.bytes_before += tensor.bytes;
    result_.bytes_after += size;
    result_.elements += static_cast<double>(elements);
    output.planned.push_back(std::move(p));
  }

  void expect_convertible(const GgufTensor& tensor) const {
    const auto dtype = dtype_of(*tensor.type);
    if (!dtype || !detail::find_conversion(*dtype))
      throw Error(ErrorKind::Weights, fmt::format("'{}': the tensor '{}' is in the type {}, which cannot be converted",
                                                  from_, tensor.name, tensor.type->name));
    if (is_stored(*dtype) && !options_.requantize)
      throw Error(ErrorKind::Weights, fmt::format("'{}': the tensor '{}' is quantized already, to {}", from_,
                                                  tensor.name, tensor.type->name))
          .note("give a file in f32, f16 or bf16; --requantize converts anyway, and the errors add up");
  }

  std::vector<std::vector<float>> importance_of(const GgufTensor& tensor) const {
    const auto at = options_.importance->tensors.find(std::string(tensor.name));
    if (at == options_.importance->tensors.end()) return {};
    const ColumnImportance& found = at->second;
    const auto columns = static_cast<int64_t>(tensor.shape.back());
    const int64_t matrices = tensor.shape.size() > 2 ? static_cast<int64_t>(tensor.shape.front()) : 1;
    const int64_t listed = found.columns * found.matrices();
    if (listed != columns && listed != columns * matrices)
      throw Error(
          ErrorKind::Weights,
          fmt::format("'{}': the tensor '{}' has {} of {} columns, and its importance {} of {}", from_, tensor.name,
                      quantity(matrices, "matrix", "matrices"), columns, found.matrices(), found.columns))
          .note("the importance was gathered from another model");
    std::vector<std::vector<float>> all;
    for (int64_t i = 0; i < found.matrices(); ++i) {
      const std::vector<float> weights = found.weights(i);
      // The binary format stores the columns of a stack of matrices as one long row.
      for (int64_t first = 0; first < found.columns; first += columns)
        all.emplace_back(weights.begin() + first, weights.begin() + first + columns);
    }
    return all;
  }

  static std::string_view plain(const Planned& p, int64_t first, int64_t count) {
    const GgufType& type = *p.type;
    // Chunks are a multiple of the block size of every type.
    const int64_t begin = first / type.block * type.block_bytes, bytes = count / type.block * type.block_bytes;
    return {p.bytes + begin, static_cast<size_t>(bytes)};
  }

  struct Chunk {
    const Planned* planned;
    const char* from;
    char* to;
    DType source;
    int64_t first, count;      // range of the tensor's elements
    double *errors, *weights;  // squared sums, by part
  };

  // Returns the importance of `count` elements, starting at `first`.
  static std::vector<float> importance_at(const Planned& p, int64_t first, int64_t count) {
    const auto columns = static_cast<int64_t>(p.tensor->shape.back());
    const int64_t matrix = elements_of(*p.tensor) / static_cast<int64_t>(p.importance.size());
    std::vector<float> all(static_cast<size_t>(count));
    for (int64_t i = 0; i < count;) {
      const int64_t column = (first + i) % columns, run = std::min(columns - column, count - i);
      const float* row = p.importance[static_cast<size_t>((first + i) / matrix)].data();
      std::copy_n(row + column, run, all.data() + i);
      i += run;
    }
    return all;
  }

  static void convert_part(const void* context, uint32_t part) {
    const auto& chunk = *static_cast<const Chunk*>(context);
    const Planned& p = *chunk.planned;
    const int64_t begin = part * kPart, count = std::min(kPart, chunk.count - begin);
    std::vector<float> plain(static_cast<size_t>(count)), back(static_cast<size_t>(count));
    char* to = chunk.to + run_bytes(p.dtype, begin);
    decode_elements(chunk.source, chunk.from + run_bytes(chunk.source, begin), plain.data(), count);
    if (p.importance.empty())
      encode_elements(p.dtype, plain.data(), to, count);
    else
      encode_weighted(p.dtype, plain.data(), importance_at(p, chunk.first + begin, count).data(), to, count);
    decode_elements(p.dtype, to, back.data(), count);
    double error = 0, weight = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      const double difference = static_cast<double>(back[i]) - plain[i];
      error += difference * difference;
      weight += static_cast<double>(plain[i]) * plain[i];
    }
    chunk.errors[part] = error;
    chunk.weights[part] = weight;
  }

  std::string_view convert(const Planned& p, int64_t first, int64_t count, Executor& executor, std::string& piece) {
    const DType source = *dtype_of(*p.tensor->type);
    piece.resize(run_bytes(p.dtype, count));
    const auto parts = static_cast<uint32_t>((count + kPart - 1) / kPart);
    std::vector<double> errors(parts), weights(parts);
    const Chunk chunk{
        &p, p.bytes + run_bytes(source, first), piece.data(), source, first, count, errors.data(), weights.data()};
    executor.run(parts, convert_part, &chunk);
    for (uint32_t i = 0; i < parts; ++i) error_ += errors[i], weights_ += weights[i];
    return piece;
  }

  std::vector<Part> parts_;
  const std::string& from_;
  const QuantizeOptions& options_;
  std::vector<Output> outputs_;
  QuantizeResult result_;
  uint64_t written_ = 0;  // progress, out of bytes_after
  double error_ = 0, weights_ = 0;
};

}  // namespace

namespace {

// Throws ErrorKind::Usage for a pattern that matches no tensor of the model.
void expect_effect(const std::vector<Part>& parts, const std::string& from, const QuantizeOptions& options) {
  for (const auto& [pattern, type] : options.overrides.tensors) {
    const bool used = std::any_of(parts.begin(), parts.end(), [&, &pattern = pattern](const Part& part) {
      return std::any_of(part.contents.tensors.begin(), part.contents.tensors.end(),
                         [&](const GgufTensor& tensor) { return fits_pattern(pattern, tensor.name); });
    });
    if (!used)
      throw Error(ErrorKind::Usage, fmt::format("--tensor: no tensor of '{}' fits '{}'", from, pattern), {},
                  {"--dry-run lists the tensors"});
  }
}

}  // namespace

const std::vector<std::string>& quantized_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TypeMix& mix : type_mixes()) {
      const std::string name(element_type(mix.base).name);
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
    return all;
  }();
  return names;
}

QuantizeResult plan_quantization(const std::string& from, const QuantizeOptions& options) {
  std::vector<Part> parts = open_parts(from);
  expect_effect(parts, from, options);
  return Writing(std::move(parts), from, options).planned();
}

QuantizeResult quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options,
                             Executor& executor, const std::function<void(double)>& progress) {
  std::vector<Part> parts = open_parts(from);
  expect_effect(parts, from, options);
  const std::vector<std::string> outputs = outputs_of(to, options.keep_split ? parts.size() : 1);
  for (const Part& part : parts)
    for (const std::string& output : outputs) {
      std::error_code failed;
      if (std::filesystem::equivalent(part.path, output, failed))
        throw Error(ErrorKind::Usage, part.path == output
                                          ? fmt::format("OUTPUT '{}' is the model that is read", output)
                                          : fmt::format("OUTPUT '{}' is '{}', which is read", output, part.path))
            .note("give another output");
    }
  return Writing(std::move(parts), from, options).write(outputs, executor, progress);
}

}  // namespace harmonics::engine
