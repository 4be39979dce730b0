"""Tests on real nodes. A package, for fixtures that end with its last test: pytest knows no other folder."""
