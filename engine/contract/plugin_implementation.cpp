#include "engine/contract/plugin_implementation.hpp"

#include <algorithm>

#include <fmt/core.h>

#include <harmonics/functional_abi.h>
#include <harmonics/ops.hpp>

#include "engine/contract/plugin_body.hpp"
#include "engine/contract/site_contract.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

// C view of a call site, valid during its lifetime.
class SiteView {
 public:
  explicit SiteView(const CallSiteInfo& s) : attributes_(s.attributes) {
    for (const TensorType& t : s.inputs) inputs_.push_back(to_c(t));
    for (const TensorType& t : s.outputs) outputs_.push_back(to_c(t));
    raw_.struct_size = sizeof raw_;
    raw_.flags = s.flags;
    raw_.op = s.op.c_str();
    raw_.attributes = attributes_.get();
    raw_.n_inputs = static_cast<uint32_t>(inputs_.size());
    raw_.n_outputs = static_cast<uint32_t>(outputs_.size());
    raw_.inputs = inputs_.data();
    raw_.outputs = outputs_.data();
    raw_.device = s.device.c_str();
    if (s.native.driver != HX_NATIVE_NONE) raw_.native = &s.native;
  }
  SiteView(const SiteView&) = delete;
  SiteView& operator=(const SiteView&) = delete;
  const hx_call_site* get() const { return &raw_; }

 private:
  AttributeView attributes_;
  std::vector<hx_type> inputs_, outputs_;
  hx_call_site raw_{};
};

// A node that calls an implementation or its gradient: its kernel if there is one, else its function on tensors.
class PluginStep : public HostFunction {
 public:
  PluginStep(ItemPtr item, CallSiteInfo site, std::vector<TensorType> results, std::string name)
      : item_(std::move(item)), site_(std::move(site)), results_(std::move(results)), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  std::vector<HTensor> run(const std::vector<HTensor>& inputs) const override {
    const TracePause numbers_only;
    ItemPtr owner;
    hx_kernel kernel{};
    if (find_kernel(kernel, owner)) {
      if (kernel.run) return run_kernel(kernel, inputs);
      if (kernel.destroy) kernel.destroy(kernel.context);  // a kernel for the device's queue only
    }
    std::vector<hx_value*> out(results_.size(), nullptr);
    const hx_status status = call(inputs, out.data());
    std::vector<HTensor> given;
    for (hx_value* v : out) given.push_back(HTensor::adopt(v));
    if (status != HX_OK) throw failed(status);
    check(given);
    return given;
  }

  bool find_kernel(hx_kernel& out, ItemPtr& owner) const override {
    out = {};
    out.struct_size = sizeof out;
    const SiteView site(site_);
    const hx_status status = ask(site.get(), out);
    if (status == HX_DECLINED) return false;
    if (status != HX_OK) throw failed(status);
    const bool queued = out.enqueue_native && !out.run && site_.native.driver != HX_NATIVE_NONE && out.name;
    const bool whole = queued || (out.run && out.name && out.phases >= 1 && out.phases <= HX_MAX_PHASES &&
                                  std::all_of(out.parts, out.parts + out.phases, [](uint32_t n) { return n > 0; }));
    if (!whole || out.workspace > kMostWorkspace) {
      if (out.destroy) out.destroy(out.context);
      throw Error(ErrorKind::Plugin,
                  fmt::format("{} gave a kernel {} for {}", name_,
                              whole ? "that requests a workspace of " + std::to_string(out.workspace) + " bytes"
                                    : "without function, name, phases or parts",
                              site_.str()));
    }
    owner = item_;
    return true;
  }

 protected:
  virtual hx_status ask(const hx_call_site* site, hx_kernel& out) const = 0;
  virtual hx_status call(const std::vector<HTensor>& inputs, hx_value** out) const = 0;
  const hx_implementation_vt& table() const { return item_->table<hx_implementation_vt>(); }
  Error failed(hx_status status) const {
    Error said = plugin_error(*item_, status);
    if (status != HX_DECLINED) return said;
    return {ErrorKind::Plugin,
            fmt::format("{} accepts {}, but has neither a kernel nor a function for it", name_, site_.str())};
  }

