"""Models of .ndsl files by name, and transformers with weights."""
import json

import harmonics
import numpy
from harmonics import RuntimeBlockBuilder, RuntimeModelRegistry, RuntimeModelSpec

from shared import SOURCE, TINY, Case, program

DOCUMENT = ["Llama2", "GPT_NeoX", "Qwen3MoE", "MyCustomModel"]


def tiny(case, name="TinyPython"):
    RuntimeModelRegistry.register(name, case.write("tiny.ndsl", TINY))
    return RuntimeModelRegistry.create_model_config(name)


class Models(Case):
    def test_blocks_and_weights_of_the_documents_models_are_those_of_explain(self):
        for name in DOCUMENT:
            with self.subTest(name):
                file = SOURCE / f"tests/dsl/ndsl/{name}.ndsl"
                shown = json.loads(program("explain", file, "--json"))["transformer"]
                RuntimeModelRegistry.register(name + "OfFile", file)
                spec = RuntimeModelRegistry.get(name + "OfFile")
                self.assertEqual([dict(spec.to_block_spec(i)) for i in range(len(spec.layers))], shown["blocks"])
                for layer in (0, len(spec.layers) - 1):
                    prefix = f"blk.{layer}."
                    wanted = {t["name"]: tuple(t["shape"]) for t in shown["tensors"] if t["name"].startswith(prefix)}
                    self.assertEqual(spec.to_block_spec(layer).weights, wanted)
                    self.assertGreater(len(wanted), 4)

    def test_the_registry(self):
        built_in = RuntimeModelRegistry.list_models()
        RuntimeModelRegistry.register_builtin_models()
        self.assertEqual(RuntimeModelRegistry.list_models(), built_in)
        self.assertEqual(built_in, sorted(built_in))
        self.assertIn("Llama2", built_in)
        spec = RuntimeModelSpec.from_file(self.write("file.ndsl", TINY.replace("Tiny", "'NamedInside'  # a name")))
        self.assertEqual((spec.name, len(spec.layers)), ("NamedInside", 2))
        self.assertIn("NamedInside", RuntimeModelRegistry.list_models())
        self.assertEqual(repr(spec), "RuntimeModelSpec('NamedInside', 2 layers)")
        self.assertEqual(spec.config["vocab_size"], 12)
        error = self.fails("name", "no model 'Lama2'", RuntimeModelRegistry.get, "Lama2")
        self.assertEqual(error.remedy, "did you mean 'Llama2'?")
        self.fails("usage", "'Llama2' has no layer 32; it has 32, from 0", RuntimeModelRegistry.create_block_spec,
                   "Llama2", 32)
        self.fails("usage", "has no layer -1", spec.to_block_spec, -1)

    def test_errors_of_files_have_their_place(self):
        bad = self.write("bad.ndsl", TINY + "architecture:\n  variant: dense\n  block: [RMSNrom, SwiGLU_FFN]\n")
        error = self.fails("name", "there is no operation 'RMSNrom'", RuntimeModelRegistry.register, "Bad", bad)
        self.assertEqual(error.place, (str(bad), 6, 11))
        self.assertIn("did you mean 'RMSNorm'?", error.remedy)

    def test_configurations(self):
        config = tiny(self)
        self.assertEqual(config.model, "TinyPython")
        self.assertEqual((config["num_layers"], config.num_layers, config.NumLayers), (2, 2, 2))
        self.assertIsInstance(config["num_layers"], int)
        self.assertEqual(config.get("rms_norm_eps"), 1e-5)
        self.assertEqual(dict(config), dict(config.items()))
        self.assertEqual(len(list(config)), len(config))
        other = RuntimeModelRegistry.get("TinyPython").to_model_config()
        self.assertEqual(config, other)
        config.num_layers = 1
        other["num_layers"] = 1
        self.assertEqual(config, other)
        self.assertEqual(RuntimeModelRegistry.create_model_config("TinyPython").num_layers, 2)  # a copy was changed
        self.assertTrue(repr(config).startswith("ModelConfig('TinyPython', {'"))
        self.assertNotIn("layers", config)
        with self.assertRaises(KeyError):
            config["layers"]
        with self.assertRaises(AttributeError):
            config.layers
        with self.assertRaises(AttributeError):
            config.layers = 3
        with self.assertRaises(TypeError):
            config["num_layers"] = "3"

    def test_block_specs(self):
        config = tiny(self)
        spec = RuntimeModelRegistry.create_block_spec("TinyPython", 1)
        self.assertEqual(spec["forward_ops"], spec.forward_ops)
        self.assertEqual(repr(spec),
                         "BlockSpec(variant='dense', forward_ops=['LN1', 'QKV', 'RoPE', 'Attention', 'AttnOut', "
                         "'ResidualLN2', 'MLPUp', 'SwiGLU', 'MLPDown'], use_qk_norm=False, ln2_on_residual_att=True)")
        self.assertEqual(spec.weights["blk.1.attn_k.weight"], (16, 32))
        build = RuntimeBlockBuilder.build_from_dsl
        for source in (dict(spec), spec, config, RuntimeModelRegistry.get("TinyPython")):
            self.assertEqual(build(source, layer_idx=1), spec)
        self.assertNotEqual(build({"variant": "dense", "forward_ops": ["LN1"]}), spec)
        self.fails("name", "no variant 'thick'", build, {"variant": "thick", "forward_ops": []})
        with self.assertRaises(KeyError):
            build({"variant": "dense"})
        with self.assertRaises(KeyError):
            spec["ops"]


