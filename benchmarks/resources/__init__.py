"""What recoveries cost: time, memory, worker processes, runs that are killed and go on."""
