"""Which memory a kernel reads before it has written to it, from the text of its TTIR.

The kernel is followed in the order of its program, once: both ways of a branch, a loop twice (its first iteration, with
what the loop begins with, and a later one). Pointers are followed from the arguments on. Whoever reads memory that
nobody wrote may look for an answer of an earlier call there; an honest kernel has no use for it. In doubt it is not
counted as read:

* what the kernel has stored to before is its own, if it is not known that the store was to other elements,
* what a loop stores to later, it may read from its second iteration on, where the read has a condition that is
  different there (`k > 0`, but not the bound `start + columns < n`),
* what another program may have written is its own to say: a read that waits for, or depends on, memory that the kernel
  itself changes (locks, counters, flags) is one of something that the kernel stores to somewhere.

An operation that is not known makes what its pointers point to written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from evaluators.capture.ttir import (
    Block,
    Function,
    Operation,
    Region,
    Unreadable,
    names_used_in,
    read_functions,
    symbol_of,
    targets_of,
)
from evaluators.capture.ttir_values import (
    NOTHING,
    UNKNOWN,
    Memory,
    Number,
    Offset,
    Value,
    after,
    computed,
    counted,
    joined,
    mixed,
    varying,
)

MOST_STEPS = 200_000
DEEPEST_CALL = 30

LOADS = frozenset(
    {
        *("tt.load", "tt.descriptor_load", "tt.descriptor_gather"),
        *("tt.experimental_descriptor_load", "tt.experimental_descriptor_gather"),
    }
)
STORES = frozenset(
    {
        *("tt.store", "tt.descriptor_store", "tt.descriptor_scatter"),
        *("tt.experimental_descriptor_store", "tt.experimental_descriptor_scatter"),
    }
)
ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})
# What they make of a pointer is a pointer to the same memory, or none
_KNOWN = frozenset(
    {
        *("tt.addptr", "tt.advance", "tt.bitcast", "tt.broadcast", "tt.cat", "tt.expand_dims", "tt.int_to_ptr"),
        *("tt.join", "tt.make_tensor_descriptor", "tt.make_tensor_ptr", "tt.ptr_to_int", "tt.reshape", "tt.splat"),
        *("tt.split", "tt.trans", "tt.unsplat", "tt.gather", "tt.reduce", "tt.scan", "tt.assert", "tt.print"),
    }
)

Guard = tuple[Value, bool]


class Accesses(NamedTuple):
    """What a kernel does with the memory that its arguments point to."""

    loads: frozenset[Memory]  # that it reads before it has written there
    atomics: frozenset[Memory]  # the same, by operations that read and write at once
    stores: frozenset[Memory]  # that it writes, whatever was there
    writes: frozenset[Memory]  # in any way, or may write


@dataclass
class _Read:
    """A read of memory that the kernel has not written to so far."""

    memory: Memory
    is_atomic: bool
    loops: frozenset[int]  # in whose first iteration a condition may keep it off
    waits_for: frozenset[Memory]  # what its conditions come from


class _Write(NamedTuple):
    """A store, by its conditions: those that are the same for all of a block and in all iterations of a loop."""

    guards: frozenset[Guard]
    offset: Offset | None  # where, if that is known


@dataclass
class _Found:
    """What has happened, from the first operation to the present one."""

    written: dict[Memory, list[_Write]] = field(default_factory=dict)
    stored: set[Memory] = field(default_factory=set)
    changed: set[Memory] = field(default_factory=set)  # stored, or by atomics
    stored_in: dict[int, set[Memory]] = field(default_factory=dict)  # by loop
    reads: list[_Read] = field(default_factory=list)
    awaited: frozenset[Memory] = NOTHING  # by loops that ended when it had changed


def find_accesses(
    text: str, pointers: Sequence[Memory | None], numbers: Mapping[str, Number] | None = None
) -> Accesses | None:
    """What a kernel reads first and writes; None when its text is not understood.

    Args:
        text: of the kernel's TTIR.
        pointers: the memory of each argument that is a pointer or a descriptor, in their order.
        numbers: of the other arguments, by name, where they are known.
    """
    try:
        functions = read_functions(text)
        entry = next((function for function in functions.values() if function.is_entry), None)
        if entry is None or sum(a.is_pointer for a in entry.arguments) != len(pointers):
            return None
        return _Walk(functions).run(entry, pointers, numbers or {})
    except (Unreadable, LookupError, RecursionError, ValueError, TypeError):
        return None


class _Walk:
    """Follows a kernel, operation by operation."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._values: dict[str, Value] = {}
        self._found = _Found()
        self._guards: tuple[Guard, ...] = ()
        self._lengths: tuple[Value, ...] = ()  # ends of the loops that we are in
        self._loops: tuple[int, ...] = ()
        self._returned: list[list[Value]] = []
        self._n_loops = self._n_steps = self._depth = 0

    def run(self, entry: Function, pointers: Sequence[Memory | None], numbers: Mapping[str, Number]) -> Accesses:
        given = iter(pointers)
        for argument in entry.arguments:
            memory = next(given) if argument.is_pointer else None
            number = numbers.get(argument.name.removeprefix("%"))
            self._values[argument.name] = Value(number, frozenset() if memory is None else frozenset({memory}))
        self._region(entry.body)
        found = self._found
        reads = [read for read in found.reads if not self._is_excused(read)]
        loads, atomics = (frozenset(r.memory for r in reads if r.is_atomic is wanted) for wanted in (False, True))
        return Accesses(loads, atomics, frozenset(found.stored), frozenset(found.changed))

    def _is_excused(self, read: _Read) -> bool:
        found = self._found
        if any(read.memory in found.stored_in.get(loop, ()) for loop in read.loops):
            return True
        others = (read.waits_for - {read.memory}) & found.changed
        return read.memory in found.stored and bool(others)

    # structure -------------------------------------------------------------------------------------------------------

    def _region(self, region: Region, given: Sequence[Value] = ()) -> Sequence[Value]:
        """Follows the blocks of a region; what its last operation hands on."""
        handed: Sequence[Value] = ()
        arrivals: dict[str, list[tuple[tuple[Guard, ...], list[Value]]]] = {}
        outer = self._guards
        for i, block in enumerate(region):
            if i:
                if block.label not in arrivals:
                    continue  # its condition is known to be false
                guards = [guards for guards, _ in arrivals[block.label]]
                self._guards = tuple(guard for guard in guards[0] if all(guard in others for others in guards))
                given = [joined(values) for values in zip(*(v for _, v in arrivals[block.label]), strict=True)]
            self._bind(block.arguments, given)
            handed = self._block(block, region[i + 1 :])
            self._branch(block, [later.label for later in region[i + 1 :]], arrivals)
        self._guards = outer
        return handed

    def _block(self, block: Block, later: Region) -> Sequence[Value]:
        handed: Sequence[Value] = ()
        for i, operation in enumerate(block.operations):
            self._n_steps += 1
            if self._n_steps > MOST_STEPS:
                raise Unreadable("too long")
            operands = [self._values.get(name, UNKNOWN) for name in operation.operands]
            if operation.name in ("scf.yield", "scf.condition", "tt.return") or operation.name.endswith(".return"):
                handed = operands
                if operation.name == "tt.return":
                    self._returned.append(operands)
            elif operation.name == "tt.atomic_rmw" and _is_plain_exchange(operation, block.operations[i + 1 :], later):
                self._store(operation, operands)
            else:
                self._operation(operation, operands)
        return handed

    def _branch(
        self, block: Block, labels: Sequence[str], arrivals: dict[str, list[tuple[tuple[Guard, ...], list[Value]]]]
    ) -> None:
        """Notes where the end of a block leads, under which conditions and with which values."""
        last = block.operations[-1] if block.operations else None
        if last is None or not last.name.startswith("cf."):
            return
        condition = self._values.get(last.operands[0], UNKNOWN) if last.name == "cf.cond_br" else None
        for is_true, (label, names) in zip((True, False), targets_of(last.text), strict=False):
            if label not in labels:
                raise Unreadable("a branch leads back")
            if condition is not None and condition.number is not None and bool(condition.number) is not is_true:
                continue
            guards = self._guards if condition is None else (*self._guards, *_guards_of(condition, is_true))
            values = [self._values.get(name, UNKNOWN) for name in names]
            arrivals.setdefault(label, []).append((guards, values))

    def _bind(self, names: Sequence[str], values: Sequence[Value]) -> None:
        for i, name in enumerate(names):
            self._values[name] = values[i] if i < len(values) else UNKNOWN

    def _operation(self, operation: Operation, operands: list[Value]) -> None:
        match operation.name:
            case "scf.for":
                self._for(operation)
            case "scf.while":
                self._while(operation)
            case "scf.if":
                self._if(operation, operands)
            case "tt.call":
                self._call(operation, operands)
            case name if name in LOADS:
                self._load(operation, operands)
            case name if name in STORES:
                self._store(operation, operands)
            case name if name in ATOMICS:
                self._atomic(operation, operands)
            case _:
                self._other(operation, operands)

    def _other(self, operation: Operation, operands: list[Value]) -> None:
        made = computed(operation.name, operation.text, operands)
        is_known = operation.name in _KNOWN or operation.name.startswith(("arith.", "math.", "cf.", "scf."))
        if not is_known:
            self._write(made.points_to, None)
        made = replace(made, differs=True) if len(operation.results) > 1 else made
        for region in operation.regions:
            self._region(region, [replace(mixed(operands), differs=True)] * len(region[0].arguments))
        self._bind(operation.results, [made] * len(operation.results))

    def _if(self, operation: Operation, operands: list[Value]) -> None:
        condition, outer = operands[0], self._guards
        handed = []
        for is_true, region in zip((True, False), operation.regions, strict=False):
            if condition.number is not None and bool(condition.number) is not is_true:
                continue
            self._guards = (*outer, *_guards_of(condition, is_true))
            handed.append(self._region(region))
            self._guards = outer
        self._forget_both_ways(condition)
        for i, name in enumerate(operation.results):
            value = joined([values[i] for values in handed])
            self._values[name] = value if len(handed) == 1 else _under(value, condition)

    def _forget_both_ways(self, condition: Value) -> None:
        """What both ways of a branch have written is written, whichever was taken."""
        holds = {guard for guard in _guards_of(condition, is_true=True) if not guard[0].loops and not guard[0].differs}
        for writes in self._found.written.values():
            for write in [write for write in writes if holds and holds <= write.guards]:
                rest = write.guards - holds
                if any(other.guards == rest | {(condition, False)} for other in writes):
                    writes.append(_Write(rest, None))

    def _call(self, operation: Operation, operands: list[Value]) -> None:
        function = self._functions[symbol_of(operation.text)]
        if self._depth > DEEPEST_CALL:
            raise Unreadable("calls are too deep")
        values, returned = self._values, self._returned
        self._values, self._returned, self._depth = {}, [], self._depth + 1
        self._bind([argument.name for argument in function.arguments], operands)
        self._region(function.body)
        handed, self._values, self._returned, self._depth = self._returned, values, returned, self._depth - 1
        self._bind(operation.results, [joined(several) for several in zip(*handed, strict=True)])

    # loops -----------------------------------------------------------------------------------------------------------

    def _for(self, operation: Operation) -> None:
        """Operands: counter, first, end, step, then each argument before what it begins with."""
        counter, first, end, step = operation.operands[0], *self._of(operation.operands[1:4])
        names, given = operation.operands[4::2], self._of(operation.operands[5::2])
        if _is_known(first, end) and first.number >= end.number:  # type: ignore[operator]
            self._bind(operation.results, given)
            return
        loop = self._new_loop()
        lengths, self._lengths = self._lengths, (*self._lengths, first, end)
        begin = Value(first.number, comes_from=first.comes_from, loops=first.loops | {loop}, is_rising=first.is_rising)
        self._bind((counter, *names), [begin, *(varying(value, loop) for value in given)])
        handed = self._region(operation.regions[0])
        if not _is_over(first, end, step):
            later = replace(begin, number=None, sum=counted(first, end))
            carried = [varying(joined(pair), loop) for pair in zip(given, handed, strict=True)]
            self._bind((counter, *names), [later, *carried])
            handed = [joined(pair) for pair in zip(handed, self._region(operation.regions[0]), strict=True)]
        self._lengths, self._loops = lengths, self._loops[:-1]
        ends = [handed] if _is_known(first, end) else [given, handed]
        self._bind(operation.results, [after(joined(several), loop) for several in zip(*ends, strict=True)])

    def _while(self, operation: Operation) -> None:
        """Operands: each argument before what it begins with. A region decides, another does the work."""
        names, given = operation.operands[::2], self._of(operation.operands[1::2])
        loop, outer = self._new_loop(), self._guards
        decides, works = operation.regions
        for _ in range(2):
            self._bind(names, [varying(value, loop) for value in given])
            condition, *forwarded = self._region(decides, [varying(value, loop) for value in given])
            if condition.number is False:
                break
            self._guards = (*outer, *_guards_of(condition, is_true=True))
            handed = self._region(works, forwarded)
            self._guards = outer
            given = [joined(pair) for pair in zip(given, handed, strict=False)]
        self._loops = self._loops[:-1]
        self._found.awaited |= condition.comes_from
        self._bind(operation.results, [after(value, loop) for value in forwarded])

    def _new_loop(self) -> int:
        self._n_loops += 1
        self._loops = (*self._loops, self._n_loops)
        return self._n_loops

    def _of(self, names: Sequence[str]) -> list[Value]:
        return [self._values.get(name, UNKNOWN) for name in names]

    # memory ----------------------------------------------------------------------------------------------------------

    def _load(self, operation: Operation, operands: list[Value]) -> None:
        mask = operands[1] if operation.name == "tt.load" and len(operands) > 1 else None
        if mask is not None and mask.number is False:
            self._bind(operation.results, [operands[2] if len(operands) > 2 else UNKNOWN])
            return
        self._read(operands[0].points_to, _place(operation, operands[0]), mask, is_atomic=False)
        self._bind(operation.results, [_loaded(operation, operands)] * len(operation.results))

    def _store(self, operation: Operation, operands: list[Value]) -> None:
        mask = operands[2] if operation.name in ("tt.store", "tt.atomic_rmw") and len(operands) > 2 else None
        if mask is None or mask.number is not False:
            self._write(operands[0].points_to, _place(operation, operands[0]), mask)
        self._bind(operation.results, [UNKNOWN] * len(operation.results))

    def _atomic(self, operation: Operation, operands: list[Value]) -> None:
        mask = operands[2] if operation.name == "tt.atomic_rmw" and len(operands) > 2 else None
        if mask is None or mask.number is not False:
            self._read(operands[0].points_to, _place(operation, operands[0]), mask, is_atomic=True)
            self._found.changed |= operands[0].points_to
        self._bind(operation.results, [_loaded(operation, operands)] * len(operation.results))

    def _write(self, memories: frozenset[Memory], place: Offset | None, mask: Value | None = None) -> None:
        of_mask = _guards_of(mask, is_true=True) if mask is not None and mask.number is None else ()
        alike = [guard for guard in (*self._guards, *of_mask) if not guard[0].loops and not guard[0].differs]
        write = _Write(frozenset(alike), place)
        found = self._found
        found.stored |= memories
        found.changed |= memories
        for loop in self._loops:
            found.stored_in.setdefault(loop, set()).update(memories)
        for memory in memories:
            writes = found.written.setdefault(memory, [])
            if write not in writes:
                writes.append(write)

    def _read(self, memories: frozenset[Memory], place: Offset | None, mask: Value | None, *, is_atomic: bool) -> None:
        guards = {*self._guards, *(_guards_of(mask, is_true=True) if mask is not None else ())}
        conditions = [condition for condition, _ in guards]
        keeping_off = [c.loops for c in conditions if c.number is None and not c.is_bound and not c.parts]
        waits_for = [c.comes_from for c in (*conditions, *self._lengths)]
        for memory in memories:
            if any(w.guards <= guards and _may_meet(w.offset, place) for w in self._found.written.get(memory, ())):
                continue
            loops = frozenset[int]().union(*keeping_off) & set(self._loops)
            self._found.reads.append(_Read(memory, is_atomic, loops, self._found.awaited.union(*waits_for)))


