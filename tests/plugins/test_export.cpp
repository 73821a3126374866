// Exporters: round trips, errors that name what a format cannot express, and the verb that converts between formats.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <boost/json.hpp>

#include <harmonics/exporter.hpp>

#include "engine/model/exported.hpp"
#include "engine/model/imported.hpp"
#include "formats/gguf.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::map<std::string, HTensor> some_tensors() {
  return {{"w", HTensor::from<float>({3, 2}, {1, 2, 3, 4, 5, 6})}, {"b", HTensor::from<float>({3}, {7, 8, 9})}};
}

AttributeMap some_metadata() {
  return AttributeMap()
      .set("general.architecture", std::string("none"))
      .set("none.count", int64_t{7})
      .set("none.large", int64_t{1} << 40)
      .set("none.below", int64_t{-3})
      .set("none.share", 0.5)
      .set("none.tenth", 0.1)
      .set("none.whole", 2.0)
      .set("none.flag", true)
      .set("none.sizes", std::vector<int64_t>{1, -2})
      .set("none.scores", std::vector<double>{0.5, -2})
      .set("none.words", std::vector<std::string>{"a", "\xC3\xA9 \"q\"\n", ""});
}

ImportedModel whole_model(const std::string& path) {
  Registry& registry = Registry::global();
  return import_model(path, registry, {"", {{"whole", "true"}}});
}

void expect_same(const ImportedModel& model) {
  CHECK(model.metadata.values().str() == some_metadata().str());
  REQUIRE(model.tensors.size() == 2);
  for (const auto& [name, tensor] : some_tensors()) {
    const HTensor& read = model.tensor(name);
    REQUIRE(read.shape() == tensor.shape());
    CHECK(std::memcmp(read.bytes(), tensor.bytes(), static_cast<size_t>(tensor.size()) * sizeof(float)) == 0);
  }
}

std::string export_refusal(const std::map<std::string, HTensor>& tensors, const AttributeMap& metadata,
                           const std::string& path, const std::string& exporter = "") {
  return message_of([&] { export_model(tensors, metadata, path, Registry::global(), {exporter, {}}); });
}

}  // namespace

TEST_CASE("exporters: a model comes back from GGUF and from safetensors as it was") {
  journeys::Folder f;
  for (const char* ending : {".gguf", ".safetensors"}) {
    INFO(ending);
    const std::string path = f / (std::string("m") + ending);
    const ExportResult result = export_model(some_tensors(), some_metadata(), path, Registry::global());
    CHECK(result.exporter == std::string(ending).substr(1));
    CHECK(result.tensors == 2);
    CHECK(result.bytes == std::filesystem::file_size(path));
    expect_same(whole_model(path));
    const ImportedModel brief = import_model(path, Registry::global());
    CHECK_FALSE(brief.metadata.has("none.words"));
    CHECK(brief.metadata.integer("none.count") == 7);
  }
}

TEST_CASE("exporters: a folder has the settings that GGUF leaves out or lists for each block") {
  if (journeys::harmonics("list exporters").out.find("huggingface") == std::string::npos) return;
  std::map<std::string, HTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    tensors.emplace(name, HTensor::from(shape, std::vector<float>(static_cast<size_t>(shape.count()), 0.5f)));
  };
  add("token_embd.weight", {10, 8}), add("output.weight", {10, 8}), add("output_norm.weight", {8});
  for (const std::string block : {"blk.0.", "blk.1.", "blk.2."}) {
    for (const char* matrix : {"attn_q", "attn_k", "attn_v", "attn_output"}) add(block + matrix + ".weight", {8, 8});
    for (const char* norm : {"attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"})
      add(block + norm + ".weight", {8});
    add(block + "ffn_gate.weight", {12, 8}), add(block + "ffn_up.weight", {12, 8});
    add(block + "ffn_down.weight", {8, 12});
  }
  AttributeMap metadata = AttributeMap()
                              .set("general.architecture", std::string("olmo2"))
                              .set("olmo2.embedding_length", int64_t{8})
                              .set("olmo2.block_count", int64_t{3})
                              .set("olmo2.feed_forward_length", std::vector<int64_t>{12, 12, 12})
                              .set("olmo2.attention.head_count", int64_t{2})
                              .set("olmo2.context_length", int64_t{32})
                              .set("olmo2.attention.sliding_window", int64_t{4})
                              .set("olmo2.attention.sliding_window_pattern", std::vector<int64_t>{1, 0, 1})
                              .set("olmo2.rope.scaling.factor", 4.0);
  journeys::Folder f;
  export_model(tensors, metadata, f / "folder/", Registry::global(), {"huggingface", {}});
  const boost::json::value config = boost::json::parse(journeys::read(f / "folder/config.json"));
  CHECK(config.at("intermediate_size") == 12);
  CHECK(config.at("num_key_value_heads") == 2);
  CHECK(config.at("rope_theta") == 10000.0);
  CHECK(boost::json::serialize(config.at("layer_types")) ==
        R"(["sliding_attention","full_attention","sliding_attention"])");
  const boost::json::value& full = config.at_pointer("/rope_parameters/full_attention");
  CHECK(full.at("rope_type") == "linear");
  CHECK(full.at("factor") == 4.0);
}

