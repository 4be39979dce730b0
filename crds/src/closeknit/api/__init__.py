"""The contract between people, operator and agent: the three kinds, their names and units. Pure."""
