"""Arrays of other libraries in, tensors out."""
import array
import gc
import sys
import weakref

import harmonics
import numpy

from shared import Case

TYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
         "float64"]


class Capsule:
    """A capsule that another object hands out."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **keywords):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


class DlpackOnly:
    """A tensor of a library that has no array interface."""

    def __init__(self, values, device=(1, 0)):
        self.values, self.device = values, device

    def __dlpack__(self):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.device


class Tensors(Case):
    def test_every_element_type_goes_in_and_comes_out(self):
        for name in TYPES:
            given = numpy.arange(-3, 12).astype(name).reshape(3, 5)
            dlpack = name != "bool" or numpy.lib.NumpyVersion(numpy.__version__) >= "1.25.0"  # older ones refuse it
            with self.subTest(name):
                for source in [given] + [DlpackOnly(given.copy())] * dlpack:
                    tensor = harmonics.Tensor(source)
                    self.assertEqual(tensor.shape, (3, 5))
                    self.assertEqual((tensor.ndim, tensor.size), (2, 15))
                    self.assertEqual(numpy.asarray(tensor).dtype, given.dtype)
                    numpy.testing.assert_array_equal(numpy.asarray(tensor), given)
                    if dlpack:
                        numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), given)

    def test_shapes(self):
        for shape in [(), (1,), (7,), (1, 1, 1), (3, 5, 7), (2, 1, 3, 1, 2, 1, 1, 2)]:
            with self.subTest(shape):
                given = numpy.random.default_rng(1).random(shape, dtype="float32")
                tensor = harmonics.Tensor(given)
                self.assertEqual(tensor.shape, shape)
                numpy.testing.assert_array_equal(tensor.numpy(), given)
        self.fails("shape", "at most 8 dimensions", harmonics.Tensor, numpy.zeros((1,) * 9, "float32"))

    def test_strided_arrays(self):
        base = numpy.arange(4 * 6 * 5, dtype="int32").reshape(4, 6, 5)
        views = [base.T, base[::2], base[:, ::-1], base[:, 1:4, ::2], base[::-1, ::-2, ::-3], base[1], base[:, 2],
                 numpy.broadcast_to(base[0, 0], (3, 5)), numpy.asfortranarray(base), base[:, :, :1]]
        for view in views:
            with self.subTest(view.strides):
                numpy.testing.assert_array_equal(harmonics.Tensor(view).numpy(), view)
                if view.flags.writeable:
                    numpy.testing.assert_array_equal(harmonics.Tensor(DlpackOnly(view)).numpy(), view)

    def test_buffers_without_numpy(self):
        for letter, name in [("f", "f32"), ("d", "f64"), ("b", "i8"), ("B", "u8"), ("i", "i32"), ("q", "i64")]:
            tensor = harmonics.Tensor(array.array(letter, [1, 2, 3]))
            self.assertEqual((tensor.dtype, tensor.shape), (name, (3,)))
            self.assertEqual(tensor.numpy().tolist(), [1, 2, 3])
        self.assertEqual(harmonics.Tensor(memoryview(b"abcd")[::2]).numpy().tolist(), [97, 99])

    def test_results_share_memory_and_are_read_only(self):
        tensor = harmonics.Tensor(numpy.arange(6, dtype="float32"))
        address = tensor.__array_interface__["data"][0]
        for view in (numpy.asarray(tensor), tensor.numpy(), numpy.from_dlpack(tensor)):
            self.assertEqual(view.__array_interface__["data"][0], address)
            self.assertFalse(view.flags.writeable)

    def test_views_outlive_the_tensor(self):
        tensor = harmonics.Tensor(numpy.arange(100000, dtype="float32"))
        views = [numpy.asarray(tensor), numpy.from_dlpack(tensor)]
        del tensor
        gc.collect()
        others = [harmonics.Tensor(numpy.full(100000, 7, "float32")) for _ in range(4)]  # reuse freed memory
        for view in views:
            self.assertEqual(view[99999], 99999)
        self.assertEqual(len(others), 4)

    def test_dlpack_copies_on_request(self):
        tensor = harmonics.Tensor(numpy.arange(3, dtype="float32"))
        shared = harmonics.Tensor.__dlpack__
        address = lambda capsule: numpy.from_dlpack(Capsule(capsule)).__array_interface__["data"][0]
        self.assertEqual(address(shared(tensor)), address(shared(tensor, copy=False)))
        self.assertNotEqual(address(shared(tensor)), address(shared(tensor, copy=True)))
        shared(tensor, dl_device=(1, 0))
        with self.assertRaises(BufferError):
            shared(tensor, dl_device=(2, 0))

    def test_arrays_are_released(self):
        given = numpy.arange(6, dtype="float32")
        before = sys.getrefcount(given)
        tensors = [harmonics.Tensor(given), harmonics.Tensor(given[::2]), harmonics.Tensor(DlpackOnly(given))]
        gc.collect()
        self.assertEqual(sys.getrefcount(given), before)
        given[0] = 9  # the tensors are copies
        self.assertEqual(tensors[0].numpy()[0], 0)
        tensor = harmonics.Tensor(given)
        view, capsule = numpy.from_dlpack(tensor), tensor.__dlpack__()
        del capsule  # unused capsules release their tensor
        gone = weakref.ref(view)
        del view
        gc.collect()
        self.assertIsNone(gone())

    def test_wrong_types_say_what_to_do(self):
        error = self.fails("type", "<c8", harmonics.Tensor, numpy.zeros(2, "complex64"))
        self.assertIn("astype", error.remedy)
        error = self.fails("type", "big-endian", harmonics.Tensor, numpy.zeros(2, ">f4"))
        self.assertIn("newbyteorder", error.remedy)
        self.fails("type", "type <U1", harmonics.Tensor, numpy.array(["a"]))
        self.fails("type", "|O", harmonics.Tensor, numpy.array([None]))
        error = self.fails("type", "is of the type list", harmonics.Tensor, [1.0, 2.0])
        self.assertIn("numpy.asarray", error.remedy)
        self.fails("type", "is of the type float", harmonics.Tensor, 1.0)
        error = self.fails("device", "DLPack device 2", harmonics.Tensor, DlpackOnly(numpy.zeros(2), (2, 0)))
        self.assertIn("x.cpu()", error.remedy)

    def test_types_that_numpy_lacks(self):
        tensor = harmonics.Tensor(numpy.array([1.5, -2], "float32")).to("bf16")
        self.assertEqual(tensor.dtype, "bf16")
        error = self.fails("type", "NumPy has no type for elements of bf16", numpy.asarray, tensor)
        self.assertIn("to('f32')", error.remedy)
        self.assertEqual(harmonics.Tensor(DlpackOnly(tensor)).dtype, "bf16")
        self.assertEqual(tensor.to("f32").numpy().tolist(), [1.5, -2])
        self.fails("name", "'f31'", tensor.to, "f31")

    def test_items_and_texts(self):
        self.assertEqual(harmonics.Tensor(numpy.float32(2.5)).item(), 2.5)
        self.assertEqual(harmonics.Tensor(numpy.array([2**63], "uint64")).item(), 2**63)
        self.assertIs(harmonics.Tensor(numpy.array(True)).item(), True)
        self.fails("shape", "item() needs one element", harmonics.Tensor(numpy.zeros(2)).item)
        self.assertEqual(repr(harmonics.Tensor(numpy.zeros((2, 3), "int32"))), "harmonics.Tensor(i32[2, 3])")
