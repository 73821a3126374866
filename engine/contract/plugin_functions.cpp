#include "engine/contract/plugin_functions.hpp"

#include <fmt/core.h>

#include "engine/contract/plugin_body.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

// Returns the C view of a copy of the arguments, which the pointer owns.
std::shared_ptr<const AttributeView> view_of_arguments(const AttributeMap& arguments) {
  struct Held {
    explicit Held(const AttributeMap& a) : map(a), view(map) {}
    AttributeMap map;
    AttributeView view;
  };
  auto held = std::make_shared<const Held>(arguments);
  return {held, &held->view};
}

std::shared_ptr<PluginBody> make_body(const ItemPtr& item, std::string signature) {
  auto body = std::make_shared<PluginBody>();
  body->item = item;
  body->signature = std::move(signature);
  return body;
}

void keeps_type(const Item& item, const TensorType& y, const TensorType& x) {
  if (y == x) return;
  throw Error(ErrorKind::Plugin, fmt::format("{} returned {} for {}; an activation keeps shape and element type",
                                             spoken_name(item), y.str(), x.str()))
      .note("register it as a layer if it is meant to change them");
}

void expect_batch(const Item& item, const HTensor& y, const HTensor& x) {
  if (y.rank() > 0 && y.shape()[0] == x.shape()[0]) return;
  throw Error(ErrorKind::Plugin, fmt::format("{} returned {} for {}; the batch axis must stay first", spoken_name(item),
                                             type_of(y).str(), type_of(x).str()));
}

// Throws unless the loss is a scalar or has the batch axis of the prediction.
void fits_batch(const Item& item, const TensorType& loss, const TensorType& prediction) {
  const bool fits = is_float(loss.dtype) && (loss.shape.rank() == 0 || loss.shape[0] == prediction.shape[0]);
  if (fits) return;
  throw Error(
      ErrorKind::Plugin,
      fmt::format(
          "{} returned {} for a prediction of {}; a loss returns one number, or numbers with the batch axis first",
          spoken_name(item), loss.str(), prediction.str()));
}

PluginBody::CheckResult checks_loss(const ItemPtr& item) {
  return [item](const TensorType& loss, const std::vector<TensorType>& inputs) { fits_batch(*item, loss, inputs[0]); };
}

// Names of the arguments that name layers. Their values are the body's inputs after prediction and target.
using LayerNames = std::vector<std::string>;

AttributeView with_layers(const AttributeMap& arguments, const LayerNames& layers, const std::vector<HTensor>& in) {
  AttributeView view(arguments);
  for (size_t i = 0; i < layers.size(); ++i) view.add_value(layers[i].c_str(), in[2 + i].raw());
  return view;
}

std::string loss_signature(const std::string& form, const AttributeMap& arguments, const LayerNames& layers) {
  std::string text = form + arguments.str();
  for (const std::string& layer : layers) text += "," + layer;
  return text;
}

std::shared_ptr<PluginBody> plain_loss(const ItemPtr& item, const AttributeMap& arguments, const LayerNames& layers) {
  auto body = make_body(item, loss_signature("loss", arguments, layers));
  const auto& table = item->table<hx_loss_vt>();
  body->call = [item, arguments, layers, &table](const std::vector<HTensor>& in, hx_value** out) {
    const AttributeView args = with_layers(arguments, layers, in);
    return table.apply(item->self, args.get(), in[0].raw(), in[1].raw(), out);
  };
  if (HM_TABLE_HAS(table, gradient))
    body->gradient = [item, arguments, layers, &table](const std::vector<HTensor>& in, hx_value** out) {
      const AttributeView args = with_layers(arguments, layers, in);
      return table.gradient(item->self, args.get(), in[0].raw(), in[1].raw(), in[3 + layers.size()].raw(), out);
    };
  body->check = checks_loss(item);
  return body;
}

std::shared_ptr<PluginBody> fused_loss(const ItemPtr& item, const AttributeMap& arguments, const LayerNames& layers,
                                       const std::string& activation) {
  auto body = make_body(item, loss_signature("loss after " + activation, arguments, layers));
  const auto& table = item->table<hx_loss_vt>();
  body->call = [item, arguments, layers, activation, &table](const std::vector<HTensor>& in, hx_value** out) {
    const AttributeView args = with_layers(arguments, layers, in);
    const hx_status status =
        table.apply_fused(item->self, args.get(), activation.c_str(), in[0].raw(), in[1].raw(), out);
    return status == HX_NEEDS_VALUES ? HX_DECLINED : status;  // the plain form supports opaque bodies
  };
  body->check = checks_loss(item);
  return body;
}

}  // namespace

