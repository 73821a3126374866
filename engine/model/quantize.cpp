#include "engine/model/quantize.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>

#include "engine/base/file.hpp"
#include "formats/gguf.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kChunk = int64_t{1} << 22;  // elements that are converted between two writes
constexpr int64_t kPart = int64_t{1} << 14;   // elements of one part

struct TypeRow {
  DType dtype;
  int64_t file_type;  // general.file_type of a file that is mostly of this type
};
constexpr TypeRow kTypes[] = {{DType::F32, 0},    {DType::F16, 1},     {DType::BF16, 32}, {DType::Q8_0, 7},
                              {DType::Q6_K, 18},  {DType::Q5_K, 16},   {DType::Q5_1, 9},  {DType::Q5_0, 8},
                              {DType::Q4_K, 14},  {DType::Q4_1, 3},    {DType::Q4_0, 2},  {DType::IQ4_NL, 25},
                              {DType::MXFP4, 38}, {DType::IQ4_XS, 30}, {DType::Q3_K, 11}, {DType::Q2_K, 10}};

bool is_split_key(std::string_view key) { return key.substr(0, 6) == "split."; }

// Norms and biases are few, and routers and positions are sensitive.
bool is_matrix(const GgufTensor& tensor) {
  constexpr std::string_view kEnd = ".weight";
  const std::string_view name = tensor.name;
  if (tensor.shape.size() < 2 || name.size() < kEnd.size() || name.substr(name.size() - kEnd.size()) != kEnd)
    return false;
  for (const std::string_view kept : {"norm", "ffn_gate_inp", "position_embd", "token_types"})
    if (name.find(kept) != std::string_view::npos) return false;
  return true;
}

// Tensors of one file, with the bytes that they lie in.
struct Part {
  std::shared_ptr<const MappedFile> file;
  GgufFile contents;
};