TEST_CASE("exporters: GGUF files have the narrowest kinds that hold a value") {
  journeys::Folder f;
  const std::string path = f / "m.gguf";
  export_model(some_tensors(), some_metadata(), path, Registry::global());
  const std::string bytes = journeys::read(path);
  const GgufFile file = read_gguf(bytes, {path, ErrorKind::Weights});
  const auto kind = [&](const char* key) { return file.find(key)->kind(); };
  CHECK(kind("none.count") == GgufKind::U32);
  CHECK(kind("none.large") == GgufKind::I64);
  CHECK(kind("none.below") == GgufKind::I32);
  CHECK(kind("none.share") == GgufKind::F32);
  CHECK(kind("none.tenth") == GgufKind::F64);
  CHECK(file.find("none.words")->texts()->size() == 3);
}

TEST_CASE("exporters: what a format cannot hold is refused by name, and the old file stays") {
  journeys::Folder f;
  const std::string gguf = f.write("m.gguf", "old"), safetensors = f.write("m.safetensors", "old");
  const auto zeros = [](DType dtype, const Shape& shape) {
    const TensorType type{dtype, shape};
    return make_value(type, std::make_shared<Storage>(type.bytes()));
  };
  const HTensor truth = zeros(DType::Bool, {1}), axes = zeros(DType::F32, {1, 1, 1, 1, 1});
  CHECK(export_refusal({{"t", truth}}, {}, gguf).find("the tensor 't' is bool, which GGUF files cannot hold") !=
        std::string::npos);
  CHECK(export_refusal({{"t", axes}}, {}, gguf).find("the tensor 't' has 5 axes; GGUF files hold up to 4") !=
        std::string::npos);
  CHECK(export_refusal({{"t", zeros(DType::F32, {0, 2})}}, {}, gguf).find("the tensor 't' has no elements") !=
        std::string::npos);
  CHECK(export_refusal({}, AttributeMap().set("k", std::vector<int64_t>{int64_t{1} << 40}), gguf)
            .find("the metadata 'k' is a list of integers beyond 32 bits") != std::string::npos);
  CHECK(export_refusal({}, AttributeMap().set("k", std::numeric_limits<double>::infinity()), safetensors)
            .find("the metadata 'k' has the number inf") != std::string::npos);
  CHECK(export_refusal({}, AttributeMap().set("harmonics.value:k", int64_t{1}), safetensors)
            .find("the metadata key 'harmonics.value:k' is reserved") != std::string::npos);
  CHECK(journeys::read(gguf) == "old");
  CHECK(journeys::read(safetensors) == "old");
  CHECK(export_refusal({}, {}, f / "m.bin")
            .find("does not determine a format\nname one: --format gguf, huggingface, safetensors") !=
        std::string::npos);
  CHECK(export_refusal({}, {}, f / "m.bin", "onnx").find("unknown exporter 'onnx'") == 0);
}

TEST_CASE("exporters: a failed write of the file is the error, whatever the exporter makes of it") {
  struct Careless final : Exporter {
    uint32_t probe(const std::string&) const override { return HX_PROBE_POSSIBLE; }
    void write(const ModelToWrite&, const Arguments&, const ExportSink& sink) const override {
      for (int i = 0; i < 3; ++i) try {
          sink.write("bytes");
        } catch (const Error&) {
          continue;
        }
    }
  };
  struct Full final : FileCalls {
    long write(int, const void*, size_t) override { return errno = ENOSPC, -1; }
  } full;
  Registry registry;
  testing::register_by(
      registry, [](FunctionRegistry& r) { CHECK(register_exporter(r, "careless", std::make_shared<Careless>())); });
  journeys::Folder f;
  const std::string path = f.write("out", "old");
  CHECK(message_of([&] { export_model({}, {}, path, registry, {}, {}, full); }).find("No space left on device") !=
        std::string::npos);
  CHECK(journeys::read(path) == "old");
  CHECK_THROWS_AS(export_model({}, {}, path, registry, {}, [] { throw Error(ErrorKind::Weights, "lost"); }), Error);
  CHECK(journeys::read(path) == "old");
  export_model({}, {}, path, registry);
  CHECK(journeys::read(path) == "bytesbytesbytes");
}

