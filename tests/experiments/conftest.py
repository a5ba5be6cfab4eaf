"""Makes `fabricate` importable from the tests in the folders below."""
