"""The process around the decisions: reflectors in, one scheduling loop, writes out."""
