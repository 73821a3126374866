"""Graphs: training, inference, streams of Python, stops, errors."""
import gc
import json
import signal
import socket
import sys
import threading

import harmonics
import numpy

from shared import PLANE, Case, plane, points, program

SETTINGS = {"steps": 60, "epochs": 1000, "batch": 10, "optimizer": "adam(lr=0.02)", "seed": 3, "threads": 1}


def weights(graph):
    return {name: graph.weight(name).numpy() for name in graph.weights()}


class Training(Case):
    def same(self, graph, others):
        self.assertEqual(graph.weights(), sorted(others))
        for name, value in weights(graph).items():
            numpy.testing.assert_array_equal(value, others[name])

    def test_weights_are_those_of_the_command_line_to_the_bit(self):
        x, y = points(70)
        numpy.save(self.folder / "x.npy", x)
        numpy.save(self.folder / "y.npy", y)
        flow = self.write("plane.hmx", PLANE)
        program("run", flow, "--producer", f"x={self.folder}/x.npy", "--producer", f"y={self.folder}/y.npy", "--steps",
                60, "--epochs", 1000, "--batch", 10, "--optimizer", "adam(lr=0.02)", "--seed", 3, "--threads", 1,
                "--save", self.folder / "run.safetensors", "--quiet")
        of_run = plane()
        of_run.load(self.folder / "run.safetensors")
        wanted = weights(of_run)
        self.assertGreater(len(wanted), 3)

        graph = plane()
        report = graph.fit(**SETTINGS)
        self.assertEqual((report.steps, report.samples), (60, 600))
        self.same(graph, wanted)

        strided = harmonics.parse_hmx(flow)
        strided.bind_producer("x", numpy.repeat(x, 2, axis=0)[::2])
        strided.bind_producer("y", numpy.ascontiguousarray(y[::-1])[::-1])
        strided.fit(**SETTINGS)
        self.same(strided, wanted)

        by_address = harmonics.parse_hmx(flow)
        by_address.bind_producer("x", str(self.folder / "x.npy"))
        by_address.bind_producer("y", self.folder / "y.npy")
        by_address.fit(**SETTINGS)
        self.same(by_address, wanted)

        program("infer", flow, "--weights", self.folder / "run.safetensors", "--producer", f"x={self.folder}/x.npy",
                "--consumer", f"{self.folder}/out.npy", "--threads", 1, "--quiet")
        numpy.testing.assert_allclose(graph.infer(x).numpy(), numpy.load(self.folder / "out.npy"), rtol=1e-6, atol=1e-6)

    def test_training_reduces_the_loss(self):
        graph = plane(210)
        x, y = points(35)
        graph.bind_validation("x", x)
        graph.bind_validation("y", y)
        graph.bind_test("x", x)
        graph.bind_test("y", y)
        seen = []
        report = graph.fit(epochs=30, batch=10, optimizer="adam(lr=0.02)", seed=1, metrics="mae", until=["loss<0"],
                           progress=seen.append)
        self.assertEqual([e.epoch for e in report.by_epoch], list(range(1, 31)))
        self.assertLess(report.by_epoch[-1].loss, report.by_epoch[0].loss / 10)
        self.assertLess(report.by_epoch[-1].validation["mae"], report.by_epoch[0].validation["mae"])
        self.assertIsNone(report.accuracy)
        self.assertEqual(report.stopped_by, "epochs")
        self.assertIn("630 steps", repr(report))
        self.assertGreater(seen[-1].step, 0)
        tested = graph.test()
        self.assertEqual(tested.samples, 35)
        self.assertAlmostEqual(tested.figures["loss"], tested.loss)

    def test_shuffled_arrays(self):
        def trained(**options):
            x, y = points(70)
            graph = harmonics.parse_hmx_text(PLANE)
            graph.bind_producer("x", x, **options)
            graph.bind_producer("y", y, **options)
            graph.fit(**SETTINGS)
            return weights(graph)["o.weight" if "o.weight" in graph.weights() else graph.weights()[0]]

        plain, first, again = trained(), trained(shuffle=70, seed=1), trained(shuffle=70, seed=1)
        numpy.testing.assert_array_equal(first, again)
        self.assertTrue((first != plain).any())

    def test_saved_graphs(self):
        graph = plane()
        graph.fit(**SETTINGS)
        x, _ = points(5)
        wanted = graph.infer(x).numpy()
        graph.save(self.folder / "plane.safetensors")
        again = harmonics.parse_blob(graph.data())
        numpy.testing.assert_array_equal(again.infer(x).numpy(), wanted)
        loaded = plane()
        loaded.load(self.folder / "plane.safetensors")
        numpy.testing.assert_array_equal(loaded.predict(x).numpy(), wanted)
        self.assertEqual([(layer.name, layer.shape) for layer in loaded.layers()], [("h", (8,)), ("o", (1,))])
        self.fails("no_input", "nowhere", loaded.load, self.folder / "nowhere.safetensors")


