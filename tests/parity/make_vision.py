#!/usr/bin/env python3
"""Writes golden/vision.safetensors: scores of narrow ResNet34 and MobileNetV2 networks with random weights.

For each network N (metadata N = its flow, by samples/vision/make.py): N/images, N/scores, and N/weights/P, the state
of the module, which has torchvision's names. Needs torch and safetensors.

    python tests/parity/make_vision.py
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "samples/vision"))
import make  # noqa: E402


class BasicBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet34(nn.Module):
    def __init__(self, divide, classes):
        super().__init__()
        channels = 64 // divide
        self.conv1 = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for stage, blocks in enumerate([3, 4, 6, 3], 1):
            out, layers = (64 // divide) << (stage - 1), []
            for block in range(blocks):
                layers.append(BasicBlock(channels, out, 2 if stage > 1 and block == 0 else 1))
                channels = out
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def conv_norm(channels, out, kernel, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(out), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, channels, out, stride, factor):
        super().__init__()
        inner = channels * factor
        self.adds = stride == 1 and channels == out
        expand = [conv_norm(channels, inner, 1)] if factor != 1 else []
        self.conv = nn.Sequential(*expand, conv_norm(inner, inner, 3, stride, inner),
                                  nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, divide, classes):
        super().__init__()
        wide = lambda channels: max(1, channels // divide)  # noqa: E731
        channels = wide(32)
        layers = [conv_norm(3, channels, 3, 2)]
        for factor, out, blocks, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                            (6, 160, 3, 2), (6, 320, 1, 1)]:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, wide(out), stride if block == 0 else 1, factor))
                channels = wide(out)
        self.features = nn.Sequential(*layers, conv_norm(channels, wide(1280), 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(wide(1280), classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def randomize(net):
    """Statistics and gains of norms that differ from those of a new module."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def main():
    torch.manual_seed(5)
    tensors, flows = {}, {}
    for name, kind, divide, parameters in [("resnet34", ResNet34, 32, 21_797_672),
                                           ("mobilenet_v2", MobileNetV2, 16, 3_504_872)]:
        assert sum(p.numel() for p in kind(1, 1000).parameters()) == parameters
        net = kind(divide, 7)
        randomize(net)
        net.eval()
        images = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            scores = net(images)
        flows[name] = make.flow(name, divide, 7, 64, sample=False)
        tensors[f"{name}/images"], tensors[f"{name}/scores"] = images, scores
        tensors.update({f"{name}/weights/{key}": value.contiguous() for key, value in net.state_dict().items()})
    save_file(tensors, HERE / "golden/vision.safetensors", flows)


if __name__ == "__main__":
    main()
