"""Matmul: products of matrices, with bias and activation, and their gradients; ``slangpy_rt.matmul`` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slangpy_rt.core.checks import short_tracebacks, shortened
from slangpy_rt.core.errors import SlangPyRtError

if TYPE_CHECKING:
    from slangpy_rt.calls.command_list import CommandList
    from slangpy_rt.calls.function import Function
    from slangpy_rt.device import Device
    from slangpy_rt.linalg.arrays import Arrays


@short_tracebacks("append_to", "bwds")
class Matmul:
    """The product of matrices, ``activation(alpha * a @ b + bias)``, as a function with a backward derivative.

    Shapes and broadcasting are those of NumPy's ``matmul``: the last two dimensions are rows and columns, dimensions
    before them are broadcast, and an operand of one dimension is a row on the left and a column on the right.
    """

    def __init__(self) -> None:
        # The libraries of arrays that products were computed of, by type.
        self._libraries: dict[type, Arrays] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        out: Any = None,
        out_dtype: Any = None,
        alpha: float = 1,
        bias: Any = None,
        activation: str | Function | None = None,
        device: Device | None = None,
        precision: str | None = None,
    ) -> Any:
        """Multiply matrices.

        Parameters
        ----------
        a, b : array
            Operands of shapes ``(..., M, K)`` and ``(..., K, N)`` and of one element type: half, bfloat16,
            float, double, int8 or int32. All arrays are of one library: Tensors, PyTorch's tensors, or
            NumPy's arrays. Any strides are taken; copies are made for tensor cores alone.
        transpose_a, transpose_b : bool
            Whether ``a`` has the shape ``(..., K, M)``, and ``b`` ``(..., N, K)``.
        out : array, optional
            The result, of shape ``(..., M, N)``. It may share memory with the operands.
        out_dtype : dtype, optional
            The element type of a new result. By default that of the operands, and ``int`` for int8. Sums are kept in
            float, of double in double and of integers in int, and are rounded once.
        alpha : float
            A factor of the product.
        bias : array, optional
            Numbers of the result's element type, one for each element of the result's last dimension.
        activation : str or Function, optional
            What is applied at last: ``"relu"``, ``"silu"``, ``"sigmoid"``, ``"tanh"`` or ``"gelu"`` (the form with
            tanh), or a function of a module that takes ``(float x)`` or ``(float x, int row, int column)`` and
            returns a float. The sums' type stands for ``float``. Uniforms have the values that ``set`` gave them.
        device : Device, optional
            The device for NumPy's arrays and for PyTorch's in host memory. By default the first that works here for
            NumPy's, and the one on which tensors lie otherwise.
        precision : str, optional
            ``"tf32"`` allows a device to round floats to TF32, which has 10 bits of the fraction, before they are
            multiplied; sums are kept in float.

        Returns
        -------
        array
            ``out``, or a new array of the operands' library.

        Raises
        ------
        BindError
            If an argument is of a wrong type, or arrays are of several libraries or element types.
        ShapeError
            If shapes do not fit, or ``out`` overlaps itself.
        UnsupportedError
            If the device has no such elements in memory.
        """
        try:
            return self._multiply(
                None, a, b, transpose_a, transpose_b, out, out_dtype, alpha, bias, activation, device, precision
            )
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    def append_to(
        self,
        commands: CommandList,
        a: Any,
        b: Any,
        *,
        out: Any,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1,
        bias: Any = None,
        activation: str | Function | None = None,
        precision: str | None = None,
    ) -> Any:
        """Record a product in a command list; the parameters are those of a call. It returns ``out``."""
        from slangpy_rt.calls.command_list import CommandList
        from slangpy_rt.core.errors import BindError
        from slangpy_rt.core.wording import in_words

        if not isinstance(commands, CommandList):
            raise BindError(f"matmul.append_to: commands is {in_words(commands)}; a CommandList was expected.")
        if out is None:
            raise BindError("matmul.append_to: out is None; an array for the product was expected.")
        device: Any = commands.device
        return self._multiply(
            commands, a, b, transpose_a, transpose_b, out, None, alpha, bias, activation, device, precision
        )

    def bwds(
        self,
        a: Any,
        b: Any,
        *,
        _result: Any,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1,
        bias: Any = None,
    ) -> None:
        """Add to the gradients of Tensors that a product was made of.

        Parameters
        ----------
        a, b, bias : Tensor
            As for a call. Gradients of those that have some (``tensor.with_grads()``) are added to.
        _result : Tensor
            The gradient of the product, or a Tensor that carries it.
        transpose_a, transpose_b, alpha
            As for a call.

        Raises
        ------
        BindError
            If an argument is no Tensor, none has a gradient, or elements are integers.
        ShapeError
            If shapes do not fit.
        """
        from slangpy_rt.linalg.gradients import add_gradients

        add_gradients(a, b, bias, _result, transpose_a, transpose_b, alpha)

    def __repr__(self) -> str:
        return "<matmul(a, b), a product of matrices>"

    def _multiply(
        self,
        commands: CommandList | None,
        a: Any,
        b: Any,
        transpose_a: bool,
        transpose_b: bool,
        out: Any,
        out_dtype: Any,
        alpha: float,
        bias: Any,
        activation: str | Function | None,
        device: Device | None,
        precision: str | None,
    ) -> Any:
        # Imported here, because importing the package loads no kernels' code.
        from slangpy_rt.linalg.known_product import MISS
        from slangpy_rt.linalg.known_products import fixed, options_of, repeat

        library = self._libraries.get(type(a))
        function: UserFunction | None = None
        last: Any = activation
        place: Any = device
        if activation is not None and not isinstance(activation, str):
            from slangpy_rt.arrays.ndbuffer import NDBuffer
            from slangpy_rt.linalg.user_functions import UserFunction

            function = UserFunction(activation)
            last = function.key
            if device is None and not isinstance(a, NDBuffer):
                # Without a function it would be that on which the arrays lie, or the first that works here.
                place = function.device
        of_values = fixed(library, function) if library is not None and commands is None else None
        if library is not None and of_values is not None:
            options = options_of(transpose_a, transpose_b, out_dtype, alpha, last, precision, of_values.key)
            found = repeat(library, a, b, out, bias, options, place, function, of_values.arrays)
            if found is not MISS:
                return found
        from slangpy_rt.core.checks import flag
        from slangpy_rt.core.errors import BindError
        from slangpy_rt.linalg.choose import arrays_of
        from slangpy_rt.linalg.launch import Product, checked, multiply
        from slangpy_rt.runtime.core import a_device

        given = [("a", a), ("b", b), ("out", out), ("bias", bias)]
        arrays, values = arrays_of("matmul", [(n, v) for n, v in given if v is not None or n in "ab"])
        if commands is not None and not arrays.recorded:
            raise BindError(
                f"matmul.append_to: a is {arrays.name}; a Tensor or an NDBuffer was expected, since nothing "
                "would move another array when the list runs."
            )
        for name, value in (("transpose_a", transpose_a), ("transpose_b", transpose_b)):
            flag("matmul", name, value)
        if device is not None:
            a_device("matmul", device)
        if function is not None and place is not None:
            function.check_device(place)
        last = function or activation
        product = Product(arrays, values, transpose_a, transpose_b, out_dtype, alpha, last, place, precision)
        if commands is None and arrays.records(list(values.values())):
            checked(product)
            if arrays.recorded:
                from slangpy_rt.linalg.taped_product import taped

                return taped(product.bias_last())
            return arrays.differentiable(product.bias_last())
        out = multiply(product, commands)
        self._libraries[type(a)] = arrays
        return out


matmul = Matmul()