class Inference(Case):
    def setUp(self):
        super().setUp()
        self.graph = harmonics.parse_hmx_text(
            "harmonic two { producer a {2}; producer b {2}; layer s; layer t; cycle { a -(relu)-> s; b -(neg)-> t; } }"
            .replace("-(neg)->", "-(tanh)->"))

    def test_inputs_by_name(self):
        a, b = numpy.array([[-1, 2]], "float32"), numpy.array([[0, 1]], "float32")
        for results in (self.graph.infer(a=a, b=b), self.graph.infer({"a": a, "b": b})):
            self.assertEqual(sorted(results), ["s", "t"])
            self.assertEqual(results["s"].shape, (1, 2))
        with self.assertRaises(TypeError):
            self.graph.infer(a, b=b)

    def test_errors_name_the_input_and_the_conversion(self):
        graph = harmonics.parse_hmx_text("harmonic one { producer input {2}; layer o; cycle { input -(relu)-> o; } }")
        x = numpy.array([[-1.0, 2.0]])
        error = self.fails("shape", "producer 'input' takes f32[2]", graph.infer, x)
        self.assertIn("x.astype('float32')", error.remedy)
        self.fails("shape", "not f32[1, 3]", graph.infer, numpy.zeros((1, 3), "float32"))
        self.fails("type", "'input' is of the type list", graph.infer, input=[1.0, 2.0])
        x = x.astype("float32")
        numpy.testing.assert_array_equal(graph.infer(input=x)["o"], graph.infer(x))
        self.assertEqual(graph.infer(numpy.asfortranarray(numpy.tile(x, (3, 1)))).shape, (3, 2))

    def test_errors_of_flows_have_their_place(self):
        error = self.fails("syntax", "error", harmonics.parse_hmx_text, "harmonic a {\n  producer x {2}\n  layer o;\n}")
        self.assertEqual(error.place[0], "text")
        self.assertIn(error.place[1], (2, 3))
        bad = self.write("bad.hmx", "harmonic a { producer x {2}; layer o; cycle { x -(rleu)-> o; } }")
        graph = harmonics.parse_hmx(bad)
        error = self.fails("name", "rleu", graph.infer, numpy.zeros(2, "float32"))
        self.assertEqual(error.place, (str(bad), 1, 51))
        self.assertIn("relu", error.remedy)
        self.fails("no_input", "nowhere.hmx", harmonics.parse_hmx, "nowhere.hmx")
        self.assertIsNone(self.fails("no_input", "libno.so", harmonics.load_plugin, "libno.so").place)

    def test_arguments_of_layers(self):
        graph = harmonics.parse_hmx_text(
            "harmonic a { producer x {2}; layer o; cycle { x -(leaky_relu(slope=0.5))-> o; } }")
        x = numpy.array([-2, 2], "float32")
        before = graph.infer(x).numpy().tolist()
        former = graph.configure_layer("o", {"slope": 0.25})
        self.assertEqual(float(former["slope"]), 0.5)
        self.assertNotEqual(graph.infer(x).numpy().tolist(), before)
        graph.configure_layer("o", former)
        self.assertEqual(graph.infer(x).numpy().tolist(), before)
        graph.deploy("cpu")
        self.fails("name", "'tpu'", graph.deploy, "tpu")


class Streams(Case):
    def test_iterables_and_generators(self):
        x, y = points(70)
        by_array = plane()
        by_array.fit(**SETTINGS)
        by_list = harmonics.parse_hmx_text(PLANE)
        by_list.bind_producer("x", list(x))
        by_list.bind_producer("y", tuple(y))
        by_list.fit(**SETTINGS)
        self.assertEqual(by_list.weights(), by_array.weights())
        for name in by_list.weights():
            numpy.testing.assert_array_equal(by_list.weight(name), by_array.weight(name))
        once = harmonics.parse_hmx_text(PLANE)
        once.bind_producer("x", (row for row in x))
        once.bind_producer("y", (row for row in y))
        self.assertEqual(once.fit(epochs=1, batch=10, threads=1).samples, 70)

    def test_an_exception_of_a_generator_is_an_error_of_its_stream(self):
        def broken():
            yield points(1)[0][0]
            raise ValueError("the sensor is gone")

        graph = harmonics.parse_hmx_text(PLANE)
        graph.bind_producer("x", broken())
        graph.bind_producer("y", points(70)[1])
        self.fails("stream", "stream 'x': its iterable raised ValueError: the sensor is gone", graph.fit, epochs=1, batch=1)

    def test_consumers_receive_samples(self):
        flow = "harmonic a { producer x {2}; layer o; consumer c; cycle { x -(relu)-> o -> c; } }"
        x = numpy.array([[-1, 2], [3, -4], [5, 6]], "float32")
        got = []
        graph = harmonics.parse_hmx_text(flow)
        graph.bind_producer("x", x)
        graph.bind_consumer("c", got.append)
        graph.fit(epochs=1, batch=2)
        self.assertEqual(len(got), 3)
        numpy.testing.assert_allclose(numpy.stack(got), graph.infer(x), atol=1e-6)

        def refuse(sample):
            raise OSError("the disk is full")

        failing = harmonics.parse_hmx_text(flow)
        failing.bind_producer("x", x)
        failing.bind_consumer("c", refuse)
        self.fails("output", "consumer 'c': its callable raised OSError: the disk is full", failing.fit, epochs=1)
        self.fails("type", "consumer 'c' is neither", failing.bind_consumer, "c", 3)

    def test_labels_number_their_classes(self):
        graph = harmonics.parse_hmx_text(
            "harmonic a { producer x; producer y; layer h {8}; layer o; cycle { x -(relu)-> h -> o; "
            "o <-(cross_entropy)- y; } }")
        graph.bind_producer("x", points(70)[0])
        graph.bind_producer("y", (numpy.arange(70) % 5).astype("uint8"))
        report = graph.fit(epochs=1, batch=10)
        self.assertGreaterEqual(report.accuracy, 0)
        self.assertEqual([layer.shape for layer in graph.layers()], [(8,), (5,)])

    def test_wrong_sources(self):
        graph = harmonics.parse_hmx_text(PLANE)
        self.fails("shape", "the first axis numbers the samples", graph.bind_producer, "x", numpy.float32(1))
        self.fails("shape", "at least one", graph.bind_producer, "x", numpy.zeros((0, 2), "float32"))
        self.fails("type", "'x' is of the type int", graph.bind_producer, "x", 3)
        self.fails("usage", "shuffle", graph.bind_producer, "x", "x.npy", shuffle=3)

    def test_a_graph_keeps_its_arrays_and_releases_them(self):
        x, y = points(70)
        before = sys.getrefcount(x)
        graph = harmonics.parse_hmx_text(PLANE)
        graph.bind_producer("x", x)
        self.assertGreater(sys.getrefcount(x), before)
        graph.bind_producer("y", y)
        graph.fit(epochs=1, batch=10)
        del graph
        gc.collect()
        self.assertEqual(sys.getrefcount(x), before)


