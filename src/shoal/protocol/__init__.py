"""What instances say to each other over RPC, and what clients that speak RPC say to them.

A connection carries frames (frames.py). The first ones tell who is there and prove it (handshake.py); all
others are envelopes: a request, its answer or error, or a message that nobody answers (envelope.py). Everything
is MessagePack, and docs/protocol.md has the bytes.

This is a core: bytes in, values out. The sockets are in node/rpc/.

Not here yet: the messages between router and storage, which travel in these envelopes.
"""
