#!/usr/bin/env python3
"""Writes reference values for functionals and flows of further layers, activations and losses:
make_layers.py [FOLDER] (default: golden/ beside this file). See make_golden.py for how numbers are made.

layers.safetensors: cases of functionals, as in functionals.safetensors.
flows.safetensors, for each flow F (metadata F = its text): the same net trained by plain SGD in PyTorch
  F/data/S (producers), F/initial/P, F/loss (of ten steps), F/final/P; the learning rate is 2^-4
"""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from make_golden import Draw, Functionals, write_safetensors

RATE = 2.0**-4


# ---- functionals --------------------------------------------------------------------------------------------------------


def hardsigmoid(x):  # F.hardsigmoid rounds 1/6 to float32 in the backward pass
    return torch.where(x <= -3, torch.zeros_like(x), torch.where(x >= 3, torch.ones_like(x), x / 6 + 0.5))


def add_activations(f):
    d = Draw(21)
    x = d.normal(3, 5, 4, scale=3)
    f.add("prelu/one", [x, d.normal(1)], F.prelu)
    f.add("prelu/channels", [x, d.normal(5)], F.prelu)
    f.add("prelu/last", [x, d.normal(4)], lambda x, w: F.prelu(x.transpose(1, 2), w).transpose(1, 2), {"axis": 2})
    f.add("selu/plain", [x], F.selu)
    f.add("celu/alpha", [x], lambda x: F.celu(x, 0.5), {"alpha": 0.5})  # PyTorch rounds alpha to float32
    f.add("mish/plain", [x], F.mish)
    f.add("mish/large", [x * 20], F.mish)
    f.add("hardtanh/plain", [x], F.hardtanh)
    f.add("hardtanh/six", [x], F.relu6, {"low": 0.0, "high": 6.0})
    f.add("hardsigmoid/plain", [x], hardsigmoid)
    f.add("hardswish/plain", [x], F.hardswish)
    ends = torch.tensor([-3.0, 3.0, -1.0, 1.0, 0.0, 6.0]).double()
    for name, function in {"selu": F.selu, "hardsigmoid": hardsigmoid, "hardswish": F.hardswish, "hardtanh": F.hardtanh}.items():
        f.add(f"{name}/bends", [ends], function)


def per_row(function):
    def run(x, labels):
        flat = function(x.reshape(-1, x.shape[-1]), labels.long().reshape(-1))
        return flat.reshape(labels.shape)
    return run


def add_losses(f):
    d = Draw(22)
    x = d.normal(2, 5, 7, scale=2)
    f.add("nll/rows", [F.log_softmax(x, -1), d.whole(7, 2, 5)], per_row(lambda x, y: F.nll_loss(x, y, reduction="none")))
    for name, power, margin in (("plain", 1, 1.0), ("squared", 2, 0.5)):
        f.add(f"multi_margin/{name}", [x, d.whole(7, 2, 5, dtype=torch.uint8)],
              per_row(lambda x, y, p=power, m=margin: F.multi_margin_loss(x, y, p=p, margin=m, reduction="none")),
              {"margin": margin, "power": power})
        signs = torch.sign(d.normal(2, 5, 7))
        f.add(f"hinge/{name}", [x, signs], lambda x, y, p=power, m=margin: (m - x * y).clamp(min=0) ** p,
              {"margin": margin, "power": power})
    target = F.softmax(d.normal(2, 5, 7), -1)
    f.add("kl_div/rows", [F.log_softmax(x, -1), target], lambda x, t: F.kl_div(x, t, reduction="none"))


def group_norm(x, gain, bias, groups, epsilon):
    rows = x.reshape(x.shape[0], groups, -1)
    rstd = torch.rsqrt(rows.var(-1, unbiased=False) + epsilon)
    return F.group_norm(x, groups, gain, bias, epsilon), rows.mean(-1), rstd


