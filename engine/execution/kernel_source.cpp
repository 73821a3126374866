#include "engine/execution/kernel_source.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/passes/pass.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/op.hpp"

namespace harmonics {

namespace {

std::vector<hx_type> c_types(const std::vector<TensorType>& types) {
  std::vector<hx_type> result;
  for (const TensorType& t : types) result.push_back(to_c(t));
  return result;
}

// "linear{activation = relu}(f32[64, 784], f32[10, 784]) -> f32[64, 10]"
std::string describe(std::string_view op, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                     const std::vector<TensorType>& outputs) {
  std::string text = fmt::format("{}{}(", op, attributes.str());
  for (size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : "") + inputs[i].str();
  text += ") -> ";
  for (size_t i = 0; i < outputs.size(); ++i) text += (i ? ", " : "") + outputs[i].str();
  return text;
}

}  // namespace

KernelSource::KernelSource(const std::string& device, Registry& registry) : name_(device) {
  if (device != "reference") device_ = registry.need(HX_DEVICE, device);
}

KernelPtr KernelSource::find(const Program& program, const Node& node) {
  if (node.op == Op::host_call) return nullptr;
  const std::string name = node.op == Op::call ? node.callee : std::string(op_row(node.op).name);
  return find(name, node.attributes, input_types(program, node), output_types(program, node));
}

KernelPtr KernelSource::find(const std::string& op, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                             const std::vector<TensorType>& outputs) {
  if (!device_) return nullptr;
  const std::string key = describe(op, attributes, inputs, outputs);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;

  const AttributeView view(attributes);
  const std::vector<hx_type> in = c_types(inputs), out = c_types(outputs);
  hx_call_site site{};
  site.struct_size = sizeof site;
  site.op = op.c_str();
  site.attributes = view.get();
  site.n_inputs = static_cast<uint32_t>(in.size());
  site.n_outputs = static_cast<uint32_t>(out.size());
  site.inputs = in.data();
  site.outputs = out.data();
  Chain chain;
  std::vector<hx_scalar_op> ops;
  if (op == op_row(Op::fused_elementwise).name) {
    chain = chain_of(attributes, inputs.size());
    for (const ChainOp& c : chain.ops)
      ops.push_back({op_row(c.op).name.data(), c.operands[0], c.operands[1], c.operands[2], static_cast<uint32_t>(c.dtype)});
    site.n_chain = static_cast<uint32_t>(ops.size());
    site.chain = ops.data();
    site.chain_outputs = chain.outputs.data();
  }
  return known_[key] = ask(site, key);
}

KernelPtr KernelSource::ask(const hx_call_site& site, const std::string& what) {
  hx_kernel raw{};
  raw.struct_size = sizeof raw;
  const hx_status status = device_->table<hx_device_vt>().find(device_->self, &site, &raw);
  if (status == HX_DECLINED) return nullptr;
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorKind::Device, fmt::format("device '{}' {} for {}", name_, why, what));
  };
  if (status != HX_OK) {
    const char* text = status == HX_ERROR ? detail::api()->last_error(nullptr) : nullptr;
    throw refuse(fmt::format("failed ('{}')", text ? text : "no reason given"));
  }
  auto kernel = std::make_shared<const Kernel>(raw, device_);
  const bool phases = raw.run && raw.name && raw.phases >= 1 && raw.phases <= HX_MAX_PHASES;
  if (!phases || std::any_of(raw.parts, raw.parts + raw.phases, [](uint32_t n) { return n == 0; }))
    throw refuse("gave a kernel without function, name, phases or parts");
  return kernel;
}

}  // namespace harmonics
