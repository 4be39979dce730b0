"""`closeknit simulate`: a trace of jobs on a cluster of a file."""