def add_norms(f):
    d = Draw(23)
    for name, shape, groups in (("images", (2, 6, 3, 4), 3), ("rows", (5, 8), 2), ("instance", (3, 4, 7), 4)):
        f.add(f"group_norm/{name}", [d.normal(*shape) + 0.5, d.normal(shape[1]), d.normal(shape[1])],
              lambda x, g, b, n=groups: group_norm(x, g, b, n, 1e-5), {"groups": groups, "epsilon": 1e-5},
              given=(0, 1, 2) if name == "images" else (0,))


def add_offset_norms(f):
    d = Draw(25)
    x = d.normal(2, 6, 3, 4) + 1e4  # its mean, rounded to float32, is up to 5e-4 off
    f.add("group_norm/offset", [x, d.normal(6), d.normal(6)], lambda x, g, b: group_norm(x, g, b, 3, 1e-5),
          {"groups": 3, "epsilon": 1e-5}, differentiate=False)


def lstm_scan(x, w, h, c, reverse=False):
    ys, cs, gates = [], [], []
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        i, f, g, o = (x[:, t] + h @ w.T).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        ys.append(h), cs.append(c), gates.append(torch.cat([i, f, g, o], -1))
    return [torch.stack(v[::-1] if reverse else v, 1) for v in (ys, cs, gates)]


def gru_scan(x, w, b, h, reverse=False):
    ys, gates = [], []
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        (r, z, n), (hr, hz, q) = x[:, t].chunk(3, -1), (h @ w.T + b).chunk(3, -1)
        r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
        n = (n + r * q).tanh()
        h = (1 - z) * n + z * h
        ys.append(h), gates.append(torch.cat([r, z, n, q], -1))
    return [torch.stack(v[::-1] if reverse else v, 1) for v in (ys, gates)]


def module(kind, x, weights, states, reverse):
    """The single-layer module of torch.nn."""
    w_ih, w_hh, *biases = weights
    net = kind(w_ih.shape[1], w_hh.shape[1], batch_first=True, bias=bool(biases)).double()
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    states = [s[None] for s in states]
    state = None if not states else states[0] if len(states) == 1 else tuple(states)
    y, _ = torch.func.functional_call(net, dict(zip(names, weights)), (x.flip(1) if reverse else x, state))
    return y.flip(1) if reverse else y


def add_recurrent(f):
    d = Draw(24)
    x, h, c = d.normal(3, 5, 4), d.normal(3, 6), d.normal(3, 6)
    for name, kind, gates, states in (("lstm", nn.LSTM, 4, [h, c]), ("gru", nn.GRU, 3, [h])):
        weights = [d.normal(gates * 6, 4, scale=0.4), d.normal(gates * 6, 6, scale=0.4)]
        biases = [d.normal(gates * 6), d.normal(gates * 6)]
        for case, reverse, most in (("plain", False, 3), ("bias", False, 5), ("states", False, 7), ("reverse", True, 7)):
            inputs = ([x] + weights + biases + states)[:most]
            f.add(f"{name}/{case}", inputs,
                  lambda x, *rest, k=kind, r=reverse: module(k, x, rest[:4], rest[4:], r), {"reverse": reverse})
        for case, reverse in (("plain", False), ("reverse", True)):
            scan = [d.normal(3, 5, gates * 6), weights[1]] + ([] if name == "lstm" else [biases[1]]) + states
            function = lstm_scan if name == "lstm" else gru_scan
            f.add(f"{name}_scan/{case}", scan, lambda *a, r=reverse, g=function: g(*a, reverse=r), {"reverse": reverse},
                  given=(0,) if case == "plain" else tuple(range(len(states) + 1)))


# ---- flows --------------------------------------------------------------------------------------------------------------


