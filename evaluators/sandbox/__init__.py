"""The sandbox: where candidate code runs, and the only place where it does.

A *zygote* (`client.Zygote`) is a process with torch and triton imported and no CUDA context. For every *job* it forks a
*child* (`client.Child`): a process in namespaces of its own, with a workspace, limits and a deadline, that talks to the
judge by messages and ends as an `Exit`. Nothing that a child starts outlives it.

    with Zygote(interpret=True) as zygote, zygote.spawn("package.module:function", {...}, deadline_s=10) as child:
        answer = child.receive()

Zygotes that one judge needs at the same time can share an import of torch: a *nursery* (`starting.Nursery`) has it, and
forks them.

From zygote to candidate there are three forks: the *intermediate* enters the namespaces, the *supervisor* (pid 1 of
its pid namespace) watches and kills, the *candidate* runs the job.
"""

from evaluators.sandbox.channel import Channel, ChannelError
from evaluators.sandbox.client import Child, ChildEnded, Exit, Zygote, ZygoteEndedError
from evaluators.sandbox.layers import Layer
from evaluators.sandbox.limits import Limits
from evaluators.sandbox.starting import Nursery, SandboxError

__all__ = [
    "Channel",
    "ChannelError",
    "Child",
    "ChildEnded",
    "Exit",
    "Layer",
    "Limits",
    "Nursery",
    "SandboxError",
    "Zygote",
    "ZygoteEndedError",
]
