"""What people and machines see of a running pipeline: the console and the logs."""