class Flows:
    def __init__(self):
        self.tensors, self.metadata = {}, {}

    def add(self, name, text, data, parameters, loss_of, buffers=()):
        """loss_of(parameters, data) -> loss; integers of the data are as stored, other numbers double. `buffers` names
        what loss_of replaces instead of the gradient."""
        data = {k: v.float().double() if v.is_floating_point() else v for k, v in data.items()}
        p = {k: nn.Parameter(v.float().double(), requires_grad=k not in buffers) for k, v in parameters.items()}
        trained = {k: v for k, v in p.items() if k not in buffers}
        self.metadata[name] = text
        for k, v in data.items():
            self.tensors[f"{name}/data/{k}"] = v.float() if v.is_floating_point() else v
        for k, v in p.items():
            self.tensors[f"{name}/initial/{k}"] = v.detach().float()
        losses = []
        for _ in range(10):
            loss = loss_of(p, data)
            gradients = torch.autograd.grad(loss, list(trained.values()))
            losses.append(loss.detach())
            with torch.no_grad():
                for v, g in zip(trained.values(), gradients):
                    v -= RATE * g
        self.tensors[f"{name}/loss"] = torch.stack(losses)
        for k, v in p.items():
            self.tensors[f"{name}/final/{k}"] = v.detach().clone()


def affine(d, path, out, width):
    return {f"{path}.weight": d.normal(out, width, scale=width**-0.5), f"{path}.bias": d.normal(out, scale=0.1)}


def linear(p, path, x):
    return F.linear(x, p[f"{path}.weight"], p[f"{path}.bias"])


def flow(declarations, body):
    return f"harmonic g {{ {declarations} cycle {{ {body} }} }}"


def squares(o, y):
    return ((o - y) ** 2).sum(-1).mean()


def add_activation_flows(f):
    activations = {
        "selu": F.selu, "celu(alpha=0.7)": lambda x: F.celu(x, 0.7), "mish": F.mish, "relu6": F.relu6,
        "hardtanh(low=-0.5, high=0.75)": lambda x: F.hardtanh(x, -0.5, 0.75), "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish, "softsign": F.softsign, "logsigmoid": F.logsigmoid,
    }
    d = Draw(31)
    data = {"x": d.normal(8, 5, scale=2), "y": d.normal(8, 3)}
    declarations = "producer x {5}; producer y {3}; layer h {6}; layer o {3};"
    net = {**affine(d, "x.h.affine", 6, 5), **affine(d, "h.o.affine", 3, 6)}
    for name, function in activations.items():
        f.add(name.split("(")[0], flow(declarations, f"x -({name})-> h -> o; o <- y;"), data, net,
              lambda p, v, g=function: squares(linear(p, "h.o.affine", g(linear(p, "x.h.affine", v["x"]))), v["y"]))
    for name, slopes in (("prelu", 1), ("prelu(channels=true)", 6)):
        f.add(name.replace("(channels=true)", "_channels"), flow(declarations, f"x -({name})-> h -> o; o <- y;"), data,
              {**net, "x.h.prelu.weight": torch.full((slopes,), 0.25)},
              lambda p, v: squares(linear(p, "h.o.affine", F.prelu(linear(p, "x.h.affine", v["x"]),
                                                                   p["x.h.prelu.weight"])), v["y"]))
    f.add("glu", flow(declarations.replace("layer h {6}", "layer h"), "x -(affine(12), glu)-> h -> o; o <- y;"), data,
          {**affine(d, "x.h.affine", 12, 5), **affine(d, "h.o.affine", 3, 6)},
          lambda p, v: squares(linear(p, "h.o.affine", F.glu(linear(p, "x.h.affine", v["x"]))), v["y"]))