class Stops(Case):
    def test_a_progress_callback_stops_the_run(self):
        graph = plane()
        report = graph.fit(epochs=10**9, batch=10, progress=lambda p: p.step < 1)
        self.assertNotEqual(report.stopped_by, "epochs")
        graph.infer(points(3)[0])

    def test_an_exception_of_the_callback_is_raised(self):
        def broken(progress):
            raise KeyError("step")

        graph = plane()
        with self.assertRaises(KeyError):
            graph.fit(epochs=10**9, batch=10, progress=broken)
        graph.fit(epochs=1, batch=10)

    def test_keyboard_interrupt_stops_the_run(self):
        graph = plane()
        sent = []

        def interrupt(progress):
            if not sent:
                sent.append(progress.step)
                signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            graph.fit(epochs=10**9, batch=10, progress=interrupt)
        self.assertEqual(len(sent), 1)
        graph.infer(points(3)[0])

    def test_keyboard_interrupt_stops_a_run_that_waits_for_a_silent_stream(self):
        graph = harmonics.parse_hmx_text(PLANE)
        senders = []
        x, y = points(10)
        for name, rows in (("x", x), ("y", y)):
            path = str(self.folder / name)
            graph.bind_producer(name, f"unix:{path}?format=jsonl&type=f32:{rows.shape[1]}#{name}")
            sender = socket.socket(socket.AF_UNIX)
            self.addCleanup(sender.close)
            sender.connect(path)
            sender.sendall("".join(json.dumps({name: row.tolist()}) + "\n" for row in rows).encode())
            senders.append(sender)
        with self.assertRaises(KeyboardInterrupt):
            graph.fit(epochs=10**9, batch=10, progress=lambda _: signal.raise_signal(signal.SIGINT))
        graph.infer(points(3)[0])

    def test_another_thread_stops_a_fit(self):
        graph = plane()
        stopping = threading.Event()

        def stop():
            stopping.wait(60)
            graph.stop_fit()

        thread = threading.Thread(target=stop)
        thread.start()
        report = graph.fit(epochs=10**9, progress=lambda progress: stopping.set())
        thread.join()
        self.assertEqual(report.stopped_by, "interrupt")

    def test_other_threads_run_and_infer_during_a_fit(self):
        graph = plane()
        started, answered = threading.Event(), threading.Event()

        def progress(_):
            started.set()
            return not answered.is_set()

        fit = threading.Thread(target=graph.fit, kwargs={"epochs": 10**9, "batch": 10, "progress": progress})
        fit.start()
        self.assertTrue(started.wait(60))
        shape = graph.infer(points(3)[0]).shape
        self.fails("usage", "uses the graph", graph.save, self.folder / "now.safetensors")
        answered.set()
        fit.join()
        self.assertEqual(shape, (3, 1))
        graph.save(self.folder / "after.safetensors")

    def test_unknown_settings(self):
        with self.assertRaisesRegex(TypeError, "no setting 'epoch'; settings: progress, accumulate"):
            plane().fit(epoch=3)
        with self.assertRaisesRegex(TypeError, "'epochs' cannot be 'three'"):
            plane().fit(epochs="three")
        self.fails("name", "adm", plane().fit, optimizer="adm")
