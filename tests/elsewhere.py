"""A second device on a machine that has one: tensors that say they are elsewhere, compute here, and refuse to mix.

Inside `Elsewhere()`, whatever is moved to or made on `AWAY` becomes an `Away` tensor around a CPU tensor. Operations on
both kinds raise as CUDA's do, where a CPU number of no axes, a copy and an index from the CPU are allowed. `FakeTensor`
says as much about shapes, but has no values, and landmarks, damping and refusals depend on values. The device is called
``meta``: the only other one that a CPU build of torch lets autograd, vmap and wrapper tensors live on.
"""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

AWAY = torch.device("meta")
aten = torch.ops.aten
CROSSING = {aten.copy_.default, aten._to_copy.default}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


class MixedDevicesError(RuntimeError):
    pass


class Away(Tensor):
    """A CPU tensor that says it is on `AWAY`."""

    @staticmethod
    def __new__(cls, here):
        return Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=AWAY,
        )

    def __init__(self, here):
        self.here = here

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})


class Constants(TorchFunctionMode):
    """Moves ``torch.tensor(data, device=AWAY)`` there from here: left alone, torch would make it of no values."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device", args[0].device if func is Tensor.new_tensor else None)
        if func in {torch.tensor, torch.as_tensor, Tensor.new_tensor} and device is not None:
            if not isinstance(args[0], Tensor) or func is Tensor.new_tensor:
                return func(*args, **{**kwargs, "device": "cpu"}).to(device)
        return func(*args, **kwargs)


class Elsewhere(TorchDispatchMode):
    """Makes tensors on `AWAY` real; counts what was computed there."""

    def __init__(self):
        super().__init__()
        self.operations = 0

        self.constants = Constants()

    def __enter__(self):
        self.constants.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.constants.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += any(isinstance(leaf, Away) for leaf in pytree.tree_leaves((args, kwargs)))
        return dispatch(func, args, kwargs or {})


def dispatch(func, args, kwargs):
    if func.namespace == "prims":  # torch works out the shape of a product with a tangent of zeros that has no memory
        return func.prim_meta_impl(*args, **kwargs)
    require_one_device(func, args, kwargs)
    inner_args, inner_kwargs = pytree.tree_map_only(Away, lambda x: x.here, (args, kwargs))
    device = kwargs.get("device")
    if device is not None:
        inner_kwargs = {**inner_kwargs, "device": torch.device("cpu")}
        away = torch.device(device).type == AWAY.type
    elif func in CROSSING:
        away = isinstance(args[0], Away)
    else:
        away = any(isinstance(leaf, Away) for leaf in pytree.tree_leaves((args, kwargs)))
    out = func(*inner_args, **inner_kwargs)
    if not away:
        return out
    if torch.Tag.inplace_view in func.tags:  # such as squeeze_: the outer shape changes as well
        with no_dispatch():
            func(*args, **kwargs)
    # What works in place returns what it was given.
    given = {id(leaf.here): leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Away)}
    return pytree.tree_map_only(Tensor, lambda x: given[id(x)] if id(x) in given else Away(x), out)


def require_one_device(func, args, kwargs):
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if func in CROSSING:
        return
    if func in INDEXING and isinstance(args[0], Away):
        tensors = [args[0], *args[2:3]]  # indices may come from the CPU
    away = [x for x in tensors if isinstance(x, Away)]
    here = [x for x in tensors if not isinstance(x, Away) and x.ndim]
    if away and here:
        raise MixedDevicesError(
            f"{func} was given tensors on two devices: {[tuple(x.shape) for x in away]} away, "
            f"{[tuple(x.shape) for x in here]} on the CPU"
        )
