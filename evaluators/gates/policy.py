"""What host code may say: the lists of the static gate, and nothing else.

Host code allocates, views and launches; the kernels compute. So names are allowed one by one where they reach into
torch and triton, and the few Python names that reach around the language are refused.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = frozenset(
    {
        "__future__",
        "collections.abc",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "math",
        "numbers",
        "operator",
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "triton",
        "triton.language",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda",
        "triton.language.extra.cuda.libdevice",
        "triton.language.math",
        "triton.language.standard",
        "triton.runtime",
        "triton.tools.tensor_descriptor",
        "typing",
    }
)

# Python names that reach the interpreter, other modules, files, or the identity of an object
BUILTINS = _words(
    """
    __builtins__ __import__ __loader__ __spec__ breakpoint compile delattr dir eval exec exit getattr globals hash
    id input locals memoryview open quit setattr type vars
    """
)

# Python's names that are something else behind a dot: a module's eval() is told by what it is called on
HARMLESS_AS_ATTRIBUTES = frozenset({"eval"})

# Attributes that remember between calls, that act behind the caller's back, or that give raw memory
ATTRIBUTES = _words(
    """
    as_subclass backward cache cache_info cached_property data_ptr lru_cache register_forward_hook
    register_forward_pre_hook register_full_backward_hook register_hook register_module_forward_hook set_
    share_memory_ storage untyped_storage add_pre_run_hook preload device_caches pre_run_hooks pre_hook post_hook
    set_active reset_active launcher_cls get_benchmarker clear_cache get_device_interface
    builtin builder dispatch extern extern_elementwise inline_asm_elementwise
    elapsed_time record_event wait_event wait_stream
    """
)

# Modules that modules hand out as attributes (tl.core.builtins, typing.sys)
HIDDEN_MODULES = _words(
    """
    _C abc ast builtins collections contextlib copyreg ctypes gc importlib inspect io keyword linecache logging
    multiprocessing numpy np os pathlib pickle re shutil signal socket subprocess sys tempfile textwrap threading time
    traceback types warnings weakref
    """
)

DUNDER_ATTRIBUTES = frozenset({"__init__", "__name__", "__post_init__"})

# Special methods that a program may define. Others run unasked (__getattr__, __get__), swallow errors (__exit__) or
# answer for tensors (__torch_function__)
DEFINABLE_DUNDERS = _words(
    "__init__ __post_init__ __call__ __repr__ __str__ __eq__ __hash__ __len__ __getitem__ __contains__ __iter__ __lt__"
)

# Of Python's own modules: what host code may use. Left out is what finds by name (attrgetter), evaluates text
# (get_type_hints), remembers (cache) or writes (setitem).
STANDARD_NAMES = {
    "functools": _words("cmp_to_key partial reduce total_ordering wraps"),
    "operator": _words(
        """
        abs add and_ concat contains eq floordiv ge getitem gt index inv invert is_ is_not itemgetter le lshift lt mod
        mul ne neg not_ or_ pos pow rshift sub truediv truth xor
        """
    ),
    "dataclasses": _words("FrozenInstanceError InitVar KW_ONLY asdict astuple dataclass field fields replace"),
    "enum": _words("Enum Flag IntEnum IntFlag StrEnum auto unique"),
    "typing": _words(
        """
        Any Callable ClassVar Dict Final Generic Iterable Iterator List Literal Mapping NamedTuple NoReturn Optional
        ParamSpec Protocol Self Sequence Set Tuple Type TYPE_CHECKING TypeAlias TypeVar TypedDict Union cast final
        overload override
        """
    ),
}

# What makes an object of its own, whatever it is given
CONSTRUCTORS = _words("bool bytearray bytes complex dict float frozenset int list range set sorted str tuple")
COPYING_METHODS = _words("clone copy new_empty new_empty_strided new_full new_ones new_tensor new_zeros")
# Iterators keep their place: one that outlives a call counts calls
ITERATOR_MAKERS = _words("enumerate filter iter map reversed zip")
CONSUMERS = _words("all any bool dict float frozenset int len list max min next set sorted str sum tuple")

# Methods that change what they are called on
MUTATORS = _words(
    """
    add append appendleft clear copy_ difference_update discard extend extendleft insert intersection_update pop
    popitem popleft remove reverse rotate setdefault sort symmetric_difference_update update write
    add_module load_state_dict register_buffer register_module register_parameter set_extra_state set_submodule
    apply as_strided_ detach_ eval rename_ requires_grad_ resize_ resize_as_ squeeze_ swapaxes_ swapdims_ t_ train
    transpose_ unsqueeze_ zero_grad
    """
)
# Methods that change a module of torch.nn for good, and make another of a tensor
CONVERSIONS = _words("bfloat16 cpu cuda double float half to to_empty type xpu")

# What is a number, or consists of numbers, when torch says it
NUMBERS = _words("itemsize max_threads_per_multi_processor multi_processor_count nbytes ndim warp_size")
COUNTING_METHODS = _words("bit_length dim element_size ndimension nelement numel")
SHAPES = _words("shape size stride")
COUNTING_BUILTINS = _words("abs bool float int len ord pow round")

TORCH_NAMES = _words(
    """
    Tensor Size device dtype bool uint8 uint16 uint32 uint64 int8 int16 short int32 int int64 long float16 half
    bfloat16 float32 float float64 double complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz
    float8_e5m2fnuz finfo iinfo memory_format contiguous_format channels_last channels_last_3d preserve_format
    strided empty empty_like empty_strided empty_permuted zeros zeros_like ones ones_like full full_like tensor
    scalar_tensor as_strided broadcast_shapes broadcast_tensors broadcast_to chunk expand_copy flatten movedim
    moveaxis narrow permute reshape select split squeeze swapaxes swapdims transpose unbind unflatten unsqueeze
    view_as_complex view_as_real is_tensor is_floating_point is_complex numel no_grad inference_mode jit autograd
    cdiv nn cuda version accelerator promote_types result_type can_cast
    """
)

TRITON_NAMES = _words(
    """
    Config cdiv constexpr_function heuristics jit language next_power_of_2 runtime set_allocator tools
    """
)

SUBMODULE_NAMES = {
    "triton.runtime": frozenset({"driver"}),
    "triton.tools": frozenset({"tensor_descriptor"}),
    "torch.cuda": _words(
        """
    current_device current_stream device device_count get_device_capability get_device_name get_device_properties
    is_available is_bf16_supported
    """
    ),
    "torch.jit": frozenset({"ignore", "unused", "final", "Final"}),
    "torch.autograd": frozenset({"Function", "function", "no_grad"}),
    "torch.autograd.function": frozenset({"Function", "FunctionCtx", "once_differentiable"}),
    "torch.version": frozenset({"cuda", "hip"}),
    "torch.accelerator": frozenset({"current_accelerator", "is_available"}),
    "triton.runtime.driver": frozenset({"active"}),
    "triton.runtime.driver.active": _words(
        "get_active_torch_device get_current_device get_current_stream get_current_target utils"
    ),
    "triton.runtime.driver.active.utils": frozenset({"get_device_properties"}),
}

# What kernels may not ask: work must not depend on when it is done
CLOCKS = _words("clock clock64 globaltimer smid")
# What puts code together from texts, or by hand: with it a kernel could say anything
BUILDING = _words("builder builtin dispatch extern extern_elementwise")
OF_KERNELS = BUILDING | {"inline_asm_elementwise"}
# Special registers of PTX that inline assembly may read (PTX ISA, "Special Registers"): which thread this is
REGISTERS = _words("tid ctaid ntid nctaid laneid warpid")
SPECIAL_REGISTERS = (
    *(
        "aggr_smem",
        "clock",
        "cluster",
        "current_graph",
        "dynamic_smem",
        "envreg",
        "globaltimer",
        "gridid",
        "is_explicit",
    ),
    *("lanemask", "nclusterid", "nsmid", "nwarpid", "pm", "reserved_smem", "smid", "total_smem"),
)
# Triton's own for taking a number out of a constant: the kernels of Inductor's split scan call it
KERNEL_PRIVATE = frozenset({"_unwrap_if_constexpr"})
CLOCK_REGISTERS = ("%clock", "%globaltimer", "%gridid")

# Methods of tensors that compute. The dry run sees every operation; this list is there to name the line.
COMPUTING_METHODS = _words(
    """
    abs_ add_ addmm addmv all amax amin argmax argmin argsort baddbmm bernoulli bmm clamp clamp_ clip cos cosh
    cumprod cumsum cross diff div_ dot einsum erf exp exp_ expm1 fft gather gelu index_add index_add_ index_select
    inverse isfinite isinf isnan kthvalue layer_norm log log10 log1p log2 log_softmax logcumsumexp logsumexp lerp
    masked_fill masked_fill_ masked_select matmul mean median mm mul_ multinomial mv nanmean nansum nonzero norm
    normal_ outer pow prod quantile random_ reciprocal relu relu_ renorm rsqrt scatter scatter_ scatter_add
    scatter_add_ scatter_reduce sigmoid silu sin sinh softmax sort sqrt square std sub_ sum sum_to_size tan tanh
    topk tril triu uniform_ unique var where
    """
)

# Layers that do nothing in evaluation mode
IDLE_LAYERS = frozenset({"Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"})
NN_CONTAINERS = frozenset({"Module", "Parameter", "ParameterList", "ParameterDict", "Buffer", "init", "functional"})

# What an operation of a library is called in host code. A compiled baseline that calls it lets candidates do so.
SPELLINGS = {
    "mm": {"mm", "matmul", "linear", "Linear", "@"},
    "addmm": {"addmm", "mm", "matmul", "linear", "Linear", "@"},
    "bmm": {"bmm", "matmul", "baddbmm", "einsum", "@"},
    "baddbmm": {"baddbmm", "bmm", "matmul", "@"},
    "mv": {"mv", "matmul", "@"},
    "convolution": {
        *("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    },
    "scaled_dot_product_attention": {"scaled_dot_product_attention"},
}
SAME_OPERATION = {
    "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "bias_addmm": "addmm",  # what Inductor calls an addmm whose bias is one row
}

# Operations seen in a dry run that are no computation: they fill or move memory, and their time counts
MEMORY_OPERATIONS = _words(
    """
    _to_copy clone contiguous copy_ fill_ full full_like new_full new_ones new_zeros ones ones_like scalar_tensor
    zero_ zeros zeros_like lift_fresh_copy
    """
)
HOST_READS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero"})


def operation_name(name: str) -> str:
    """The bare name of an operation: "sum" for "aten.sum.dim_IntList"."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def spellings_of(allowed_ops: frozenset[str]) -> frozenset[str]:
    """All names under which host code may call the allowed operations."""
    names: set[str] = set()
    for operation in map(operation_name, allowed_ops):
        same = SAME_OPERATION.get(operation, operation)
        names |= {operation, same} | SPELLINGS.get(same, set())
    return frozenset(names)