namespace {

// Calls the plugin directly, for a tensor that is not traced.
HTensor activate_now(const Item& item, const AttributeMap& arguments, const HTensor& x) {
  const AttributeView view(arguments);
  hx_value* out = nullptr;
  const hx_status status = item.table<hx_activation_vt>().apply(item.self, view.get(), x.raw(), &out);
  if (status != HX_OK) throw plugin_error(item, status);
  if (!out) throw Error(ErrorKind::Plugin, spoken_name(item) + " returned an empty tensor");
  HTensor y = HTensor::adopt(out);
  keeps_type(item, type_of(y), type_of(x));
  return y;
}

}  // namespace

HTensor call_activation(const ItemPtr& item, const AttributeMap& arguments, const HTensor& x) {
  if (!x.raw()->traced()) return activate_now(*item, arguments, x);
  const auto body = make_body(item, "activation" + arguments.str());
  const auto args = view_of_arguments(arguments);
  const auto& table = item->table<hx_activation_vt>();
  body->call = [item, args, &table](const std::vector<HTensor>& in, hx_value** out) {
    return table.apply(item->self, args->get(), in[0].raw(), out);
  };
  if (HM_TABLE_HAS(table, gradient))
    body->gradient = [item, args, &table](const std::vector<HTensor>& in, hx_value** out) {
      return table.gradient(item->self, args->get(), in[0].raw(), in[1].raw(), in[2].raw(), out);
    };
  body->check = [item](const TensorType& y, const std::vector<TensorType>& inputs) { keeps_type(*item, y, inputs[0]); };
  if (HTensor y = apply_body(body, {x})) return y;
  throw plugin_error(*item, HX_DECLINED);
}

HTensor call_layer(const ItemPtr& item, const AttributeMap& arguments,
                   const std::vector<std::pair<std::string, HTensor>>& layers, hx_scope& scope, const HTensor& x) {
  AttributeView view(arguments);
  for (const auto& [argument, value] : layers) view.add_value(argument.c_str(), value.raw());
  const auto& table = item->table<hx_layer_vt>();
  hx_value* out = nullptr;
  const hx_status status = table.apply(item->self, view.get(), &scope, x.raw(), &out);
  if (status == HX_NEEDS_WIDTH) throw detail::NeedsWidth{};
  if (status == HX_NEEDS_VALUES)
    throw Error(ErrorKind::Plugin,
                fmt::format("{} reads the values of its input, which a layer cannot do", spoken_name(*item)))
        .note("write it with the operations of <harmonics/ops.hpp>, or as an activation with its own gradient()");
  if (status != HX_OK) throw plugin_error(*item, status);
  if (!out) throw Error(ErrorKind::Plugin, spoken_name(*item) + " returned an empty tensor");
  HTensor y = HTensor::adopt(out);
  expect_batch(*item, y, x);
  return y;
}

HTensor call_functional(const ItemPtr& item, const AttributeMap& arguments, const std::vector<HTensor>& inputs) {
  const std::vector<HTensor> results = apply(item->name, arguments, inputs);
  expect_batch(*item, results.at(0), inputs[0]);
  return results[0];
}

HTensor call_loss(const ItemPtr& item, const AttributeMap& arguments, const std::string& activation,
                  const HTensor& logits, const HTensor& prediction, const HTensor& target,
                  const std::vector<std::pair<std::string, HTensor>>& layers, std::vector<ReportedFigure>* figures) {
  const auto& table = item->table<hx_loss_vt>();
  LayerNames names;
  std::vector<HTensor> fused{logits, target}, plain{prediction, target};
  for (const auto& [argument, value] : layers) {
    names.push_back(argument);
    fused.push_back(value);
    plain.push_back(value);
  }
  if (HM_TABLE_HAS(table, apply_fused))
    if (HTensor loss = apply_body(fused_loss(item, arguments, names, activation), fused, figures)) return loss;
  if (HTensor loss = apply_body(plain_loss(item, arguments, names), plain, figures)) return loss;
  throw plugin_error(*item, HX_DECLINED);
}

}  // namespace harmonics::engine
