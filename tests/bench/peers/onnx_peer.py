#!/usr/bin/env python3
"""Runs an inference workload of workloads/*.json in ONNX Runtime: onnx_peer.py WORKLOAD.json [--batch N] [--threads N] [--seconds S].

The net is written as ONNX with random weights, all graph optimisations on; once by run() and once with inputs and outputs bound
beforehand. See workload.py.
"""
import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from workload import data_of, serve


def model_of(workload, batch):
    random = numpy.random.default_rng(workload["seed"])
    shape = [batch, *workload["data"]["images"]["shape"]]
    nodes, weights, value, learned = [], [], "images", 0

    def add(op, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"value{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def parameter(*dims):
        scale = 1 / numpy.sqrt(numpy.prod(dims[1:]) if len(dims) > 1 else dims[0])
        weights.append(numpy_helper.from_array(random.uniform(-scale, scale, dims).astype(numpy.float32), f"weight{len(weights)}"))
        nonlocal learned
        learned += int(numpy.prod(dims))
        return weights[-1].name

    for kind, a in (item for entry in workload["net"]["layers"] for item in entry.items()):
        if kind == "linear":
            value = add("Gemm", [value, parameter(a[1], a[0]), parameter(a[1])], transB=1)
        elif kind == "conv":
            value = add("Conv", [value, parameter(a[1], a[0], a[2], a[2]), parameter(a[1])], pads=[a[3]] * 4, kernel_shape=[a[2]] * 2)
        elif kind == "maxpool":
            value = add("MaxPool", [value], kernel_shape=[a[0]] * 2, strides=[a[0]] * 2)
        else:
            value = add({"relu": "Relu", "flatten": "Flatten"}[kind], [value])
    if learned != workload["net"]["parameters"]:
        raise SystemExit(f"{workload['name']}: the layers learn {learned} numbers, \"parameters\" says {workload['net']['parameters']}")
    graph = helper.make_graph(nodes, workload["name"], [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString(), value


def prepare(workload, batch, threads):
    if workload["mode"] != "infer":
        return {}
    model, result = model_of(workload, batch)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    batches = data_of(workload, batch)["images"]

    def plain():
        return lambda i: session.run([result], {"images": batches[i % len(batches)]})

    def bound():
        bindings = []
        for images in batches:
            binding = session.io_binding()
            binding.bind_cpu_input("images", images)
            binding.bind_output(result)
            bindings.append(binding)
        return lambda i: session.run_with_iobinding(bindings[i % len(bindings)])

    return {"run": plain, "bound": bound}


prepare.threads = lambda threads: None  # a session has its own threads

if __name__ == "__main__":
    serve(prepare)