def _guards_of(condition: Value, is_true: bool) -> tuple[Guard, ...]:
    """A condition with its parts, where they all hold."""
    return tuple((part, True) for part in condition.conjuncts) if is_true else ((condition, False),)


def _place(operation: Operation, pointer: Value) -> Offset | None:
    """The elements that an access may reach, where they are counted from a pointer."""
    return pointer.offset if operation.name.startswith(("tt.load", "tt.store", "tt.atomic")) else None


def _may_meet(written: Offset | None, read: Offset | None) -> bool:
    return written is None or read is None or not read.is_apart_from(written)


def _loaded(operation: Operation, operands: Sequence[Value]) -> Value:
    """What an address, and what stands beside it, give."""
    made = mixed(operands)
    sources, is_block = made.comes_from | operands[0].points_to, "tensor<" in operation.text
    return Value(comes_from=sources, loops=made.loops, is_rising=not made.loops, differs=is_block)


def _under(value: Value, condition: Value) -> Value:
    """A value that a branch has given: it depends on the condition as well."""
    made = mixed((value, condition))
    return Value(
        value.number, value.points_to, made.comes_from, made.loops, is_rising=not made.loops, differs=made.differs
    )


def _is_known(*values: Value) -> bool:
    return all(value.number is not None for value in values)


def _is_over(first: Value, end: Value, step: Value) -> bool:
    """Has the loop one iteration?"""
    return _is_known(first, end, step) and first.number + step.number >= end.number  # type: ignore[operator]


def _is_plain_exchange(operation: Operation, following: Sequence[Operation], later: Region) -> bool:
    """An exchange whose old value nobody takes is a store."""
    if not operation.text.lstrip().startswith("exch"):
        return False
    taken = {name for o in (*following, *(o for b in later for o in b.operations)) for name in names_used_in(o)}
    return not taken & set(operation.results)
