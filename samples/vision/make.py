"""Writes the flows of this folder, ResNet34 and MobileNetV2, with the names of torchvision's parameters.

    python samples/vision/make.py resnet34 > samples/vision/resnet34.hmx
    python samples/vision/make.py mobilenet_v2 > samples/vision/mobilenet_v2.hmx

`--divide N` divides all widths, `--classes N` and `--size N` set the number of classes and the height and width of images.
"""
import argparse


def conv(channels, kernel, stride, name, groups=1):
    parts = [str(channels), f"kernel={kernel}"]
    if stride != 1:
        parts.append(f"stride={stride}")
    if kernel > 1:
        parts.append(f'padding="{kernel // 2}"')
    if groups != 1:
        parts.append(f"groups={groups}")
    return f'conv({", ".join(parts)}, bias=false, name="{name}")'


def norm(name):
    return f'norm("batch", name="{name}")'


def arrow(source, functions, target):
    """An arrow, with as many functions in a line as fit."""
    lines, line = [], f"    {source} -("
    for i, function in enumerate(functions):
        text = function + (", " if i + 1 < len(functions) else f")-> {target};")
        if len(line) + len(text.rstrip()) > 118:
            lines.append(line.rstrip())
            line = " " * 8
        line += text
    return "\n".join(lines + [line])


def resnet34(divide, source):
    """Layers hold sums before their relu, which the arrows that leave them begin with."""
    width = 64 // divide
    arrows = [arrow(source, [conv(width, 7, 2, "conv1"), norm("bn1"), "relu",
                               "maxpool(3, stride=2, padding=1)"], "x0")]
    source, number = "x0", 0
    for stage, blocks in enumerate([3, 4, 6, 3], 1):
        out = width << (stage - 1)
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            number += 1
            target, path = f"x{number}", f"layer{stage}.{block}"
            arrows.append("")
            arrows.append(arrow(source, ["relu", conv(out, 3, stride, f"{path}.conv1"), norm(f"{path}.bn1"), "relu",
                                         conv(out, 3, 1, f"{path}.conv2"), norm(f"{path}.bn2")], target))
            if stride == 2:
                arrows.append(arrow(source, ["relu", conv(out, 1, 2, f"{path}.downsample.0"),
                                             norm(f"{path}.downsample.1")], target))
            else:
                arrows.append(arrow(source, ["relu", "skip"], target))
            source = target
    return arrows, source, ["relu"], "fc"


def mobilenet_v2(divide, source):
    def wide(channels):
        return max(1, channels // divide)

    arrows = [arrow(source, [conv(wide(32), 3, 2, "features.0.0"), norm("features.0.1"), "relu6"], "x0")]
    source, number, channels = "x0", 0, wide(32)
    for factor, out, blocks, first in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                       (6, 160, 3, 2), (6, 320, 1, 1)]:
        for block in range(blocks):
            stride = first if block == 0 else 1
            number += 1
            target, path, inner = f"x{number}", f"features.{number}.conv", channels * factor
            functions, at = [], 0
            if factor != 1:
                functions += [conv(inner, 1, 1, f"{path}.0.0"), norm(f"{path}.0.1"), "relu6"]
                at = 1
            functions += [conv(inner, 3, stride, f"{path}.{at}.0", inner), norm(f"{path}.{at}.1"), "relu6",
                          conv(wide(out), 1, 1, f"{path}.{at + 1}"), norm(f"{path}.{at + 2}")]
            arrows += ["", arrow(source, functions, target)]
            if stride == 1 and channels == wide(out):
                arrows.append(arrow(source, ["skip"], target))
            source, channels = target, wide(out)
    last = [conv(wide(1280), 1, 1, "features.18.0"), norm("features.18.1"), "relu6"]
    return arrows, source, last, "classifier.1"


MODELS = {"resnet34": ("ResNet34 (He et al. 2015)", resnet34),
          "mobilenet_v2": ("MobileNetV2 (Sandler et al. 2018)", mobilenet_v2)}


def flow(name, divide=1, classes=1000, size=224, sample=True):
    """The text of a flow. `sample`: with the normalization of pixels and the loss."""
    title, model = MODELS[name]
    arrows, source, last, head = model(divide, "pixels" if sample else "images")
    head = [*last, f"avgpool({size // 32})", "flatten"] + (["dropout(0.2)"] if head == "classifier.1" else []) + [
        f'affine({classes}, name="{head}")']
    layers = [line.split("-> ")[-1].rstrip(";") for line in arrows if line]
    names = list(dict.fromkeys(layers))
    lines = [f"// {title} with torchvision's names of parameters; written by make.py. Usage: README.md.",
             f"harmonic {name} {{", f"  producer images {{3, {size}, {size}}};"]
    if sample:
        lines += [f"  producer labels {{{classes}}} 1/1 images;", "  layer pixels;"]
    for at in range(0, len(names), 10):
        lines.append("  " + " ".join(f"layer {n};" for n in names[at:at + 10]))
    lines += ["  layer scores;", "", "  cycle {"]
    if sample:
        lines.append('    images -(conv(3, kernel=1, groups=3, freeze=true, name="normalize"))-> pixels;')
    lines += arrows + ["", arrow(source, head, "scores")]
    if sample:
        lines.append("    scores <-(cross_entropy)- labels;")
    return "\n".join(lines + ["  }", "}", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    given = parser.parse_args()
    print(flow(given.model, given.divide, given.classes, given.size), end="")
