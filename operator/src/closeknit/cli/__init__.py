"""The closeknit command."""
