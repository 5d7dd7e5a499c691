"""The same statements to Shoal and to PostgreSQL 15, and the answers compared.

`expressions.py`, `queries.py` and `changes.py` make statements by chance, each in both dialects at once
(`pairs.py`); `sides.py` runs them; `compare.py` knows which differences are accepted. What they found, and
what has been settled since, stands as scripts in `tests/scripts/sql/`.
"""
