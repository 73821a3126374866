"""Shared by the tests of the Python module: the program, folders, small flows and models."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import harmonics
import numpy

PROGRAM = os.environ["HARMONICS_PROGRAM"]
SOURCE = pathlib.Path(os.environ["HARMONICS_SOURCE"])

PLANE = """harmonic plane {
  producer x;
  producer y;
  layer h {8};
  layer o {1};
  cycle { x -(silu)-> h -> o; o <-(mse)- y; }
}
"""
TINY = (
    "name: Tiny\nextends: Llama3\nconfig: {num_layers: 2, hidden_size: 32, num_query_heads: 4, num_kv_heads: 2, "
    "intermediate_size: 48, vocab_size: 12, max_position_embeddings: 16}\n"
)


def program(*arguments):
    """The standard output of the command line."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise AssertionError(f"harmonics {' '.join(map(str, arguments))} exits {done.returncode}\n{done.stderr}")
    return done.stdout


def points(rows):
    """Points of y = 2 a - b + 1."""
    i = numpy.arange(rows)
    x = numpy.stack([i % 7 / 7, i % 5 / 5], axis=1).astype("float32")
    return x, (2 * x[:, :1] - x[:, 1:] + 1).astype("float32")


def plane(rows=70):
    graph = harmonics.parse_hmx_text(PLANE)
    x, y = points(rows)
    graph.bind_producer("x", x)
    graph.bind_producer("y", y)
    return graph


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def fails(self, kind, text, call, *arguments, **named):
        """Checks the kind and the text of the harmonics.Error of a call, and returns the error."""
        with self.assertRaises(harmonics.Error) as raised:
            call(*arguments, **named)
        self.assertEqual(raised.exception.kind, kind, str(raised.exception))
        self.assertIn(text, str(raised.exception))
        return raised.exception
