"""SQL: from a text to a program that SQLite runs.

    parse      text → syntax tree            lexer.py, parser/; what isn't known is refused with its position
    bind       syntax tree → typed plan      bind/; names, types, parameters, against one schema
    optimise   typed plan → what it proves   optimise/; point reads, the buckets that a filter pins
    compile    typed plan → SQLite's text    local/; wherever SQLite means something else, the text says it exactly

A statement goes through this once. Executions only fill in values: normalise.py takes the literals out of a
text, so that texts which differ in literals share a program, and rows.py takes long INSERTs apart without
parsing them. explain.py shows a plan to people.

All of it is a core: it sees a schema and a text, and no connection, clock or session.

Not here yet: windows, DO blocks, CALL, and the distribution of a plan over replicasets.
"""
