"""The tests. `tests/unit` follows the packages, `tests/scripts` holds what they read as scripts,
`tests/interop` brings real clients, `tests/slow` takes minutes.
"""