def add_loss_flows(f):
    d = Draw(32)
    x, labels = d.normal(9, 5), d.whole(4, 9, dtype=torch.int32)
    some = labels.clone()
    some[[1, 5]] = -100
    net = affine(d, "x.o.affine", 4, 5)

    def classes(name, loss, function, y=labels, arrow="->", net=net, width=4):
        declarations = f"producer x {{5}}; producer y {{{width}}}; layer o {{{net['x.o.affine.bias'].numel()}}};"
        f.add(name, flow(declarations, f"x {arrow} o; o <-({loss})- y;"), {"x": x, "y": y}, net,
              lambda p, v: function(linear(p, "x.o.affine", v["x"]), v["y"].long()))

    classes("nll", "nll", lambda o, y: F.nll_loss(F.log_softmax(o, -1), y), arrow="-(log_softmax)->")
    classes("nll_ignored", "nll(ignore_index=-100)", lambda o, y: F.nll_loss(o, y), y=some)
    classes("smoothed", "cross_entropy(label_smoothing=0.125)", lambda o, y: F.cross_entropy(o, y, label_smoothing=0.125))
    classes("ignored", "cross_entropy(ignore_index=-100)", F.cross_entropy, y=some)
    classes("smoothed_ignored", "cross_entropy(label_smoothing=0.25, ignore_index=-100)",
            lambda o, y: F.cross_entropy(o, y, label_smoothing=0.25), y=some, arrow="-(softmax)->")
    classes("multi_margin", "hinge", F.multi_margin_loss)
    classes("multi_margin_squared", "hinge(margin=0.5, power=2)", lambda o, y: F.multi_margin_loss(o, y, p=2, margin=0.5))
    classes("two_classes", "binary_cross_entropy",
            lambda o, y: F.binary_cross_entropy_with_logits(o[:, 0], y.double()), y=d.whole(2, 9, dtype=torch.uint8),
            arrow="-(sigmoid)->", net=affine(d, "x.o.affine", 1, 5), width=2)

    def numbers(name, loss, function, y, arrow="->"):
        f.add(name, flow("producer x {5}; producer y {4}; layer o {4};", f"x {arrow} o; o <-({loss})- y;"), {"x": x, "y": y},
              net, lambda p, v: function(linear(p, "x.o.affine", v["x"]), v["y"]))

    numbers("hinge", "hinge", lambda o, y: (1 - o * y).clamp(min=0).sum(-1).mean(), torch.sign(d.normal(9, 4)))
    shares = F.softmax(d.normal(9, 4), -1)
    numbers("kl_div", "kl_div", lambda o, y: F.kl_div(F.log_softmax(o, -1), y, reduction="batchmean"), shares,
            "-(softmax)->")
    numbers("smoothed_shares", "cross_entropy(label_smoothing=0.25)",
            lambda o, y: F.cross_entropy(o, y, label_smoothing=0.25), shares)
    numbers("smooth_l1", "smooth_l1(beta=0.5)",
            lambda o, y: F.smooth_l1_loss(o, y, beta=0.5, reduction="none").sum(-1).mean(), d.normal(9, 4))


def add_norm_flows(f):
    d = Draw(33)
    data = {"x": d.normal(6, 4, 3, 3) + 0.5, "y": d.normal(6, 3)}

    def own(path, n):
        return {f"{path}.gain": 1 + d.normal(n, scale=0.1), f"{path}.bias": d.normal(n, scale=0.1)}

    for name, call, groups in (("group_norm", 'norm("group", groups=2)', 2), ("instance_norm", 'norm("instance")', 4)):
        f.add(name, flow("producer x {4, 3, 3}; producer y {3}; layer o;", f"x -({call}, affine)-> o; o <- y;"), data,
              {**own("x.o.norm", 4), **affine(d, "x.o.affine", 3, 36)},
              lambda p, v, n=groups: squares(linear(p, "x.o.affine", F.group_norm(
                  v["x"], n, p["x.o.norm.gain"], p["x.o.norm.bias"]).flatten(1)), v["y"]))
    f.add("rms_norm", flow("producer x {36}; producer y {3}; layer o;", 'x -(affine(8), norm("rms"), affine)-> o; o <- y;'),
          {"x": data["x"].flatten(1), "y": data["y"]},
          {**affine(d, "x.o.affine", 8, 36), "x.o.norm.gain": own("", 8)[".gain"], **affine(d, "x.o.affine.2", 3, 8)},
          lambda p, v: squares(linear(p, "x.o.affine.2", F.rms_norm(linear(p, "x.o.affine", v["x"]), (8,),
                                                                    p["x.o.norm.gain"], 1e-5)), v["y"]))