TEST_CASE("export: weights of a run become GGUF, a GGUF file safetensors and the same GGUF file again") {
  journeys::Folder f;
  const std::string first = f / "a.gguf", second = f / "b.safetensors", third = f / "c.bin";
  export_model(some_tensors(), some_metadata(), first, Registry::global());
  CHECK(journeys::harmonics("export " + first + " " + second).code == 0);
  const journeys::Result r = journeys::harmonics("export " + second + " " + third + " --format gguf --json");
  REQUIRE(r.code == 0);
  const boost::json::value v = boost::json::parse(r.out);
  CHECK(v.at("format").as_string() == "gguf");
  CHECK(v.at("tensors").as_int64() == 2);
  CHECK(journeys::read(third) == journeys::read(first));
  f.write("g.hmx", "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  f.write("x.csv", "1,2\n3,4\n");
  f.write("y.csv", "1\n2\n");
  const std::string weights = f / "w.safetensors";
  REQUIRE(journeys::harmonics("run " + (f / "g.hmx") + " --epochs 1 --quiet --producer x=" + (f / "x.csv") +
                              " --producer y=" + (f / "y.csv") + " --save " + weights)
              .code == 0);
  CHECK(journeys::harmonics("export " + weights + " " + (f / "w.gguf")).code == 0);
  const ImportedModel model = import_model(f / "w.gguf", Registry::global());
  CHECK(model.tensor("x.o.affine.weight").size() == 2);
  CHECK(model.metadata.has("harmonics.graph"));
  const journeys::Result unknown = journeys::harmonics("export " + weights + " " + (f / "w.onnx"));
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("does not determine a format") != std::string::npos);
  CHECK(journeys::harmonics("export " + weights + " " + (f / "w.gguf") + " --option turbo=1").code == 2);
  CHECK(journeys::harmonics("export " + (f / "none") + " " + (f / "w.gguf")).code != 0);
}

TEST_CASE("export: a flow takes weights of GGUF files, and exported checkpoints are no longer sealed") {
  journeys::Folder f;
  f.write("g.hmx", "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  std::string rows;
  for (int i = 0; i < 64; ++i) rows += std::to_string(i % 5) + (i == 63 ? "\n" : ",");
  f.write("x.csv", rows + rows);
  f.write("y.csv", "1,2\n2,1\n");  // a matrix of one row is not quantized
  const std::string flow = f / "g.hmx", x = " --producer x=" + (f / "x.csv"), out = f / "out.csv";
  const auto infer = [&](const std::string& weights) {
    const journeys::Result r =
        journeys::harmonics("infer " + flow + " --quiet --weights " + weights + x + " --consumer file:" + out);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return journeys::read(out);
  };
  REQUIRE(journeys::harmonics("run " + flow + " --epochs 3 --quiet --checkpoint " + (f / "ck") + x +
                              " --producer y=" + (f / "y.csv") + " --save " + (f / "w.safetensors"))
              .code == 0);
  const std::string expected = infer(f / "w.safetensors");
  std::string checkpoint;
  for (const auto& entry : std::filesystem::directory_iterator(f / "ck")) checkpoint = entry.path().string();
  for (const std::string& from : {f / "w.safetensors", checkpoint})
    for (const char* to : {"e.safetensors", "e.gguf"}) {
      INFO(from << " to " << to);
      REQUIRE(journeys::harmonics("export " + from + " " + (f / to)).code == 0);
      CHECK(infer(f / to) == expected);
      const journeys::Result seen = journeys::harmonics("inspect " + (f / to));
      CHECK(seen.code == 0);
      CHECK(seen.out.find("harmonics.name") != std::string::npos);
      CHECK(seen.out.find("harmonics.checksum") == std::string::npos);
      CHECK(seen.out.find("harmonics.run") == std::string::npos);
    }
  REQUIRE(journeys::harmonics("quantize " + (f / "e.gguf") + " " + (f / "q.gguf") + " --type q8_0").code == 0);
  REQUIRE(journeys::harmonics("export " + (f / "q.gguf") + " " + (f / "q.safetensors")).code == 0);
  CHECK(infer(f / "q.gguf") == infer(f / "q.safetensors"));
  CHECK(std::abs(std::stod(infer(f / "q.gguf")) - std::stod(expected)) < 0.05);
  const journeys::Result trained = journeys::harmonics("run " + flow + " --steps 1 --weights " + (f / "q.gguf") + x +
                                                       " --producer y=" + (f / "y.csv"));
  INFO(trained.err);
  CHECK(trained.code == 0);
  CHECK(trained.err.find("1 tensor of " + (f / "q.gguf") +
                         " converted, such as 'x.o.affine.weight' from q8_0 to f32") != std::string::npos);
}

TEST_CASE("export: the library's exporters conform") {
  for (const char* name : {"gguf", "safetensors"}) {
    const std::string library =
        std::string(HARMONICS_BINARY_DIR) + "/lib/harmonics/plugins/libharmonics_" + name + ".so";
    const journeys::Result r = journeys::harmonics("plugin check " + library + " --calls 1000");
    INFO(r.out);
    CHECK(r.code == 0);
    CHECK(r.out.find("exporter " + std::string(name)) != std::string::npos);
    CHECK(r.out.find("reads the same tensors") != std::string::npos);
  }
}
