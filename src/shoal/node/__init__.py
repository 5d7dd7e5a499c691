"""The instance: one process, one event loop, and the cores that it drives.

instance.py tells the life of an instance from start to stop; start reading there. pg_server.py has the
sockets, login.py lets clients in, session.py takes their messages, executing.py runs their portals, and
statements.py keeps what was prepared. catalog_log.py is the log of one instance, ddl.py carries schema
changes out.

Here is all the I/O and time that the cores don't have. The loop never blocks: what takes longer than a point
read by key goes to a thread of storage/.

Not here yet: other instances (RPC, Raft, the governor's loop), TLS, transactions of several statements.
"""