def add_batch_norm_flows(f):
    d = Draw(35)
    data = {"x": d.normal(7, 5, scale=2) + 0.5, "y": d.normal(7, 3)}

    def norm(p, path, x):
        return F.batch_norm(x, p[f"{path}.running_mean"], p[f"{path}.running_variance"], p[f"{path}.gain"], p[f"{path}.bias"],
                            training=True)

    def own(path, n):
        return {f"{path}.gain": 1 + d.normal(n, scale=0.1), f"{path}.bias": d.normal(n, scale=0.1),
                f"{path}.running_mean": torch.zeros(n), f"{path}.running_variance": torch.ones(n)}

    def buffers(path):
        return {f"{path}.running_mean", f"{path}.running_variance"}

    f.add("batch_norm", flow("producer x {5}; producer y {3}; layer o;", 'x -(norm("batch"), affine)-> o; o <- y;'), data,
          {**own("x.o.norm", 5), **affine(d, "x.o.affine", 3, 5)},
          lambda p, v: squares(linear(p, "x.o.affine", norm(p, "x.o.norm", v["x"])), v["y"]), buffers("x.o.norm"))

    def shared(p, v):  # used twice, each use moves the statistics
        h = norm(p, "bn", F.linear(v["x"], p["x.h.affine.weight"], p["x.h.affine.bias"]))
        return squares(linear(p, "h.o.affine.2", norm(p, "bn", linear(p, "h.o.affine", h))), v["y"])

    f.add("batch_norm_shared",
          flow("producer x {5}; producer y {3}; layer h {4}; layer o {3};",
               'x -(affine, norm("batch", name="bn"))-> h; h -(affine(4), norm("batch", name="bn"), affine)-> o; o <- y;'),
          data, {**affine(d, "x.h.affine", 4, 5), **own("bn", 4), **affine(d, "h.o.affine", 4, 4), **affine(d, "h.o.affine.2", 3, 4)},
          shared, buffers("bn"))


def add_recurrent_flows(f):
    d = Draw(34)
    x, each, one = d.normal(4, 6, 3), d.normal(4, 6, 2), d.normal(4, 2)
    for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU)):
        for case, options, torch_options in (
                ("", "5", {}), ("_last", "5, last=true", {}), ("_no_bias", "5, bias=false", {"bias": False}),
                ("_both_ways", "5, bidirectional=true, last=true", {"bidirectional": True}),
                ("_layers", "5, layers=2, bidirectional=true", {"bidirectional": True, "num_layers": 2})):
            net = kind(3, 5, batch_first=True, **torch_options).double()
            path, last = f"x.h.{name}", "last" in options
            start = {f"{path}.{k}": d.normal(*v.shape, scale=0.4) for k, v in net.named_parameters()}
            start.update(affine(d, "h.o.affine", 2, 10 if "bidirectional" in options else 5))

            def loss(p, v, net=net, path=path, last=last):
                y, state = torch.func.functional_call(net, {k: p[f"{path}.{k}"] for k, _ in net.named_parameters()}, v["x"])
                h = state[0] if isinstance(state, tuple) else state
                return squares(linear(p, "h.o.affine", torch.cat(list(h), -1) if last else y), v["y"])

            y = "producer y {2}; layer h; layer o {2};" if last else "producer y {*, 2}; layer h; layer o {*, 2};"
            f.add(name + case, flow(f"producer x {{*, 3}}; {y}", f"x -({name}({options}))-> h -> o; o <- y;"),
                  {"x": x.flatten(1), "y": one if last else each.flatten(1)}, start,
                  lambda p, v, g=loss: g(p, {"x": v["x"].reshape(4, 6, 3), "y": v["y"].reshape(one.shape if v["y"].shape[1] == 2 else each.shape)}))


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
    functionals, flows = Functionals(), Flows()
    for add in (add_activations, add_losses, add_norms, add_recurrent, add_offset_norms):
        add(functionals)
    for add in (add_activation_flows, add_loss_flows, add_norm_flows, add_recurrent_flows, add_batch_norm_flows):
        add(flows)
    write_safetensors(folder / "layers.safetensors", functionals.tensors, functionals.metadata)
    write_safetensors(folder / "flows.safetensors", flows.tensors, flows.metadata)
    for name in ("layers", "flows"):
        print(name, (folder / f"{name}.safetensors").stat().st_size)


if __name__ == "__main__":
    main()