  ItemPtr item_;
  CallSiteInfo site_;
  std::vector<TensorType> results_;
  std::string name_;

 private:
  static constexpr uint64_t kMostWorkspace = uint64_t{1} << 40;

  void check(const std::vector<HTensor>& given) const {
    for (size_t i = 0; i < given.size(); ++i) {
      if (!given[i]) throw Error(ErrorKind::Plugin, name_ + " returned an empty tensor");
      if (type_of(given[i]) != results_[i])
        throw Error(ErrorKind::Plugin, fmt::format("{} returned {} as result {} of {}, which is {}", name_,
                                                   type_of(given[i]).str(), i + 1, site_.str(), results_[i].str()));
    }
  }

  std::vector<HTensor> run_kernel(const hx_kernel& kernel, const std::vector<HTensor>& inputs) const {
    std::vector<HTensor> results;
    std::vector<void*> buffers;
    for (const HTensor& x : inputs) buffers.push_back(x.raw()->storage->data());
    for (const TensorType& t : results_) {
      results.push_back(make_value(t, std::make_shared<Storage>(t.bytes())));
      buffers.push_back(results.back().raw()->storage->data());
    }
    const Storage workspace(kernel.workspace);
    buffers.push_back(workspace.data());
    for (uint32_t phase = 0; phase < kernel.phases; ++phase)
      for (uint32_t part = 0; part < kernel.parts[phase]; ++part)
        kernel.run(kernel.context, buffers.data(), phase, part);
    if (kernel.destroy) kernel.destroy(kernel.context);
    return results;
  }
};

class GradientStep final : public PluginStep {
 public:
  using PluginStep::PluginStep;
  std::vector<HTensor> gradient(const std::vector<HTensor>&, const std::vector<HTensor>&,
                                const std::vector<HTensor>&) const override {
    return {};
  }

 private:
  hx_status ask(const hx_call_site* site, hx_kernel& out) const override {
    return HM_TABLE_HAS(table(), find_gradient) ? table().find_gradient(item_->self, site, &out) : HX_DECLINED;
  }
  hx_status call(const std::vector<HTensor>& all, hx_value** out) const override {
    if (!HM_TABLE_HAS(table(), run_gradient)) return HX_DECLINED;
    const size_t n = site_.inputs.size(), m = site_.outputs.size();
    const std::vector<hx_value*> values = raw(all);
    const hx_gradient_call c{sizeof c,      static_cast<uint32_t>(n), static_cast<uint32_t>(m), 0,
                             values.data(), values.data() + n,        values.data() + n + m};
    const SiteView site(site_);
    return table().run_gradient(item_->self, site.get(), &c, out);
  }
};

// Returns the gradients of the inputs, derived from the body, for the gradients `dy` of its results.
std::vector<HTensor> derived_gradient(const CallSiteInfo& site, const std::vector<HTensor>& inputs,
                                      const std::vector<HTensor>& dy) {
  Tracer scratch("gradient of " + site.op);
  std::vector<HTensor> x, output_gradients, wrt;
  for (size_t i = 0; i < inputs.size(); ++i) x.push_back(scratch.input(std::to_string(i), site.inputs[i]));
  for (size_t i = 0; i < dy.size(); ++i)
    output_gradients.push_back(scratch.input(std::to_string(inputs.size() + i), site.outputs[i]));
  const std::vector<HTensor> y = apply(site.op, site.attributes, x);
  HTensor total;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!is_float(site.outputs[i].dtype)) continue;
    std::vector<int64_t> axes(site.outputs[i].shape.rank());
    for (size_t k = 0; k < axes.size(); ++k) axes[k] = static_cast<int64_t>(k);
    const HTensor share = y[i] * output_gradients[i], sum = axes.empty() ? share : reduce_sum(share, axes);
    total = total ? total + cast(sum, total.dtype()) : sum;
  }
  for (const HTensor& v : x)
    if (is_float(v.dtype())) wrt.push_back(v);
  const std::vector<HTensor> found = gradient(scratch, total, wrt);
  for (size_t i = 0; i < found.size(); ++i) scratch.output(std::to_string(i), found[i]);
  const Program body = scratch.take();
  std::vector<HTensor> all = inputs;
  all.insert(all.end(), dy.begin(), dy.end());
  const std::vector<HTensor> given = splice(body, all);
  std::vector<HTensor> results(inputs.size());
  for (size_t i = 0, k = 0; i < inputs.size(); ++i)
    if (is_float(site.inputs[i].dtype)) results[i] = given[k++];
  return results;
}