std::vector<Part> open_parts(const std::string& path) {
  std::vector<Part> parts;
  const auto open = [&](const std::string& name) {
    const auto file = MappedFile::open(name);
    parts.push_back(
        {file, read_gguf({static_cast<const char*>(file->data()), file->bytes()}, {name, ErrorKind::Weights})});
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

struct Planned {
  const GgufTensor* tensor;
  const char* bytes;
  const GgufType* type;  // in the new file
  uint64_t offset;       // in its data
  bool converted;
};

class Writing {
 public:
  Writing(std::vector<Part> parts, const std::string& from, const QuantizeOptions& options)
      : parts_(std::move(parts)), from_(from), options_(options) {
    metadata();
    for (const Part& part : parts_)
      for (const GgufTensor& tensor : part.contents.tensors) plan(part, tensor);
  }

  QuantizeResult write(const std::string& to, Executor& executor, const std::function<void(double)>& progress) {
    const std::string header = writer_.header();
    bool begun = false;
    size_t tensor = 0;
    int64_t element = 0;  // of the tensor: the next one
    uint64_t written = 0;
    std::string piece;
    write_file_atomically(to, [&]() -> std::string_view {
      if (!begun) return begun = true, std::string_view(header);
      if (progress && result_.bytes_after) progress(static_cast<double>(written) / static_cast<double>(end_));
      for (; tensor < planned_.size(); ++tensor, element = 0) {
        const Planned& p = planned_[tensor];
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
        return bytes;
      }
      return {};
    });
    if (weights_ > 0) result_.relative_error = std::sqrt(error_ / weights_);
    return result_;
  }

 private:
  static int64_t elements_of(const GgufTensor& tensor) {
    int64_t count = 1;
    for (const uint64_t length : tensor.shape) count *= static_cast<int64_t>(length);
    return count;
  }

  void metadata() {
    int64_t file_type = 0;
    for (const TypeRow& row : kTypes)
      if (row.dtype == options_.dtype) file_type = row.file_type;
    for (const GgufMetadata& entry : parts_[0].contents.metadata)
      if (!is_split_key(entry.key) && entry.key != "general.file_type" && entry.key != "general.quantization_version")
        writer_.copy(entry);
    writer_.set("general.file_type", GgufKind::U32, file_type);
    writer_.set("general.quantization_version", GgufKind::U32, int64_t{2});
  }

  void plan(const Part& part, const GgufTensor& tensor) {
    const GgufType* wanted = find_gguf_type(options_.dtype);
    const auto dtype = dtype_of(*tensor.type);
    bool converted = is_matrix(tensor) && tensor.type != wanted;
    if (converted && tensor.shape.back() % wanted->block != 0) {
      result_.unfit.emplace_back(tensor.name);
      converted = false;
    }
    if (converted && (!dtype || !find_conversion_of(*dtype)))
      throw Error(ErrorKind::Weights, fmt::format("'{}': the tensor '{}' is in the type {}, which cannot be converted",
                                                  from_, tensor.name, tensor.type->name));
    if (converted && is_stored(*dtype) && !options_.requantize)
      throw Error(ErrorKind::Weights, fmt::format("'{}': the tensor '{}' is quantized already, to {}", from_,
                                                  tensor.name, tensor.type->name))
          .note("give a file in f32, f16 or bf16; --requantize converts anyway, and the errors add up");
    const GgufType& type = converted ? *wanted : *tensor.type;
    const auto* bytes = static_cast<const char*>(part.file->data()) + tensor.offset;
    const uint64_t offset = writer_.add(tensor.name, type, tensor.shape);
    planned_.push_back({&tensor, bytes, &type, offset, converted});
    const uint64_t size = static_cast<uint64_t>(elements_of(tensor)) / type.block * type.block_bytes;
    end_ = offset + size;
    ++result_.tensors;
    result_.converted += converted;
    result_.bytes_before += tensor.bytes;
    result_.bytes_after += size;
  }

  static bool find_conversion_of(DType dtype) { return detail::find_conversion(dtype) != nullptr; }

  static std::string_view plain(const Planned& p, int64_t first, int64_t count) {
    const GgufType& type = *p.type;
    // Chunks are whole blocks of every type.
    const int64_t begin = first / type.block * type.block_bytes, bytes = count / type.block * type.block_bytes;
    return {p.bytes + begin, static_cast<size_t>(bytes)};
  }

  struct Chunk {
    const char* from;
    char* to;
    DType source, target;
    int64_t count;
    double *errors, *weights;  // by part
  };
  static void convert_part(const void* context, uint32_t part) {
    const auto& chunk = *static_cast<const Chunk*>(context);
    const int64_t begin = part * kPart, count = std::min(kPart, chunk.count - begin);
    std::vector<float> plain(static_cast<size_t>(count)), back(static_cast<size_t>(count));
    char* to = chunk.to + run_bytes(chunk.target, begin);
    decode_elements(chunk.source, chunk.from + run_bytes(chunk.source, begin), plain.data(), count);
    encode_elements(chunk.target, plain.data(), to, count);
    decode_elements(chunk.target, to, back.data(), count);
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
    piece.resize(run_bytes(options_.dtype, count));
    const auto parts = static_cast<uint32_t>((count + kPart - 1) / kPart);
    std::vector<double> errors(parts), weights(parts);
    const Chunk chunk{
        p.bytes + run_bytes(source, first), piece.data(), source, options_.dtype, count, errors.data(), weights.data()};
    executor.run(parts, convert_part, &chunk);
    for (uint32_t i = 0; i < parts; ++i) error_ += errors[i], weights_ += weights[i];
    return piece;
  }

  std::vector<Part> parts_;
  const std::string& from_;
  const QuantizeOptions& options_;
  GgufWriter writer_;
  std::vector<Planned> planned_;
  QuantizeResult result_;
  uint64_t end_ = 0;
  double error_ = 0, weights_ = 0;
};

}  // namespace

const std::vector<std::string>& quantized_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TypeRow& row : kTypes) all.emplace_back(element_type(row.dtype).name);
    return all;
  }();
  return names;
}

QuantizeResult quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options,
                             Executor& executor, const std::function<void(double)>& progress) {
  std::error_code failed;
  if (std::filesystem::equivalent(from, to, failed))
    throw Error(ErrorKind::Usage, fmt::format("'{}' and '{}' are one file", from, to)).note("give another output");
  std::vector<Part> parts = open_parts(from);
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (const Part& part : parts) files.push_back(part.file);
  const QuantizeResult result = Writing(std::move(parts), from, options).write(to, executor, progress);
  for (const auto& file : files) file->expect_whole();
  return result;
}

}  // namespace harmonics::engine
