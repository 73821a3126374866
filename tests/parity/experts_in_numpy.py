"""The model of beside_llama_cpp.py with experts, in float64 from the weights of a file in f32, f16 or bf16.

llama.cpp rounds the operands of products to the type of the weights. Where two experts have nearly equal scores, this
changes which of them a token uses, and so its log-probabilities by far more than those of other tokens.
"""
import gguf
import numpy as np

EPSILON, BASE = 1e-5, 10000.0


def read(path):
    """Returns the tensors of a file in float64, and their types."""
    tensors = gguf.GGUFReader(path).tensors
    numbers = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in tensors}
    return {n: x.astype(np.float64) for n, x in numbers.items()}, {t.name: t.tensor_type.name for t in tensors}


def rounded(x, kind):
    """Rounds an operand as llama.cpp does beside weights of this type."""
    if kind == "F32":
        return x
    if kind == "F16":
        return x.astype(np.float16).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def run(path, tokens, heads, used, rounds):
    """Returns the log-probabilities after each token, and the scores of experts [layer, token, expert]."""
    weights, kinds = read(path)

    def product(name, x, expert=None):
        w = weights[name] if expert is None else weights[name][expert]
        return (rounded(x, kinds[name]) if rounds else x) @ w.T

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weights[name]

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    count, width = len(tokens), weights["blk.0.attn_q_norm.weight"].size
    angle = np.arange(count)[:, None] * BASE ** (-np.arange(width // 2) * 2 / width)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def turned(x):
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x, scores, later = weights["token_embd.weight"][tokens], [], np.triu(np.ones((count, count), bool), 1)
    while f"blk.{len(scores)}.attn_norm.weight" in weights:
        at = f"blk.{len(scores)}."
        h = norm(x, at + "attn_norm.weight")
        q, k, v = (product(f"{at}attn_{name}.weight", h).reshape(count, -1, width) for name in "qkv")
        q, k = turned(norm(q, at + "attn_q_norm.weight")), turned(norm(k, at + "attn_k_norm.weight"))
        k, v = (np.repeat(y, heads // y.shape[1], 1) for y in (k, v))
        seen = np.einsum("thd,shd->hts", q, k) / np.sqrt(width)
        seen[:, later] = -np.inf
        h = np.einsum("hts,shd->thd", softmax(seen), v).reshape(count, -1)
        x = x + product(at + "attn_output.weight", h)
        h = norm(x, at + "ffn_norm.weight")
        router = product(at + "ffn_gate_inp.weight", h)
        best = np.argsort(-router, -1, kind="stable")[:, :used]
        shares = np.take_along_axis(softmax(router), best, -1)
        shares /= shares.sum(-1, keepdims=True)
        sums = np.zeros_like(x)
        for expert in range(router.shape[-1]):
            rows, choice = np.nonzero(best == expert)
            if rows.size == 0:
                continue
            gate = product(at + "ffn_gate_exps.weight", h[rows], expert)
            inner = gate / (1 + np.exp(-gate)) * product(at + "ffn_up_exps.weight", h[rows], expert)
            sums[rows] += product(at + "ffn_down_exps.weight", inner, expert) * shares[rows, choice][:, None]
        x = x + sums
        scores.append(router)
    logits = product("output.weight", norm(x, "output_norm.weight"))
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.array(scores)


def ties(exact, rounded_scores, used):
    """Returns for each token whether rounding can change its experts: whether, in a layer, the scores of the last one
    used and the first one not used differ by no more than twice what rounding changes the token's scores by."""
    ordered = -np.sort(-exact, -1)
    change = np.abs(exact - rounded_scores).max(-1)
    return (ordered[..., used - 1] - ordered[..., used] <= 2 * change).any(0)
