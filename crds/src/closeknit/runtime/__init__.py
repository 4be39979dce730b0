"""What every closeknit process needs around its work: log lines, a web server, who may read it, the loop's lag."""
