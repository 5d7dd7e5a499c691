"""RPC between instances, and for clients that speak it: one connection per dialled address.

Who dials owns the connection: its requests, their answers and its one-way messages travel on it. Two
instances that ask each other have two connections. What is said on them is in protocol/; here are the sockets.

    rpc = Rpc(loop, introduction=…, secret=…)
    rpc.handle(Join, join)                     # what we answer
    await rpc.listen(listener)
    reply = await rpc.call("127.0.0.1:3301", Join(…), Joined, timeout=5.0)

Nothing that arrives may stop the instance: whatever is wrong with it ends at most its connection. Nothing grows
without a bound: what waits to be sent, what is being answered, what strangers hold.
"""

from shoal.node.rpc.dialled import LinkEvent
from shoal.node.rpc.outcomes import NotSent, Rejected, ReplyLost, TimedOut
from shoal.node.rpc.registry import Caller
from shoal.node.rpc.rpc import Rpc

__all__ = ["Caller", "LinkEvent", "NotSent", "Rejected", "ReplyLost", "Rpc", "TimedOut"]