class Transformers(Case):
    def setUp(self):
        super().setUp()
        self.config = tiny(self)
        self.model = harmonics.TransformerModel(self.config, threads=1, seed=5)
        self.tokens = numpy.array([3, 1, 4, 1, 5, 9, 2, 6], "int32")

    def test_scores_are_those_of_the_command_line(self):
        numpy.save(self.folder / "tokens.npy", self.tokens[None])
        program("infer", self.folder / "tiny.ndsl", "--untrained", "--seed", 5, "--producer",
                f"tokens={self.folder}/tokens.npy", "--consumer", f"{self.folder}/scores.npy", "--threads", 1)
        wanted = numpy.load(self.folder / "scores.npy").reshape(8, 12)
        scores = self.model.forward(self.tokens)
        self.assertEqual((scores.shape, scores.dtype), ((8, 12), "f32"))
        numpy.testing.assert_array_equal(scores.numpy(), wanted)
        both = self.model.forward(numpy.stack([self.tokens, self.tokens[::-1]]))
        numpy.testing.assert_allclose(both.numpy()[0], wanted, atol=1e-5)

    def test_a_block_alone_computes_what_the_model_computes(self):
        trace = self.model.forward_trace(self.tokens)
        shapes = {name: value.shape for name, value in trace.items()}
        self.assertEqual((shapes["embedding"], shapes["blk.0"], shapes["scores"]), ((8, 32), (8, 32), (8, 12)))
        hidden = trace["embedding"]
        for layer in range(2):
            spec = self.model.block(layer)
            self.assertEqual(spec, RuntimeModelRegistry.create_block_spec("TinyPython", layer))
            hidden = harmonics.BlockExecutor.forward(spec, "", self.model.layer(layer), hidden)
            numpy.testing.assert_allclose(hidden.numpy(), trace[f"blk.{layer}"].numpy(), atol=1e-5)
        other = RuntimeBlockBuilder.build_from_dsl({"variant": "dense", "forward_ops": ["LN1"]})
        self.fails("usage", "layer 0 computes another block", harmonics.BlockExecutor.forward, other, "",
                   self.model.layer(0), hidden)

    def test_tokens_with_a_cache(self):
        whole = self.model.forward(self.tokens).numpy()
        cache = harmonics.AttentionCache(self.model)
        for i, token in enumerate(self.tokens):
            scores = self.model.forward_with_cache(numpy.array([token], "int32"), cache)
            numpy.testing.assert_allclose(scores.numpy()[0], whole[i], atol=1e-4)
        self.assertEqual(len(cache), 8)
        cache.keep(3)
        rest = self.model.forward_with_cache(self.tokens[3:], cache)
        numpy.testing.assert_allclose(rest.numpy(), whole[3:], atol=1e-4)

    def test_wrong_tokens(self):
        self.fails("type", "tokens are i32, not i64", self.model.forward, self.tokens.astype("int64"))
        self.fails("stream", "12", self.model.forward, numpy.array([12], "int32"))
        self.fails("usage", "beside the file of a model", harmonics.TransformerModel, "a.gguf", "b.safetensors")

    def test_a_trainer_learns_which_token_follows(self):
        starts = 5 * numpy.arange(32)[:, None] + numpy.arange(8)
        tokens, following = (starts % 12).astype("int32"), ((starts + 1) % 12).astype("int32")
        self.config.num_layers = 1
        arguments = harmonics.TrainingArguments(tokens=tokens, next=following, steps=80, epochs=1000, batch=16, lr=0.01,
                                                seed=3, threads=1)
        trainer = harmonics.Trainer(model_config=self.config, training_args=arguments, use_modular_blocks=True)
        report = trainer.train()
        self.assertEqual(report.steps, 80)
        self.assertLess(report.loss, 0.5)  # untrained: ln 12
        scores = trainer.scores(numpy.arange(4, 12, dtype="int32"))
        self.assertEqual(scores.numpy().argmax(axis=-1)[-1], 0)  # 0 follows 11
        names = trainer.graph.weights()
        self.assertTrue(any("blk.0." in name for name in names))
        self.assertFalse(any("blk.1." in name for name in names))
        trainer.save(self.folder / "trained.safetensors")
        self.assertTrue((self.folder / "trained.safetensors").stat().st_size > 1000)
        half = harmonics.TrainingArguments(tokens=tokens)
        self.fails("usage", "have no 'next'", harmonics.Trainer, self.config, half)
        self.fails("usage", "use_modular_blocks is true", harmonics.Trainer, self.config, arguments, False)
        with self.assertRaisesRegex(TypeError, "no setting 'epoch'"):
            harmonics.TrainingArguments(epoch=3)
