"""The net of samples/char_gpt.hmx in PyTorch: fused projection of query, key and value, scaled_dot_product_attention."""
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, BLOCKS = 128, 4, 4


def turn(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cosine, sine):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in self.project(self.norm1(x)).split(WIDTH, -1))
        mixed = F.scaled_dot_product_attention(turn(q, cosine, sine), turn(k, cosine, sine), v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.feed(self.norm2(x))


class CharGpt(nn.Module):
    def __init__(self, workload):
        super().__init__()
        text = workload["data"]["text"]
        self.embed = nn.Embedding(text["classes"], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.next = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, text["classes"])
        half = WIDTH // HEADS // 2
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
