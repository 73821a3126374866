#include "engine/execution/kernel_source.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/core.h>

#include "engine/contract/site_contract.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

std::vector<hx_type> c_types(const std::vector<TensorType>& types) {
  std::vector<hx_type> result;
  for (const TensorType& t : types) result.push_back(to_c(t));
  return result;
}

// Returns the text of a call site: "linear{activation = relu}(f32[64, 784], f32[10, 784]) -> f32[64, 10]".
std::string describe(std::string_view op, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                     const std::vector<TensorType>& outputs) {
  std::string text = fmt::format("{}{}(", op, attributes.str());
  for (size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : "") + inputs[i].str();
  text += ") -> ";
  for (size_t i = 0; i < outputs.size(); ++i) text += (i ? ", " : "") + outputs[i].str();
  return text;
}

std::string name_of(const Node& node) { return node.op == Op::call ? node.callee : std::string(op_row(node.op).name); }

// Returns the kernel that the plugin of a function provides for this call, or null.
KernelPtr own_kernel(const HostFunction& function) {
  hx_kernel raw{};
  ItemPtr owner;
  return function.find_kernel(raw, owner) ? std::make_shared<const Kernel>(raw, std::move(owner)) : nullptr;
}

}  // namespace

uint64_t changed_bytes(const Program& program) {
  uint64_t bytes = 0;
  for (const NamedValue& update : program.updates) bytes += program.type(update.value).bytes();
  return bytes;
}

namespace {

struct PrecisionRow {
  Precision precision;
  const char* name;
  uint32_t flag;  // call-site flag
};
constexpr PrecisionRow kPrecisions[] = {{Precision::fp32, "fp32", 0},
                                        {Precision::fp16, "fp16", HX_SITE_FP16_CHUNKS},
                                        {Precision::bf16, "bf16", HX_SITE_BF16},
                                        {Precision::fp8, "fp8", HX_SITE_FP8},
                                        {Precision::int8, "int8", 0},
                                        {Precision::automatic, "auto", HX_SITE_FP16_CHUNKS}};

const PrecisionRow& row_of(Precision p) {
  return *std::find_if(std::begin(kPrecisions), std::end(kPrecisions),
                       [&](const PrecisionRow& r) { return r.precision == p; });
}

uint32_t roundings_of(const Item& device) {
  const auto& table = device.table<hx_device_vt>();
  return HM_TABLE_HAS(table, flags) ? table.flags(device.self) : 0;
}

}  // namespace

Precision parse_precision(const std::string& text) {
  for (const PrecisionRow& r : kPrecisions)
    if (text == r.name) return r.precision;
  throw Error(ErrorKind::Usage, fmt::format("there is no precision '{}'", text), {},
              {"use fp32, fp16, bf16, fp8, int8 or auto"});
}

const char* precision_name(Precision precision) { return row_of(precision).name; }

KernelSource::KernelSource(const std::string& device, Registry& registry, Precision precision) : name_(device) {
  if (device != "reference") device_ = registry.need(HX_DEVICE, device);
  if (device_) expect_available(*device_);
  const PrecisionRow& wanted = row_of(precision);
  had_ = device_ ? roundings_of(*device_) : 0;
  flags_ = wanted.flag & had_;
  if (flags_ || wanted.flag == 0 || precision == Precision::automatic) return;
  std::string others;
  for (const PrecisionRow& r : kPrecisions)
    if (r.precision != Precision::automatic && (r.flag == 0 || (r.flag & had_)))
      others += std::string(others.empty() ? "" : ", ") + r.name;
  throw Error(ErrorKind::Device, fmt::format("device '{}' does not support {} here", device, wanted.name), {},
              {device == "cpu" && precision == Precision::fp16
                   ? "this processor has no AVX512-FP16; it supports " + others + ", and auto chooses by measurement"
                   : "it supports " + others + "; auto chooses by measurement"});
}

uint32_t KernelSource::flags_of(std::optional<Rounding> rounding) const {
  if (!rounding) return flags_;
  constexpr uint32_t kFlags[] = {0, HX_SITE_FP16_CHUNKS, HX_SITE_BF16, HX_SITE_FP8};
  return kFlags[static_cast<size_t>(*rounding)] & had_;
}

bool KernelSource::has(Rounding rounding) const { return rounding == Rounding::none || flags_of(rounding) != 0; }

std::string KernelSource::description() const {
  const char* line = device_ ? device_->table<hx_device_vt>().describe(device_->self) : nullptr;
  return line ? line : name_;
}

KernelPtr KernelSource::find(const Program& program, const Node& node, uint64_t constants, uint32_t instance) {
  if (node.op == Op::host_call) return own_kernel(*node.host);
  if (node.op == Op::scan || !device_) return nullptr;  // a call site cannot describe the body of a scan
  return answer(name_of(node), node.attributes, input_types(program, node), output_types(program, node), constants,
                flags_of(program.scope_of(node).rounding), changed_bytes(program), instance)
      .kernel;
}

