"""The PostgreSQL protocol, version 3.0, without sockets: bytes in, bytes out.
"""
