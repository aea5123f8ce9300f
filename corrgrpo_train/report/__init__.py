"""Pictures of runs, drawn from their run folders."""
