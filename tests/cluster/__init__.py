"""Tests on a control plane. A package, for fixtures that end with its last test."""
