"""Transformers in PyTorch with the sizes of a workload's "net": the net of samples/char_gpt.hmx, and a Llama-like one with
RMSNorm and SwiGLU and without biases. Fused projection of query, key and value, scaled_dot_product_attention."""
import torch
from torch import nn
from torch.nn import functional as F


def turn(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, width, heads, hidden, llama):
        super().__init__()
        self.heads, norm = heads, nn.RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.project, self.output = nn.Linear(width, 3 * width, bias=not llama), nn.Linear(width, width, bias=not llama)
        gelu = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.feed = SwiGlu(width, hidden) if llama else gelu

    def forward(self, x, cosine, sine):
        b, t, width = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.project(self.norm1(x)).split(width, -1))
        mixed = F.scaled_dot_product_attention(turn(q, cosine, sine), turn(k, cosine, sine), v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(b, t, width))
        return x + self.feed(self.norm2(x))


class CharGpt(nn.Module):
    def __init__(self, workload):
        super().__init__()
        text, net = workload["data"]["text"], workload["net"]
        width, heads, llama = net.get("width", 128), net.get("heads", 4), net.get("form") == "llama"
        self.embed = nn.Embedding(text["classes"], width)
        self.blocks = nn.ModuleList(Block(width, heads, net.get("hidden", 4 * width), llama) for _ in range(net.get("blocks", 4)))
        self.norm, self.next = (nn.RMSNorm if llama else nn.LayerNorm)(width), nn.Linear(width, text["classes"], bias=not llama)
        half = width // heads // 2
        angles = torch.outer(torch.arange(text["shape"][0]), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, text):
        x = self.embed(text)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.next(self.norm(x))

    def loss(self, text):
        scores = self(text)[:, :-1]
        return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), text[:, 1:].reshape(-1))
