"""One machine as a person looks at it: its NodeTopology from a cluster, a file or nvidia-smi, as table or picture."""