class ImplementationStep final : public PluginStep {
 public:
  ImplementationStep(ItemPtr item, CallSiteInfo site, Selected selected, const std::string& name)
      : PluginStep(std::move(item), site, site.outputs, name), selected_(std::move(selected)) {}

  const Selected* selected() const override { return &selected_; }

  std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                const std::vector<HTensor>& dy) const override {
    if (item_->flags & HX_OWN_GRADIENT) return own_gradient(inputs, outputs, dy);
    if (const OpRow* row = find_op(site_.op)) {
      if (!row->gradient) return std::vector<HTensor>(inputs.size());
      return row->gradient(site_.attributes, inputs, outputs, dy);
    }
    const FunctionalPtr functional = FunctionalTable::global().find(site_.op);
    if (functional && functional->gradient) return functional->gradient(site_.attributes, inputs, outputs, dy);
    return derived_gradient(site_, inputs, dy);
  }

 private:
  hx_status ask(const hx_call_site* site, hx_kernel& out) const override {
    return HM_TABLE_HAS(table(), find) ? table().find(item_->self, site, &out) : HX_DECLINED;
  }
  hx_status call(const std::vector<HTensor>& inputs, hx_value** out) const override {
    if (!HM_TABLE_HAS(table(), run)) return HX_DECLINED;
    const SiteView site(site_);
    const std::vector<hx_value*> in = raw(inputs);
    return table().run(item_->self, site.get(), in.data(), out);
  }

  std::vector<HTensor> own_gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                    const std::vector<HTensor>& dy) const {
    std::vector<HTensor> all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    all.insert(all.end(), dy.begin(), dy.end());
    std::vector<TensorType> types;
    for (const TensorType& t : site_.inputs)
      if (is_float(t.dtype)) types.push_back(t);
    Node node{};
    node.op = Op::host_call;
    node.host = std::make_shared<GradientStep>(item_, site_, types, "the gradient of " + name_);
    const std::vector<HTensor> given = Tracer::current()->append(std::move(node), all, types);
    std::vector<HTensor> results(inputs.size());
    for (size_t i = 0, k = 0; i < inputs.size(); ++i)
      if (is_float(site_.inputs[i].dtype)) results[i] = given[k++];
    return results;
  }

  Selected selected_;
};

}  // namespace

std::string CallSiteInfo::str() const {
  std::string text = op + attributes.str() + "(";
  for (size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : "") + inputs[i].str();
  text += ") -> ";
  for (size_t i = 0; i < outputs.size(); ++i) text += (i ? ", " : "") + outputs[i].str();
  return text;
}

std::string implementation_name(const Item& item) { return item.name.substr(item.name.find('.') + 1); }

std::string implementation_title(const Item& item) {
  return implementation_name(item) + (item.plugin.empty() ? "" : " of " + item.plugin);
}

std::optional<std::string> declines(const Item& item, const CallSiteInfo& site) {
  if (std::string why = beyond_contract(item, site.op, site.attributes, site.inputs, site.outputs); !why.empty())
    return why;
  const SiteView view(site);
  harmonics_api()->set_error(HX_ERROR_PLUGIN, "");
  const hx_status status = item.table<hx_implementation_vt>().supports(item.self, view.get());
  if (status == HX_OK) return std::nullopt;
  if (status != HX_DECLINED) throw plugin_error(item, status);
  const std::string why = harmonics_api()->last_error(nullptr);
  return why.empty() ? "no reason given" : why;
}

std::shared_ptr<const HostFunction> make_implementation_call(const ItemPtr& item, const CallSiteInfo& site,
                                                             Selected selected) {
  const std::string name = fmt::format("implementation '{}' of '{}'{}", implementation_name(*item), site.op,
                                       item->plugin.empty() ? "" : " of plugin '" + item->plugin + "'");
  return std::make_shared<ImplementationStep>(item, site, std::move(selected), name);
}

}  // namespace harmonics::engine