std::string KernelSource::why_not(const Program& program, const Node& node) {
  if (node.op == Op::host_call || node.op == Op::scan) return "";
  return why_not(name_of(node), node.attributes, input_types(program, node), output_types(program, node),
                 program.scope_of(node).rounding);
}

KernelPtr KernelSource::find(const std::string& op, const AttributeMap& attributes,
                             const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs,
                             uint64_t constants, std::optional<Rounding> rounding, uint64_t changed_bytes) {
  return device_ ? answer(op, attributes, inputs, outputs, constants, flags_of(rounding), changed_bytes).kernel
                 : nullptr;
}

std::string KernelSource::why_not(const std::string& op, const AttributeMap& attributes,
                                  const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs,
                                  std::optional<Rounding> rounding) {
  return device_ ? answer(op, attributes, inputs, outputs, 0, flags_of(rounding), 0).declined : "";
}

const KernelSource::Answer& KernelSource::answer(const std::string& op, const AttributeMap& attributes,
                                                 const std::vector<TensorType>& inputs,
                                                 const std::vector<TensorType>& outputs, uint64_t constants,
                                                 uint32_t flags, uint64_t changed_bytes, uint32_t instance) {
  std::string key = describe(op, attributes, inputs, outputs);
  if (flags) key += fmt::format(" flags {:x}", flags);
  if (constants) key += fmt::format(" constants {:x}", constants);
  const std::string text = key;
  if (changed_bytes) key += fmt::format(" changes {}", changed_bytes);
  if (instance) key += fmt::format(" instance {}", instance);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (std::string why = beyond_contract(*device_, op, attributes, inputs, outputs); !why.empty())
    return known_[key] = {nullptr, std::move(why)};

  const AttributeView view(attributes);
  const std::vector<hx_type> in = c_types(inputs), out = c_types(outputs);
  hx_call_site site{};
  site.struct_size = sizeof site;
  site.flags = flags;
  site.op = op.c_str();
  site.attributes = view.get();
  site.n_inputs = static_cast<uint32_t>(in.size());
  site.n_outputs = static_cast<uint32_t>(out.size());
  site.inputs = in.data();
  site.outputs = out.data();
  site.device = name_.c_str();
  site.constants = constants;
  site.changed_bytes = changed_bytes;
  Chain chain;
  std::vector<hx_scalar_op> ops;
  if (has_chain(op)) {
    chain = chain_of(attributes, inputs.size());
    for (const ChainOp& c : chain.ops)
      ops.push_back(
          {op_row(c.op).name.data(), c.operands[0], c.operands[1], c.operands[2], static_cast<uint32_t>(c.dtype)});
    site.n_chain = static_cast<uint32_t>(ops.size());
    site.chain = ops.data();
    site.chain_outputs = chain.outputs.data();
  }
  return known_[key] = ask(site, text);
}

KernelSource::Answer KernelSource::ask(const hx_call_site& site, const std::string& what) {
  hx_kernel raw{};
  raw.struct_size = sizeof raw;
  detail::api()->set_error(HX_ERROR_DEVICE, "");
  const hx_status status = device_->table<hx_device_vt>().find(device_->self, &site, &raw);
  if (status == HX_DECLINED) return {nullptr, detail::api()->last_error(nullptr)};
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorKind::Device, fmt::format("device '{}' {} for {}", name_, why, what));
  };
  if (status != HX_OK) {
    const char* text = status == HX_ERROR ? detail::api()->last_error(nullptr) : nullptr;
    throw refuse(fmt::format("failed ('{}')", text ? text : "no reason given"));
  }
  auto kernel = std::make_shared<const Kernel>(raw, device_);
  if (raw.enqueue && raw.name) {
    if (!has_own_memory(*device_)) throw refuse("has no device memory, but returned a queued kernel");
    return {kernel, ""};
  }
  if (raw.packed_bytes && (!raw.pack || !raw.packing || raw.packed_piece == 0 || raw.packed_piece % 64 != 0 ||
                           raw.packed_input >= site.n_inputs || !(site.constants >> raw.packed_input & 1)))
    throw refuse("gave a kernel that packs an input which is not constant, or without a function or a name for it");
  const bool phases = raw.run && raw.name && raw.phases >= 1 && raw.phases <= HX_MAX_PHASES;
  if (!phases || std::any_of(raw.parts, raw.parts + raw.phases, [](uint32_t n) { return n == 0; }))
    throw refuse("gave a kernel without function, name, phases or parts");
  return {kernel, ""};
}

}  // namespace harmonics::engine
