"""Maps a seed to a kind of flow."""
from __future__ import annotations

from draw_conv import draw_conv
from draw_mlp import draw_mlp
from draw_sequence import draw_sequence
from draw_tokens import draw_tokens
from flow import Flow

KINDS = {"mlp": draw_mlp, "conv": draw_conv, "seq": draw_sequence, "tokens": draw_tokens}
TURNS = ["mlp", "conv", "seq", "tokens", "mlp", "conv", "seq", "mlp", "conv", "seq"]


def kind_of(seed: int) -> str:
    return TURNS[seed % len(TURNS)]


def draw_flow(seed: int) -> Flow:
    return KINDS[kind_of(seed)](seed)
